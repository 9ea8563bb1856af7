"""Define the faults of an object store into which a collector seals.

The store is moto's server, and a gate before it answers as the fault says. Whatever happens, in the end the
store has exactly the files that the collector sealed, byte for byte, and the list names each once.
"""

import importlib.util
import signal
import time
from collections.abc import Callable
from typing import Any

from collector.dataset.file_list import FileList, list_path
from tests.collector.upload.gate import (
    KEY,
    SECRET,
    Fault,
    Handler,
    Place,
    answer_lost,
    busy,
    cut,
    opened_place,
    running_server,
)
from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import NotHereError, fault
from tests.functional.chaos.world import World

FAULT_S = 20.0
SLOWEST_S = 2.0
N_KILLS = 20
PATIENCE_S = 120.0


def _store(world: World) -> Place:
    """Run a store, and let the world's collector seal into it."""
    for module in ("boto3", "moto"):
        if importlib.util.find_spec(module) is None:
            raise NotHereError(f"{module} is not installed")
    place = world.opened(opened_place(world.opened(running_server())))
    environment = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": place.gate.url,
    }
    world.new_collector(settings={"store": str(place.address)}, environment=environment)
    return place


def _play(world: World, trouble: Fault, *, must_block: bool = False) -> Verdict:
    """Collect under traffic while `trouble` takes requests; judge the dataset and then the store."""
    place, traffic = _store(world), world.traffic
    world.collector.start()
    traffic.begin()
    time.sleep(world.about(3))
    n_before = len(place.gate.requests)
    place.gate.default = trouble
    until_s = time.monotonic() + max(6.0, FAULT_S * world.scale)
    has_said = False
    while time.monotonic() < until_s or (
        must_block and not has_said and time.monotonic() < until_s + PATIENCE_S
    ):
        has_said |= not world.collector.is_ready and _waits(world)
        time.sleep(0.2)
    place.gate.default = None
    assert len(place.gate.requests) > n_before, "no request met the fault: this was no fault"
    world.facts["requests in trouble"] = len(place.gate.requests) - n_before
    traffic.end()
    verdict = _concluded(world, place)
    if must_block and not has_said:
        verdict.faults.append("neither metrics nor readiness said that the store takes no files")
    return verdict


def _waits(world: World) -> bool:
    collector = world.collector
    is_blocked = collector.metric("pool_collector_store_blocked") == 1
    return is_blocked and bool(collector.metric("pool_collector_store_waiting_files"))


def _concluded(world: World, place: Place, **ends: Any) -> Verdict:
    """Wait until nothing waits for the store, stop the collector, and judge both datasets."""
    deadline_s = time.monotonic() + PATIENCE_S
    while world.collector.metric("pool_collector_store_waiting_files") != 0:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the store still lacks files: {world.collector.said[-600:]}")
        time.sleep(0.2)
    verdict = world.conclude(**ends)
    dataset = world.collector.dataset
    sealed = {
        path.relative_to(dataset).as_posix(): path.read_bytes()
        for path in [*dataset.glob("chain=regtest/*/*/*.parquet"), dataset / "dataset.json"]
    }
    stored = place.contents()
    listed = FileList.read(stored.pop(list_path("regtest")), place.address).files
    verdict.wrong("sealed files that the store lacks", sealed.keys() - stored.keys())
    verdict.wrong("objects that are no sealed files", stored.keys() - sealed.keys())
    differ = [name for name in sealed.keys() & stored.keys() if sealed[name] != stored[name]]
    verdict.wrong("objects that differ from their files", differ)
    named = {f"chain=regtest/{name}" for name in listed} | {"dataset.json"}
    verdict.wrong("files that the list names or leaves out wrongly", named ^ sealed.keys())
    verdict.figures |= {"files in the store": len(listed), "puts": place.gate.n_puts()}
    return verdict


def _some(world: World, *choices: Fault, share: float = 0.5) -> Fault:
    """Return a fault that plays one of `choices` on a random share of the requests."""

    def trouble(handler: Handler) -> bool:
        return world.draw.random() < share and world.draw.choice(choices)(handler)

    return trouble


def _for_puts(trouble: Fault) -> Fault:
    return lambda handler: handler.command == "PUT" and trouble(handler)


@fault(
    "store_busy",
    "the object store into which the collector seals answers half of all requests with 503 for a while",
    n_coins=12_000,
)
def store_busy(world: World) -> Verdict:
    """Let the store be overloaded."""
    return _play(world, _some(world, busy))


@fault("store_slow", "the object store takes up to 2 s for each answer for a while", n_coins=12_000)
def store_slow(world: World) -> Verdict:
    """Let every request wait."""

    def slow(_: Handler) -> bool:
        time.sleep(world.draw.uniform(0, SLOWEST_S))
        return False

    return _play(world, slow)


@fault(
    "store_cut",
    "the connection to the object store breaks in half of all puts: in the file, or before the answer",
    n_coins=12_000,
)
def store_cut(world: World) -> Verdict:
    """Lose the connection within puts, of files and of the list."""
    return _play(world, _for_puts(_some(world, cut, answer_lost)))


@fault(
    "store_away",
    "the object store cannot be reached for a while; collecting goes on, and sealed files wait",
    n_coins=12_000,
)
def store_away(world: World) -> Verdict:
    """Lose the network, as a full disk: nothing is lost, and metrics and readiness say so."""

    def away(handler: Handler) -> bool:
        handler.hang_up()
        return True

    return _play(world, away, must_block=True)


def _killed(world: World, before: Callable[[Place], None]) -> Verdict:
    """Kill the collector at a random put, several times; `before` prepares the gate for each start."""
    place, traffic, collector = _store(world), world.traffic, world.collector
    traffic.begin()
    collector.start()
    n_kills = max(2, round(N_KILLS * world.scale))

    def kill(handler: Handler) -> bool:
        body = handler.body()
        if world.draw.random() < 0.5:  # the put is done, or is not
            handler.asked(body)
        if collector.status is None:
            collector.stop(signal.SIGKILL)
        handler.hang_up()
        return True

    for _ in range(n_kills):
        before(place)
        passed = [lambda _: False] * world.draw.randrange(8)
        place.gate.at("PUT", f"/{place.bucket}/", *passed, kill)
        until_s = time.monotonic() + PATIENCE_S
        while collector.status is None and time.monotonic() < until_s:
            time.sleep(0.05)
        assert collector.status is not None, "no put came: this was no fault"
        place.gate.faults.clear()
        collector.start()
    traffic.end()
    world.facts["kills"] = n_kills
    return _concluded(world, place, must_end=["killed"])


@fault(
    "store_killed",
    "SIGKILL of the collector within 20 random puts into the object store, of files and of the list",
    n_coins=20_000,
)
def store_killed(world: World) -> Verdict:
    """Kill during uploads; the next start goes on with them."""
    return _killed(world, lambda _: None)


@fault(
    "store_lists_late",
    "the object store lists what it had a while ago, at starts after SIGKILL within random puts",
    n_coins=20_000,
)
def store_lists_late(world: World) -> Verdict:
    """Let each start see the listing that the start before it saw."""
    earlier: list[tuple[int, dict[str, str], bytes]] = []

    def late(handler: Handler) -> bool:
        earlier.append(handler.asked(handler.body()))
        handler.answer(*earlier[max(0, len(earlier) - 2)])
        return True

    return _killed(world, lambda place: place.gate.at("GET", "list-type=2", late))
