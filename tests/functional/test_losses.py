"""Test losses of messages and restarts of the node: coverage names the gap, lost facts are found again."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from collector.dataset.schema import ZMQ_TOPICS, hash_bytes
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.wallet import pay
from tests.functional.replay import mempool_by_rows, node_mempool, read, send, wait_published
from tests.functional.running import wait_until
from tests.functional.wires import Forwarder, Relay

pytestmark = pytest.mark.bitcoind
WATCHFUL = "watchdog_interval_s = 0.4\n"


@pytest.fixture
def relay(node: RegtestNode) -> Iterator[Relay]:
    """Start a relay that passes the node's messages to the collector and can lose them."""
    relaying = Relay(node)
    yield relaying
    relaying.close()


def test_lost_messages_are_named_and_made_good(
    node: RegtestNode, relay: Relay, new_collector: Callable[[], Any]
) -> None:
    """After a loss of events and a block, coverage has gaps, rows are pulled, and no block is missing."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=5)
    wait_published(rpc)
    collector = new_collector()
    collector.use(relay.endpoints)
    collector.start()
    rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 10)
    collector.wait_taken()
    relay.losing = {"sequence", "rawblock"}
    send(rpc, wallet, 5)
    (lost_block,) = rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 5)
    relay.wait_received(rpc)
    wait_until(lambda: relay.n_lost >= 12)
    relay.losing = set()
    assert relay.n_lost == 12
    before = collector.log.stat().st_size
    send(rpc, wallet, 3)
    rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 4)
    collector.wait_for("mempool.in_step", after=before)
    collector.wait_taken()
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    (session,) = {row["session"] for row in rows["nodes"]}
    ends = {(row["topic"], row["end_reason"]) for row in rows["coverage"]} - {
        (topic, reason) for topic in (*ZMQ_TOPICS, "mempool") for reason in ("sealed", "shutdown")
    }
    assert ends == {("sequence", "gap"), ("rawblock", "gap"), ("mempool", "gap")}
    assert mempool_by_rows(rows, session) == in_node
    pulled = [row for row in rows["mempool_events"] if row["kind"] == "pulled"]
    assert {row["event"] for row in pulled} >= {"R"}
    assert all(row["sequence"] < 0 for row in pulled)
    assert hash_bytes(lost_block) in {row["block_hash"] for row in rows["blocks"]}
    arrivals = [row for row in rows["block_arrivals"] if row["block_hash"] == hash_bytes(lost_block)]
    assert {row["kind"] for row in arrivals} == {"pulled"}


def test_broken_messages_are_kept_and_their_content_is_fetched(
    node: RegtestNode, relay: Relay, new_collector: Callable[[], Any]
) -> None:
    """Messages with a wrong byte become rejects; the transaction, event and block are fetched by RPC."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=8)
    wait_published(rpc)
    collector = new_collector()
    collector.use(relay.endpoints)
    collector.start()
    relay.mangling = {"rawtx": 4}  # the number of inputs, or the witness marker
    send(rpc, wallet, 4)
    collector.wait_taken()
    relay.mangling = {"rawblock": -6}  # in the last transaction
    (mined,) = rpc.call("generatetodescriptor", 1, "raw(51)")
    collector.wait_taken()
    relay.mangling = {"sequence": 32}  # the letter
    send(rpc, wallet, 3)
    collector.wait_for("message.rejected", after=collector.log.read_text().index("mempool.in_step"))
    collector.wait_taken()
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    assert sorted(row["topic"] for row in rows["rejects"]) == ["rawblock", "rawtx", "sequence"]
    (block,) = (row for row in rows["blocks"] if row["block_hash"] == hash_bytes(mined))
    assert (block["verdict"], block["source"]) == ("valid", "rpc")
    rejected = next(row["body"] for row in rows["rejects"] if row["topic"] == "rawblock")
    assert len(rejected) == block["size_bytes"]
    (session,) = {row["session"] for row in rows["nodes"]}
    assert mempool_by_rows(rows, session) == in_node
    assert all(row["n_inputs"] == 1 for row in rows["mempool_txs"])


