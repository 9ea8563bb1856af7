"""Define faults of hostile data: ZMQ messages that no node sends, and blocks as odd as consensus allows."""

import threading
import time
from collections.abc import Callable

import zmq

from collector.regtest.mining import MAX_TAG_BYTES, build_block, submit, take_template
from collector.regtest.scripts import COIN_KINDS
from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput
from collector.regtest.wallet import Coin
from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.memory_use import memory_use
from tests.functional.chaos.recorder import TOPICS
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

Frames = list[bytes]
GARBLED_RATIO = 0.02
COUNTER = b"\x07\x00\x00\x00"
ODD_COUNTERS = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f")
GIANTS_MAY_TAKE_BYTES = 100_000_000
N_DRAWN = 8  # malformed messages, counters and tags, beside those that are listed
MALFORMED: tuple[Frames, ...] = (
    [b"sequence"],
    [b"sequence", b"x" * 41],
    [b"sequence", b"", b""],
    [b"sequence", b"x" * 41, b"\x01"],
    [b"sequence", b"x" * 41, b"\x01\x00\x00"],
    [b"sequence", b"x" * 41, COUNTER + b"\x00"],
    [b"sequence", b"x" * 41, COUNTER * 2],
    [b"sequence", b"x" * 41, COUNTER, b""],
    [b"sequence", b"x", b"y", b"z", COUNTER],
    [b"sequencer", b"x" * 41, COUNTER],
    [b"sequence\x00\xff\x1b[2J", b"x" * 41, COUNTER],
    [b"rawtx\n", b"", COUNTER],
    [b"rawtxs" + b"t" * 100_000, b"", COUNTER],
    [b"rawblock", b"\x00" * 8_000_000],
    [b"rawblock", b"", COUNTER[:3]],
    [b"rawtx"] + [b"f"] * 2000,
)
TAGS = (
    b"\x1b[2J\x1b]0;owned\x07\r\n",
    b"<script>alert(1)</script>",
    b"=cmd|' /C calc'!A0",
    b"\xff\xfe\x80\xc3\x28 not utf-8",
    b"../../etc/passwd\x00",
    bytes(range(32)) + b"\x7f\x9b",
    "七彩神仙鱼\u202e\u2066".encode(),
    b"'; DROP TABLE blocks; --",
    b"\x4c" * MAX_TAG_BYTES,
    b"",
)


