"""Test stop and start of a collector far behind its node: memory is bounded, each message has one row."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from collector.check.model import BREACH
from collector.check.run import check
from collector.config import NodeSettings, Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from collector.journal.batches import Batches
from collector.mempool import entries
from collector.receive import source as zmq_source
from collector.regtest import RegtestNode, make_wallet
from collector.service import session
from collector.service.session import Limits
from tests.functional.chaos.network import Proxy
from tests.functional.conftest import Witness
from tests.functional.replay import send
from tests.functional.running import DEADLINE_S, collecting, wait_for_log

pytestmark = pytest.mark.bitcoind
T = TypeVar("T")
N_PAYMENTS = 100  # each is two messages
MOST, FORWARDED, INBOX = 60, 5, 10
ON_THE_WAY = INBOX + FORWARDED + 1  # one more, since the first of a turn is taken before the others


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let sessions hold few messages; return a list that records how many wait for rows at each new batch."""
    monkeypatch.setattr(session, "LIMITS", Limits(n_messages=MOST))
    monkeypatch.setattr(session, "GATHER_ITEMS", FORWARDED)
    monkeypatch.setattr(entries, "GIVE_UP_US", 500_000)
    monkeypatch.setattr(zmq_source, "MAX_TAKEN", FORWARDED)
    monkeypatch.setattr(zmq_source, "MAX_INBOX_ITEMS", INBOX)
    noted: list[int] = []

    def noting(begin: Callable[..., T]) -> Callable[..., T]:
        def begin_and_note(batches: Batches, *arguments: Any) -> T:
            begun = begin(batches, *arguments)
            noted.append(batches.n_messages)
            return begun

        return begin_and_note

    monkeypatch.setattr(Batches, "begin", noting(Batches.begin))
    monkeypatch.setattr(Batches, "begin_recovered", noting(Batches.begin_recovered))
    return noted


@pytest.fixture
def proxy(node: RegtestNode) -> Iterator[Proxy]:
    """Start a proxy in front of the node's RPC."""
    standing = Proxy(int(urlsplit(node.rpc_url).port or 0))
    yield standing
    standing.close()


def settings_through(proxy: Proxy, node: RegtestNode, dataset: Path) -> Settings:
    """Return settings for a node whose RPC is reached through the proxy."""
    watched = NodeSettings(
        name="alpha", rpc_url=f"http://127.0.0.1:{proxy.port}", cookie_file=node.cookie_path
    )
    return Settings(chain="regtest", dataset=dataset, node=(watched,), watchdog_interval_s=600)


def wait_for_ring(dataset: Path, n_waiting: int) -> None:
    """Wait until at least `n_waiting` messages are in the ring and not in the journal yet."""
    (ring,) = dataset.glob("journal/regtest/alpha/*.ring")
    deadline = time.monotonic() + DEADLINE_S
    while True:
        words = memoryview(ring.read_bytes()[:64]).cast("Q")
        if words[3] - words[4] >= n_waiting:  # put and released
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def behind(
    settings: Settings, node: RegtestNode, witness: Witness, proxy: Proxy, fault: str
) -> Iterator[tuple[list[Any], int]]:
    """Collect while the proxy is in mode `fault`, until many messages wait in the ring; stop at the end.

    Yields the log, and how many messages the witness had received before.
    """
    wallet = make_wallet(node, N_PAYMENTS, seed=11)
    witness.wait_for_tip(node.client())  # of the wallet
    n_before = len(witness.messages)
    with collecting(settings) as logs:
        wait_for_log(logs, "mempool.in_step")
        proxy.set(fault)
        send(node.client(), wallet, N_PAYMENTS)
        wait_for_ring(settings.dataset, N_PAYMENTS // 2)
        yield logs, n_before


def verify(dataset_folder: Path, witness: Witness, events: slice) -> list[dict[str, Any]]:
    """Assert that the first session's events equal the witness's; return its rows of `mempool_txs`.

    `events` selects the witness's messages of that session.
    """
    dataset = Dataset.open(dataset_folder, "regtest")
    assert [each for each in check(dataset) if each.status == BREACH] == []
    first = min(row["session"] for row in dataset.read(TABLES["nodes"]).to_pylist())
    rows = {
        name: [row for row in dataset.read(TABLES[name]).to_pylist() if row["session"] == first]
        for name in ("mempool_events", "mempool_txs")
    }
    messages = witness.messages[events]
    heard = sorted((counter, body[:32], body[32:33].decode()) for counter, body in messages)
    there = sorted((row["sequence"], row["hash"][::-1], row["event"]) for row in rows["mempool_events"])
    assert there == heard
    return rows["mempool_txs"]


def test_a_stop_takes_the_ring_in_turns(
    node: RegtestNode, witness: Witness, proxy: Proxy, waiting: list[int], tmp_path: Path
) -> None:
    """After the node hung and messages piled up in the ring, a stop takes them all in bounded turns."""
    dataset = tmp_path / "dataset"
    with behind(settings_through(proxy, node, dataset), node, witness, proxy, "hang") as (_, n_before):
        proxy.set("pass")
    rows = verify(dataset, witness, slice(n_before, None))
    assert len(rows) == N_PAYMENTS
    assert all(row["fee_sat"] for row in rows)
    assert MOST / 2 < max(waiting) <= MOST + 2 * ON_THE_WAY  # a turn, and what came meanwhile
    node.client().call("generatetodescriptor", 1, "raw(51)")


def test_a_stop_without_the_node_leaves_the_ring_to_the_next_start(
    node: RegtestNode, witness: Witness, proxy: Proxy, waiting: list[int], tmp_path: Path
) -> None:
    """A stop without the node ends with status 0; the next start takes the rest from the ring.

    All transactions then have their fees.
    """
    dataset = tmp_path / "dataset"
    settings = settings_through(proxy, node, dataset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "FINISH_S", 1.0)  # so long the stop waits for a node that does not answer
        with behind(settings, node, witness, proxy, "refuse") as (logs, n_before):
            pass
    assert [entry for entry in logs if entry["event"] == "session.left"]
    n_events = len(witness.messages) - n_before
    node.client().call("generatetodescriptor", 1, "raw(51)")  # mines them all: the mempool has no fees now
    proxy.set("pass")
    assert list(dataset.glob("journal/regtest/alpha/*.ring"))
    with collecting(settings) as logs:
        wait_for_log(logs, "mempool.in_step")
    rows = verify(dataset, witness, slice(n_before, n_before + n_events))
    assert sum(row["first_seen_kind"] == "pushed" for row in rows) == N_PAYMENTS
    assert all(row["fee_sat"] for row in rows)
    assert MOST / 2 < max(waiting) <= MOST + 2 * ON_THE_WAY
    assert not list(dataset.glob("journal/regtest/alpha/*.ring"))