def test_a_restarted_node_is_a_new_session(node: RegtestNode, new_collector: Callable[[], Any]) -> None:
    """When the node restarts, the session ends, and a second one begins with the mempool's transactions."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=6)
    wait_published(rpc)
    collector = new_collector()
    collector.start()
    send(rpc, wallet, 8)
    collector.wait_taken()
    before = collector.log.stat().st_size
    node.restart()
    collector.wait_for("session.started", after=before)
    collector.wait_for("mempool.in_step", after=collector.log.read_text().rindex("session.started"))
    send(rpc, wallet, 2)
    (mined,) = rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 1)
    collector.wait_taken()
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    first, second = sorted(rows["nodes"], key=lambda row: row["started_at"])
    reasons = {
        row["end_reason"]
        for row in rows["coverage"]
        if row["session"] == first["session"] and row["topic"] == "sequence"
    }
    assert reasons & {"reconnect", "node_restart"}
    assert mempool_by_rows(rows, second["session"]) == in_node
    assert any(row["first_seen_kind"] == "at_start" for row in rows["mempool_txs"])
    # The dataset begins with the first block that it saw come.
    assert [row["block_hash"] for row in rows["blocks"]] == [hash_bytes(mined)]


def test_a_restart_in_the_middle_of_a_turn_parts_the_sessions(
    node: RegtestNode, relay: Relay, new_collector: Callable[..., Any]
) -> None:
    """When messages of two runs of the node come in one burst, no event gets into the other run's session."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=16)
    wait_published(rpc)
    collector = new_collector("watchdog_interval_s = 10\n")  # not while messages are held back
    collector.use(relay.endpoints)
    collector.start()
    send(rpc, wallet, 6)
    collector.wait_taken()
    relay.holding = True
    send(rpc, wallet, 4)
    relay.wait_received(rpc)
    before = collector.log.stat().st_size
    node.restart()
    send(node.client(), wallet, 5)
    relay.wait_received(node.client())
    relay.holding = False
    collector.wait_for("session.ended", after=before)
    collector.wait_for("mempool.in_step", after=collector.log.read_text().rindex("session.ended"))
    send(node.client(), wallet, 3)
    collector.wait_taken()
    in_node = node_mempool(node.client())
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    first, second = sorted(row["session"] for row in rows["nodes"])
    events = {
        session: [
            row["mempool_sequence"]
            for row in sorted(rows["mempool_events"], key=lambda row: row["sequence"])
            if row["session"] == session and row["kind"] == "pushed" and row["event"] == "A"
        ]
        for session in (first, second)
    }
    assert len(events[first]) == 10
    assert events[first] == list(range(events[first][0], events[first][0] + 10))
    assert max(events[second]) < 100 > len(events[second]) > 0
    ends = [
        row["end_reason"]
        for row in sorted(rows["coverage"], key=lambda row: row["from_at"])
        if (row["session"], row["topic"]) == (first, "sequence") and row["end_reason"] != "sealed"
    ]
    # What the new run sent may be met as a loss or a new connection before it is known for a new run.
    assert ends[-1] == "node_restart"
    assert set(ends[:-1]) <= {"gap", "reconnect"}
    assert mempool_by_rows(rows, second) == in_node


@pytest.fixture
def forwarders(node: RegtestNode) -> Iterator[dict[str, Forwarder]]:
    """Start a forwarder for the connection of each topic."""
    made = {topic: Forwarder(node.zmq_endpoints[topic]) for topic in ZMQ_TOPICS}
    yield made
    for forwarder in made.values():
        forwarder.close()