class Relay:
    """Forwards a node's messages to the collector after a call of `change`, and sends messages of its own."""

    def __init__(self, world: World) -> None:
        self.change: Callable[[Frames], Frames] = lambda frames: frames
        self._context = zmq.Context()
        self._sub = self._context.socket(zmq.SUB)
        self._pub = self._context.socket(zmq.PUB)
        self._sub.set(zmq.RCVHWM, 0)
        self._pub.set(zmq.SNDHWM, 0)
        for topic in TOPICS:
            self._sub.subscribe(topic)
            self._sub.connect(world.node.zmq_endpoints[topic])
        port = self._pub.bind_to_random_port("tcp://127.0.0.1")
        self.endpoints = dict.fromkeys(TOPICS, f"tcp://127.0.0.1:{port}")
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay")
        self._thread.start()
        world.at_end(self.close)

    def send(self, frames: Frames) -> None:
        """Publish a message that the node has not sent."""
        with self._lock:
            self._pub.send_multipart(frames)

    def close(self) -> None:
        """Stop forwarding and close all sockets."""
        self._stopping.set()
        self._thread.join()
        self._context.destroy(0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._sub.poll(50):
                self.send(self.change(self._sub.recv_multipart()))


def _relayed(world: World) -> Relay:
    relay = Relay(world)
    world.new_collector(node_settings={"zmq": relay.endpoints}).start()
    return relay


@fault(
    "malformed_messages",
    "messages of too few or many frames, odd counters, invalid topics and 8 MB bodies beside the real ones",
    n_coins=4000,
)
def malformed_messages(world: World) -> Verdict:
    """Send malformed messages under traffic; each becomes a reject, and no real message is lost."""
    relay = _relayed(world)
    world.traffic.begin()
    malformed = [*MALFORMED, *(_draw_malformed(world) for _ in range(N_DRAWN))]
    world.draw.shuffle(malformed)
    for frames in malformed:
        relay.send(frames)
        time.sleep(0.1)
    world.traffic.end()
    verdict = world.conclude()
    if verdict.figures["rejects"] != len(malformed):
        verdict.faults.append(
            f"{len(malformed)} malformed messages were sent, {verdict.figures['rejects']} are rejects"
        )
    return verdict


def _draw_malformed(world: World) -> Frames:
    """Return a random message with a wrong number of frames, or with a counter of a wrong length."""
    draw = world.draw
    n_frames = draw.choice([0, 1, 2, 3, 4, 9])
    frames = [draw.randbytes(draw.randrange(100)) for _ in range(n_frames)]
    if n_frames == 2:
        frames[1] = draw.randbytes(draw.choice([0, 1, 3, 5, 8, 80]))
    return [draw.choice(TOPICS).encode(), *frames]


@fault(
    "garbled_bodies",
    "real messages whose bodies are cut, lengthened, flipped, emptied or given numbers of 2^63 and more",
    n_coins=4000,
)
def garbled_bodies(world: World) -> Verdict:
    """Damage one message body in fifty; an unreadable one becomes a reject, its content is fetched by RPC."""
    relay = _relayed(world)
    n_garbled = 0

    def garble(frames: Frames) -> Frames:
        nonlocal n_garbled
        body = frames[1]
        if world.draw.random() < GARBLED_RATIO:
            n_garbled += 1
            kind = world.draw.randrange(4)
            if kind == 0:
                body = body[: world.draw.randrange(len(body))]
            elif kind == 1:
                body += world.draw.randbytes(world.draw.randrange(1, 40))
            elif kind == 2:
                body = b""
            elif frames[0] == b"sequence" and len(body) > 33 and world.draw.random() < 0.5:
                body = body[:33] + world.draw.randbytes(7) + bytes([world.draw.randrange(0x80, 0x100)])
            elif frames[0] == b"sequence":
                body = body[:32] + b"Z" + body[33:]
            else:
                body = bytes([body[0] ^ 0xFF]) + b"\xff" * 9 + body[10:]
        return [frames[0], body, frames[2]]

    relay.change = garble
    world.traffic.busy(max(2.0, 6 * world.scale))
    relay.change = lambda frames: frames
    world.traffic.busy(1)
    world.facts["bodies garbled"] = n_garbled
    return world.conclude(may_end=["gap", "resync"])


@fault(
    "giant_frames",
    "a publisher sends frames of 9 to 200 MB, which no node sends; memory must stay bounded",
    n_coins=4000,
)
def giant_frames(world: World) -> Verdict:
    """Send giant frames under traffic: each is a reject, and the connection ends, is named and comes back."""
    relay = _relayed(world)
    collector = world.collector
    world.traffic.begin()
    time.sleep(world.about(1))
    before = memory_use(collector.processes).private
    most = before
    n_sent = max(1, round(4 * world.scale))
    for _ in range(n_sent):
        size = world.draw.randrange(9_000_000, 200_000_000)
        relay.send([world.draw.choice(TOPICS).encode(), bytes(size), world.draw.randbytes(4)])
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            most = max(most, memory_use(collector.processes).private)
            time.sleep(0.05)
        collector.wait_in_step()
    world.traffic.end()
    world.facts["private MB, before and most"] = [round(before / 1e6), round(most / 1e6)]
    verdict = world.conclude(must_end=["reconnect"], may_end=["gap"])
    if verdict.figures["rejects"] < n_sent:
        verdict.faults.append(f"{n_sent} giant frames were sent, {verdict.figures['rejects']} are rejects")
    if most - before > GIANTS_MAY_TAKE_BYTES:
        verdict.faults.append(f"giant frames take {(most - before) / 1e6:.0f} MB of memory")
    return verdict


@fault(
    "odd_counters",
    "counters that jump ahead, step back, repeat and wrap, with the real messages between them",
    n_coins=6000,
)
def odd_counters(world: World) -> Verdict:
    """Send counters that do not fit, under bodies that say nothing; each is a hole with a name."""
    relay = _relayed(world)
    world.traffic.begin()
    for topic in TOPICS:
        counters = [*ODD_COUNTERS, world.draw.randbytes(4)]
        world.draw.shuffle(counters)
        for counter in counters:
            time.sleep(world.about(1))
            relay.send([topic.encode(), bytes(80), counter])
    time.sleep(1)
    world.traffic.end()
    return world.conclude(may_end=["gap", "node_restart", "resync"])


@fault(
    "hostile_blocks",
    "blocks with control characters and foreign text in coinbases, and transactions that no policy lets pass",
    n_coins=500,
)
def hostile_blocks(world: World) -> Verdict:
    """Mine hostile blocks on the real node; every column must equal what the node says."""
    world.collector.start()
    drawn = [world.draw.randbytes(world.draw.randrange(1, MAX_TAG_BYTES)) for _ in range(N_DRAWN)]
    tags = [*TAGS, *drawn]
    world.draw.shuffle(tags)
    for number, tag in enumerate(tags):
        world.traffic.send(3)
        block = build_block(
            take_template(world.rpc),
            [],
            tag=tag,
            payout_script=(b"", b"\x6a", b"\x4e\xff\xff\xff\xff", b"\x51" * 9_999)[number % 4],
            extranonce=number,
        )
        submit(world.rpc, block)
        time.sleep(0.1)
    strange = _strange_transactions(world)
    for raw in strange:
        world.rpc.call("generateblock", "raw(51)", [raw.hex()])
    world.facts["transactions"] = len(strange)
    return world.conclude()


def _strange_transactions(world: World) -> list[bytes]:
    """Return serialised transactions that are valid but that nodes do not relay."""

    def coin(kind: str) -> Coin:
        while (taken := world.traffic.coin()).kind.name != kind:
            pass
        return taken

    def spend(kind: str, outputs: list[TxOutput], **changed: object) -> RegtestTransaction:
        spent = coin(kind)
        made = TxInput(spent.txid, spent.vout, spent.kind.script_sig, spent.kind.witness)
        if "annex" in changed:
            made = TxInput(spent.txid, spent.vout, b"", (*spent.kind.witness, bytes(changed["annex"])))  # type: ignore[arg-type] # bytes
        return RegtestTransaction((made,), tuple(outputs), locktime=int(changed.get("locktime", 0)))  # type: ignore[call-overload] # int

    anyone = COIN_KINDS["p2wsh"].script
    scripts = [
        b"",
        b"\x6a" + b"\x00" * 9_000,
        b"\x4c",
        b"\x4d\xff",
        b"\x4e\xff\xff\xff\x7f",
        b"\x60\x28" + b"w" * 40,
    ]
    scripts += [
        b"\x00\x14" + b"k" * 20,
        b"\x51\x20" + b"t" * 32,
        b"\x52\x21" + b"\x02" * 33 + b"\x51\xae",
        b"\xff" * 40,
    ]
    made = [
        spend("p2wsh", [TxOutput(0, script) for script in scripts]),
        spend("p2wsh", [TxOutput(1, anyone)] * 5_000),
        spend("p2tr", [TxOutput(7, anyone)], annex=b"\x50" + b"\xee" * 1_000_000),
        spend("p2tr", [TxOutput(7, anyone)], annex=b"\x50"),
        spend("p2wsh", [TxOutput(0, b"")], locktime=1),
        RegtestTransaction(tuple(coin("p2sh").spend(0) for _ in range(30)), (TxOutput(5, b"\x51"),)),
    ]
    raws = [each.raw for each in made]
    for version in (0, 1, -1, -(2**31), 2**31 - 1):
        raw = spend("p2wsh", [TxOutput(1_000, anyone)]).raw
        raws.append(version.to_bytes(4, "little", signed=True) + raw[4:])
    return raws
