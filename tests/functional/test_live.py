"""Test one recorded session of a busy node: the dataset holds what the node sent and what it answers."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from collector.codec.transaction import decode_transaction
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_TXS, TABLES, TRANSACTIONS, hash_bytes, hash_hex, satoshi
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.scripts import COIN_KINDS, PAYMENT_KINDS, payment_script
from collector.regtest.transaction import RegtestTransaction, TxOutput
from collector.regtest.wallet import Payment, Wallet, pay
from tests.collector.codec.node_rows import decoded_columns
from tests.collector.codec.plain_traits import plain_dust
from tests.functional.replay import wait_published

pytestmark = pytest.mark.bitcoind
ANYONE = "raw(51)"
ANYONE_ELSE = "raw(52)"
MULTISIG = b"\x51\x21\x02" + bytes(32) + b"\x51\xae"
DATA = b"\x6a\x4c\x4d" + bytes(77)
DUST_SAT = 100


@dataclass
class Story:
    """Records what was done to the node while the collector watched; hashes are in internal byte order."""

    fees_sat: dict[bytes, int] = field(default_factory=dict)  # of everything sent to the mempool
    at_start: set[bytes] = field(default_factory=set)
    raw: dict[bytes, bytes] = field(default_factory=dict)  # of everything sent or mined
    entries: dict[bytes, dict[str, Any]] = field(default_factory=dict)  # getmempoolentry, soon after
    replaced: dict[bytes, bytes] = field(default_factory=dict)
    conflicted: set[bytes] = field(default_factory=set)
    unseen: dict[bytes, int] = field(default_factory=dict)  # straight into a block, and their fees
    stale: bytes = b""
    hashes: list[str] = field(default_factory=list)  # of all blocks, stale ones included


@dataclass
class Recorded:
    """Holds the dataset of the session, its log, the witness's messages, and the record of what was done."""

    story: Story
    rows: dict[str, list[dict[str, Any]]]
    witnessed: list[tuple[int, bytes]]
    log: str
    dataset: Path


class Actor:
    """Acts on the node and records each act in `story`."""

    def __init__(self, rpc: RpcClient, wallet: Wallet) -> None:
        self.rpc = rpc
        self.wallet = wallet
        self.story = Story()

    def send(self, payment: Payment) -> bytes:
        """Send a payment to the mempool, record its fee, and return its txid."""
        self.rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        txid = payment.transaction.txid
        self.story.raw[txid] = payment.transaction.raw
        self.story.fees_sat[txid] = payment.fee_sat
        return txid

    def ask(self, *txids: bytes) -> None:
        """Record the node's getmempoolentry answers for these txids."""
        answers = self.rpc.batch([("getmempoolentry", hash_hex(txid)) for txid in txids])
        self.story.entries |= dict(zip(txids, answers, strict=True))

    def mine(self, descriptor: str = ANYONE, n_blocks: int = 1) -> None:
        """Mine blocks with the mempool's transactions, paying to this descriptor."""
        self.story.hashes += self.rpc.call("generatetodescriptor", n_blocks, descriptor)

    def mine_only(self, *transactions: bytes) -> None:
        """Mine a block of these transactions alone."""
        self.story.raw |= {decode_transaction(transaction).txid: transaction for transaction in transactions}
        raw = [transaction.hex() for transaction in transactions]
        self.story.hashes.append(self.rpc.call("generateblock", ANYONE, raw)["hash"])


def usual_outputs() -> list[TxOutput]:
    """Make one output of each kind that nodes relay."""
    kinds = {kind: payment_script(kind, kind.encode()) for kind in PAYMENT_KINDS}
    values_sat = {kind: 0 if kind == "op_return" else 1000 for kind in kinds}
    return [TxOutput(values_sat[kind], script) for kind, script in kinds.items()]


def strange_outputs() -> list[TxOutput]:
    """Make outputs that nodes of the usual policy do not relay: dust, and two of data."""
    dust = [TxOutput(DUST_SAT, script) for script in (COIN_KINDS["p2a"].script, MULTISIG, b"\x51")]
    return [*dust, TxOutput(0, b"\x6a"), TxOutput(0, DATA)]