def test_a_half_open_connection_is_found_and_made_anew(
    node: RegtestNode, forwarders: dict[str, Forwarder], new_collector: Callable[..., Any]
) -> None:
    """When connections stay open and carry nothing, the watchdog ends coverage and connects again."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=17)
    wait_published(rpc)
    collector = new_collector(WATCHFUL)
    collector.use({topic: forwarder.address for topic, forwarder in forwarders.items()})
    collector.start()
    send(rpc, wallet, 6)
    rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 6)
    collector.wait_taken()
    for forwarder in forwarders.values():
        forwarder.fall_silent()
    before = collector.log.stat().st_size
    send(rpc, wallet, 5)
    (hidden,) = rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 5)
    collector.wait_for("mempool.in_step", after=before)
    # The first look may still have heard of what came before the silence; in the next one nothing is heard.
    send(rpc, wallet, 2)
    collector.wait_for("zmq.connected", after=before)
    for _ in range(6):  # what follows shows that the new connections carry
        send(rpc, wallet, 1)
        rpc.call("generatetodescriptor", 1, "raw(51)")
        collector.wait_taken()
    send(rpc, wallet, 3)
    collector.wait_taken()
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    (session,) = {row["session"] for row in rows["nodes"]}
    ends = {(row["topic"], row["end_reason"]) for row in rows["coverage"]}
    assert ("sequence", "silent") in ends
    assert mempool_by_rows(rows, session) == in_node
    assert hash_bytes(hidden) in {row["block_hash"] for row in rows["blocks"]}
    assert any(row["kind"] == "pulled" for row in rows["mempool_events"])
    last = max(row["received_at"] for row in rows["mempool_events"] if row["kind"] == "pulled")
    assert any(row["kind"] == "pushed" and row["received_at"] > last for row in rows["mempool_events"])
    for row in rows["coverage"]:  # no claim reaches into the hole
        if row["end_reason"] == "silent" and row["topic"] == "sequence":
            assert row["to_at"] < last


def watching_five(node: RegtestNode, wallet: Any, new_collector: Callable[..., Any], relay: Relay) -> Any:
    """Start a collector with a frequent watchdog, and send it five transactions through the relay."""
    wait_published(node.client())
    collector = new_collector(WATCHFUL)
    collector.use(relay.endpoints)
    collector.start()
    send(node.client(), wallet, 5)
    return collector


def reasons(collector: Any) -> list[str]:
    """Return why the collector is not ready, as /readyz says it."""
    found: list[str] = requests.get(f"{collector.url}/readyz", timeout=5).json()["reasons"]
    return found


def has_reason(collector: Any, begin: str) -> bool:
    """Return whether one of the reasons why the collector is not ready begins so."""
    return any(reason.startswith(begin) for reason in reasons(collector))


def test_a_topic_that_falls_silent_alone_is_found(
    node: RegtestNode, relay: Relay, new_collector: Callable[..., Any]
) -> None:
    """If only `sequence` falls silent, its coverage ends, events are pulled, and coverage starts later."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=18)
    collector = watching_five(node, wallet, new_collector, relay)
    collector.wait_taken()
    relay.losing = {"sequence"}
    n_lost = 0
    while not has_reason(collector, "node alpha: nothing comes of sequence "):
        # The watchdog may first see that our mempool is not the node's; a later message shows the silence.
        assert n_lost < 30
        before = collector.log.stat().st_size
        send(rpc, wallet, 5)
        n_lost += 5
        collector.wait_for("watchdog.found", after=before)
        collector.wait_for("mempool.in_step", after=before)
    relay.losing = set()
    send(rpc, wallet, 5)
    collector.wait_taken()
    wait_until(lambda: not reasons(collector))
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    (session,) = {row["session"] for row in rows["nodes"]}
    assert mempool_by_rows(rows, session) == in_node
    events = sorted(rows["mempool_events"], key=lambda row: row["received_at"])
    assert [row["kind"] for row in events] == ["pushed"] * 5 + ["pulled"] * n_lost + ["pushed"] * 5
    # An interval of no length claims nothing: a snapshot opened it, and the next counter closed it again.
    intervals = [
        row
        for row in rows["coverage"]
        if row["topic"] in ("sequence", "mempool") and row["from_at"] < row["to_at"]
    ]
    for row in events:
        covering = {i["topic"] for i in intervals if i["from_at"] <= row["received_at"] <= i["to_at"]}
        assert ("sequence" in covering) == (row["kind"] == "pushed")
        assert row["kind"] == "pushed" or "mempool" not in covering


def test_a_loss_that_nothing_follows_is_found(
    node: RegtestNode, relay: Relay, new_collector: Callable[..., Any]
) -> None:
    """When the last messages before a pause are lost, no counter shows it, but the watchdog finds it."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=19)
    collector = watching_five(node, wallet, new_collector, relay)
    relay.wait_received(rpc)
    relay.losing = {"sequence"}
    before = collector.log.stat().st_size
    send(rpc, wallet, 3)
    collector.wait_for("mempool.in_step", after=before)
    collector.wait_taken()
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    (session,) = {row["session"] for row in rows["nodes"]}
    assert mempool_by_rows(rows, session) == in_node
    last_pushed = max(row["received_at"] for row in rows["mempool_events"] if row["kind"] == "pushed")
    broken = [row for row in rows["coverage"] if row["end_reason"] in ("gap", "silent")]
    assert {row["topic"] for row in broken} == {"sequence", "mempool"}
    assert all(row["to_at"] <= last_pushed for row in broken if row["topic"] == "sequence")


@pytest.mark.parametrize(("seed", "is_receiver_gone"), [(20, False), (21, True)], ids=["at once", "later"])
def test_what_was_mined_while_the_collector_was_down_has_its_fee(
    node: RegtestNode, new_collector: Callable[..., Any], seed: int, *, is_receiver_gone: bool
) -> None:
    """Mempool transactions of a killed run get their fees from blocks that were mined after the kill.

    The receiver outlives the kill for a moment: it receives some of the blocks that are mined at once.
    """
    rpc, wallet = node.client(), make_wallet(node, 11, seed=seed)
    rpc.call("generatetodescriptor", 1, "raw(51)")  # what other tests left in the mempool
    fees_sat = {}
    for _ in range(11):  # two more than full questions: these are not asked for before the kill
        payment = pay([wallet.take()], [], feerate_sat_vb=7)
        rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        fees_sat[payment.transaction.txid] = payment.fee_sat
    collector = new_collector("fee_batch = 3\nfee_interval_s = 600\n")
    collector.start()
    collector.wait_taken()
    collector.stop(signal.SIGKILL)
    if is_receiver_gone:
        collector.wait_receiver_ended()
    mined = [rpc.call("generatetodescriptor", 1, "raw(51)")[0] for _ in range(14)]
    collector.start()
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    found = {
        row["txid"]: row["fee_sat"] for row in rows["mempool_txs"] if row["first_seen_kind"] == "at_start"
    }
    assert found.items() >= fees_sat.items()
    assert {row["block_hash"] for row in rows["blocks"]} == {hash_bytes(name) for name in mined}