def late(payment: Payment) -> Payment:
    """Return a payment with a lock time; its inputs are final, so that it may be mined at once."""
    old = payment.transaction
    return replace(payment, transaction=RegtestTransaction(old.inputs, old.outputs, locktime=1_600_000_000))


def act(actor: Actor, wait_complete: Callable[[], None]) -> None:
    """Make chains, a replacement, a conflict, unseen transactions, quick blocks and a reorganisation.

    `wait_complete` waits until the collector has made the rows of all that the node has published.
    """
    wallet = actor.wallet
    payments = [pay([wallet.take()], [], feerate_sat_vb=2 + n % 30, replaceable=True) for n in range(60)]
    for payment in payments:
        actor.send(payment)
    children = [pay([payment.change], [], feerate_sat_vb=9) for payment in payments[:10]]
    sent = [actor.send(child) for child in children]
    actor.ask(*(payment.transaction.txid for payment in payments[20:]), *sent)
    actor.send(late(pay([wallet.take()], usual_outputs(), feerate_sat_vb=9)))
    wait_complete()

    victim = payments[-1]
    better = pay(victim.spent, [], feerate_sat_vb=90, replaceable=True)
    actor.story.replaced[victim.transaction.txid] = actor.send(better)
    wait_complete()
    actor.mine()

    hasty = pay([wallet.take()], [], feerate_sat_vb=50)  # mined before its fee is asked for
    actor.send(hasty)
    actor.mine()

    doomed = pay([wallet.take()], [], feerate_sat_vb=5, replaceable=True)
    heir = pay([doomed.change], [], feerate_sat_vb=5)
    actor.story.conflicted = {actor.send(doomed), actor.send(heir)}
    wait_complete()
    rival = pay(doomed.spent, [], feerate_sat_vb=70)
    secret = pay([wallet.take()], strange_outputs(), feerate_sat_vb=3)
    actor.story.unseen = {each.transaction.txid: each.fee_sat for each in (rival, secret)}
    actor.mine_only(rival.transaction.raw, secret.transaction.raw)

    for _ in range(5):
        actor.send(pay([wallet.take()], [], feerate_sat_vb=20))
    actor.mine()
    wait_complete()
    stale = actor.rpc.call("getbestblockhash")
    actor.story.stale = hash_bytes(stale)
    actor.rpc.call("invalidateblock", stale)
    actor.mine(ANYONE_ELSE, n_blocks=3)
    actor.send(pay([wallet.take()], [], feerate_sat_vb=4))
    wait_complete()


@pytest.fixture(scope="module")
def recorded(node: RegtestNode, witness: Any, new_collector: Callable[[], Any]) -> Recorded:
    """Run the collector while the actor acts, and end it by SIGTERM."""
    actor = Actor(node.client(), make_wallet(node, 200, seed=7))
    for _ in range(12):
        actor.story.at_start.add(actor.send(pay([actor.wallet.take()], [], feerate_sat_vb=6)))
    actor.ask(*actor.story.at_start)
    wait_published(actor.rpc)
    collector = new_collector()
    collector.start()
    n_before = len(witness.messages)
    act(actor, collector.wait_complete)
    collector.wait_statistics()
    assert collector.stop() == 0, collector.log.read_text()
    dataset = Dataset.open(collector.dataset, "regtest")
    rows = {name: dataset.read(table).to_pylist() for name, table in TABLES.items()}
    log = collector.log.read_text()
    return Recorded(actor.story, rows, witness.messages[n_before:], log, collector.dataset)


def by_hash(rows: list[dict[str, Any]], column: str) -> dict[bytes, dict[str, Any]]:
    """Index rows by the hash in `column`; fail if a hash occurs twice."""
    found = {row[column]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_events_are_the_topic_message_by_message(recorded: Recorded) -> None:
    """Counter, letter, hash and mempool sequence of every event equal what a second subscriber received."""
    rows = sorted(recorded.rows["mempool_events"], key=lambda row: row["sequence"])

    def body(row: dict[str, Any]) -> bytes:
        number = row["mempool_sequence"]
        tail = b"" if number is None else number.to_bytes(8, "little")
        return bytes(row["hash"][::-1] + row["event"].encode() + tail)

    assert [(row["sequence"], body(row)) for row in rows] == recorded.witnessed
    assert {row["kind"] for row in rows} == {"pushed"}
    times = [row["received_at"] for row in rows]
    assert times == sorted(times)


def test_every_entry_has_its_fee(recorded: Recorded) -> None:
    """Each transaction has one row for each time it entered the mempool, with the fee that it pays."""
    rows = [row for row in recorded.rows["mempool_txs"] if row["first_seen_kind"] != "in_block"]
    assert {row["txid"] for row in rows} == set(recorded.story.fees_sat)
    for row in rows:
        assert row["fee_sat"] == recorded.story.fees_sat[row["txid"]], row
    added = Counter(row["hash"] for row in recorded.rows["mempool_events"] if row["event"] == "A")
    pushed = Counter(row["txid"] for row in rows if row["first_seen_kind"] == "pushed")
    assert pushed == added
    assert {row["txid"] for row in rows if row["first_seen_kind"] == "at_start"} == recorded.story.at_start


def test_entries_equal_what_the_node_says(recorded: Recorded) -> None:
    """Sizes, ancestors and parents equal the getmempoolentry answers that the test got at the same time."""
    rows = {row["txid"]: row for row in recorded.rows["mempool_txs"]}
    assert recorded.story.entries
    for txid, entry in recorded.story.entries.items():
        row = rows[txid]
        assert row["fee_source"] == "mempool_entry"
        assert row["vsize_vb"] == entry["vsize"]
        assert row["weight_wu"] == entry["weight"]
        assert row["wtxid"] == hash_bytes(entry["wtxid"])
        assert row["ancestor_count"] == entry["ancestorcount"]
        assert row["ancestor_vsize_vb"] == entry["ancestorsize"]
        assert row["ancestor_fees_sat"] == satoshi(entry["fees"]["ancestor"])
        assert row["parents"] == [hash_bytes(parent) for parent in entry["depends"]]
        assert int(row["node_entered_at"].timestamp()) == entry["time"]
        assert row["n_inputs"] == 1
        assert row["size_bytes"] >= row["weight_wu"] / 4


def said_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of `mempool_txs` that follow from an answer of decoderawtransaction."""
    scripts = [bytes.fromhex(output["scriptPubKey"]["hex"]) for output in answer["vout"]]
    values_sat = [satoshi(output["value"]) for output in answer["vout"]]
    return {
        **decoded_columns(answer),
        "op_return_bytes": max((len(script) for script in scripts if script.startswith(b"\x6a")), default=0),
        "n_dust_outputs": sum(map(plain_dust, values_sat, scripts)),
        "n_envelopes": 0,
        "envelope_bytes": 0,
    }


def test_columns_of_the_bytes_equal_what_the_node_decodes(recorded: Recorded, node: RegtestNode) -> None:
    """Whatever an entry's row has of its transaction's bytes is what decoderawtransaction answers.

    That holds for entries of every kind: `pushed`, `at_start` and `in_block`.
    """
    raw = recorded.story.raw
    answers = node.client().batch([("decoderawtransaction", each.hex()) for each in raw.values()])
    said = {txid: said_of(answer) for txid, answer in zip(raw, answers, strict=True)}
    rows = recorded.rows["mempool_txs"]
    assert {row["txid"] for row in rows} == set(said)
    for row in rows:
        wanted = said[row["txid"]]
        assert {name: row[name] for name in wanted} == wanted
    kinds = {type_ for row in rows for type_ in row["output_types"]}
    assert kinds >= {"multisig", "anchor", "nonstandard", "nulldata", "witness_unknown", "pubkeyhash"}
    assert max(row["n_dust_outputs"] for row in rows) == 3
    assert max(row["op_return_bytes"] for row in rows) == len(DATA)
    assert {row["first_seen_kind"] for row in rows} == {"pushed", "at_start", "in_block"}


def test_an_entry_and_its_transaction_in_a_block_have_the_same_columns(recorded: Recorded) -> None:
    """What `mempool_txs` and `transactions` both have is equal, for every entry that was mined.

    What an entry spends is known if the node told of it while it waited.
    """
    names = {column.name for column in MEMPOOL_TXS.columns} & {column.name for column in TRANSACTIONS.columns}
    names.remove("parents")  # by txid in the mempool, by position in the block
    assert len(names) > 15
    of_spent = {"spent_types", "sigop_cost"}
    mined = {row["txid"]: row for row in recorded.rows["transactions"]}
    entries = [row for row in recorded.rows["mempool_txs"] if row["txid"] in mined]
    assert len(entries) > 80
    for row in entries:
        known = names if row["sigop_cost"] is not None else names - of_spent
        assert {name: row[name] for name in known} == {name: mined[row["txid"]][name] for name in known}
    told = [
        row for row in entries if row["first_seen_kind"] == "pushed" and row["fee_source"] == "mempool_entry"
    ]
    assert len(told) > 50
    assert all(row[name] is not None for row in told for name in of_spent)
    assert len({row["sigop_cost"] for row in told}) > 1


def test_signature_operations_of_an_entry_are_those_of_the_nodes_template(recorded: Recorded) -> None:
    """The node counts them for its templates by itself."""
    stated = {row["txid"]: row["n_sigops"] for row in recorded.rows["template_txs"]}
    ours = {row["txid"]: row["sigop_cost"] for row in recorded.rows["mempool_txs"]}
    both = {txid for txid in stated if ours[txid] is not None}
    assert both
    assert {txid: ours[txid] for txid in both} == {txid: stated[txid] for txid in both}


def test_removals_have_their_reason(recorded: Recorded) -> None:
    """A replaced transaction names its replacement; one that conflicts with a block is a conflict.

    So is the child of a transaction that conflicts with a block.
    """
    removed = by_hash([row for row in recorded.rows["mempool_events"] if row["event"] == "R"], "hash")
    replaced = {
        txid: row["replaced_by"] for txid, row in removed.items() if row["removal_reason"] == "replaced"
    }
    assert replaced == recorded.story.replaced
    conflicts = {txid for txid, row in removed.items() if row["removal_reason"] == "conflict"}
    assert conflicts == recorded.story.conflicted
    assert set(removed) == set(replaced) | conflicts


def test_what_never_waited_is_seen_in_its_block(recorded: Recorded) -> None:
    """Transactions that only came in a block have a row of kind `in_block`, with the fee from the block."""
    rows = [row for row in recorded.rows["mempool_txs"] if row["first_seen_kind"] == "in_block"]
    assert {row["txid"]: row["fee_sat"] for row in rows} == recorded.story.unseen
    assert {row["fee_source"] for row in rows} == {"block"}


def test_blocks_and_transactions_are_the_nodes(recorded: Recorded, node: RegtestNode) -> None:
    """Every block, stale ones included, and every number in it equal getblock and getblockstats."""
    rpc = node.client()
    blocks = by_hash(recorded.rows["blocks"], "block_hash")
    assert {hash_bytes(name) for name in recorded.story.hashes} <= set(blocks)
    for block_hash, row in blocks.items():
        verbose = rpc.call("getblock", hash_hex(block_hash), 3)
        assert row["verdict"] == "valid"
        assert (row["height"], row["n_tx"]) == (verbose["height"], len(verbose["tx"]))
        assert (row["size_bytes"], row["weight_wu"]) == (verbose["size"], verbose["weight"])
        assert row["prev_hash"] == hash_bytes(verbose["previousblockhash"])
        mine = sorted(
            (each for each in recorded.rows["transactions"] if each["block_hash"] == block_hash),
            key=lambda each: each["tx_index"],
        )
        assert [each["txid"] for each in mine] == [hash_bytes(each["txid"]) for each in verbose["tx"]]
        assert [each["fee_sat"] for each in mine[1:]] == [satoshi(each["fee"]) for each in verbose["tx"][1:]]
        assert [each["vsize_vb"] for each in mine] == [each["vsize"] for each in verbose["tx"]]
        assert row["fees_sat"] == sum(each["fee_sat"] for each in mine[1:])
        if block_hash != recorded.story.stale:  # of the active chain alone the node has statistics
            assert row["fees_sat"] == rpc.call("getblockstats", verbose["height"])["totalfee"]


def test_arrivals_tell_the_course_of_the_chain(recorded: Recorded) -> None:
    """Each block was seen and connected, the stale one also disconnected; the first tip is `at_start`."""
    rows = recorded.rows["block_arrivals"]
    pushed = {(row["block_hash"], row["event"]) for row in rows if row["kind"] == "pushed"}
    hashes = {hash_bytes(name) for name in recorded.story.hashes}
    assert {hash_ for hash_, event in pushed if event == "connected"} == hashes
    assert {hash_ for hash_, event in pushed if event == "seen"} == hashes
    assert {hash_ for hash_, event in pushed if event == "disconnected"} == {recorded.story.stale}
    assert [row["event"] for row in rows if row["kind"] == "at_start"] == ["connected"]
    assert all(row["height"] is not None and row["prev_hash"] is not None for row in rows)


def test_templates_and_statistics_are_taken(recorded: Recorded) -> None:
    """There is a template for the last tip, its rows add up, and the histogram covers the whole mempool."""
    templates = recorded.rows["templates"]
    assert {"timer", "tip"} == {row["trigger"] for row in templates}
    assert hash_bytes(recorded.story.hashes[-1]) in {row["prev_hash"] for row in templates}
    assert max(row["n_tx"] for row in templates) >= len(recorded.story.at_start)
    for row in templates:
        mine = [each for each in recorded.rows["template_txs"] if each["taken_at"] == row["taken_at"]]
        assert sorted(each["tx_index"] for each in mine) == list(range(1, row["n_tx"] + 1))
        assert sum(each["fee_sat"] for each in mine) == row["fees_sat"]
    last = max(recorded.rows["mempool_stats"], key=lambda row: row["taken_at"])
    assert sum(each["n_tx"] for each in last["histogram"]) == last["n_tx"] > 0
    assert sum(each["fees_sat"] for each in last["histogram"]) == last["fees_sat"]


def test_coverage_is_closed_and_whole(recorded: Recorded) -> None:
    """Each topic is covered without a gap from start to stop, and coverage counts every received message."""
    assert len(recorded.rows["nodes"]) == 1
    for topic in ("sequence", "rawtx", "rawblock", "mempool"):
        rows = sorted(
            (row for row in recorded.rows["coverage"] if row["topic"] == topic),
            key=lambda row: row["from_at"],
        )
        assert [row["end_reason"] for row in rows] == ["sealed"] * (len(rows) - 1) + ["shutdown"]
        assert all(a["to_at"] == b["from_at"] for a, b in pairwise(rows))
    counted = sum(row["n_messages"] for row in recorded.rows["coverage"] if row["topic"] == "sequence")
    assert counted == len(recorded.witnessed)
    assert recorded.rows["rejects"] == []


def test_nothing_secret_is_written(recorded: Recorded, node: RegtestNode) -> None:
    """Neither the log nor any file of the dataset holds the node's cookie; the settings are recorded."""
    password = node.cookie_path.read_text().partition(":")[2].encode()
    files = [path for path in recorded.dataset.rglob("*") if path.is_file()]
    assert files
    assert all(password not in path.read_bytes() for path in files)
    assert password not in recorded.log.encode()
    assert json.loads(recorded.rows["nodes"][0]["settings"])["chain"] == "regtest"
