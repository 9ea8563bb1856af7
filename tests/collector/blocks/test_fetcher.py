"""Test that BlockFetcher records a missing parent, and what wrong answers cost a block."""

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.blocks import fetcher as fetching
from collector.blocks.fetcher import BlockFetcher
from collector.blocks.recent import RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.clock import monotonic_us
from collector.codec.block import decode_block
from collector.dataset.open import Dataset
from collector.dataset.schema import REJECTS, TRANSACTIONS, UNKNOWN_PARENT, hash_bytes, hash_hex
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.node.request_threads import NodeRequests
from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput
from tests.collector.codec.made_blocks import solved_block
from tests.collector.service.planted import NOT_FOUND, TIP, PlantedNode
from tests.collector.service.test_session import wait_until

PARENT = bytes(31) + b"\x07"
PAYMENT = RegtestTransaction((TxInput(bytes(31) + b"\x05", 0, b"", ()),), (TxOutput(100_000_000, b"\x51"),))
BLOCK = solved_block([PAYMENT], height=101)
FEE_SAT = 700
ANCHOR = {"asm": "1 29518", "hex": "51024e73", "type": "witness_unknown"}  # as Bitcoin Core before 28 says
PRUNED = {"code": -1, "message": "Block not available (pruned data)"}


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a server that gives the answers which a test sets."""
    made = PlantedNode()
    yield made
    made.close()


def described(spent: object) -> dict[str, Any]:
    """Return what getblock says of BLOCK, when `spent` is what it says that the payment spends."""
    coinbase, payment = (hash_hex(each.txid) for each in decode_block(BLOCK).transactions)
    output = {"prevout": {"value": spent, "scriptPubKey": ANCHOR}}
    return {
        "height": 101,
        "tx": [{"txid": coinbase}, {"txid": payment, "vin": [output], "vout": [{"value": 1}]}],
    }


def stored_fees(folder: Path, node: PlantedNode, meanwhile: Callable[[], None]) -> list[int | None]:
    """Take BLOCK from a message, and call `meanwhile` when it is asked for; return the fees in its rows."""
    return [row["fee_sat"] for row in stored_rows(folder, node, meanwhile)]


def stored_rows(folder: Path, node: PlantedNode, meanwhile: Callable[[], None]) -> list[dict[str, Any]]:
    """Take BLOCK from a message, and call `meanwhile` when it is asked for; return its transactions' rows."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("alpha", node.client(), inbox)
    dataset = Dataset.open(folder / "dataset", "regtest", create=True)
    with Journal(folder / "journal") as journal:
        journal.recover(dataset)
        batches = Batches(journal)
        fetcher = BlockFetcher(
            ("alpha", "s"),
            "regtest",
            requests=requests,
            batches=batches,
            stored=StoredBlocks([decode_block(BLOCK).header.prev_hash], 1),
            recent=RecentBlocks(),
            on_resolved=lambda *_: None,
        )
        fetcher.take_raw(BLOCK, 1, batches.current)
        meanwhile()
        while len(fetcher):
            inbox.get(timeout=10).deliver()
            fetcher.tick(monotonic_us(), at_once=True)
        batches.commit()
        journal.seal(dataset)
    requests.stop()
    return list(dataset.read(TRANSACTIONS).to_pylist())


def test_a_spent_output_has_the_type_of_its_script(tmp_path: Path, node: PlantedNode) -> None:
    """The script decides, not the word that this version of the node has for it."""
    node.results |= {"getblockchaininfo": {"headers": 101, "blocks": 101}}
    node.results["getblock"] = described(1 + FEE_SAT / 1e8)
    _, payment = stored_rows(tmp_path, node, lambda: None)
    assert payment["spent_types"] == ["anchor"]


@pytest.mark.parametrize("wrong", [None, "zz", -1, 1 << 300, 0.5, [], 0.000000001])
def test_an_amount_of_a_wrong_form_is_asked_again(tmp_path: Path, node: PlantedNode, wrong: object) -> None:
    """One wrong amount in an answer costs the block no fees, when the next answer is right."""
    node.results |= {"getblockchaininfo": {"headers": 101, "blocks": 101}}
    node.results["getblock"] = described(wrong)

    def tell_right() -> None:
        wait_until(lambda: node.n_asked["getblock"] > 0)
        node.results["getblock"] = described(1 + FEE_SAT / 1e8)

    assert stored_fees(tmp_path, node, tell_right) == [None, FEE_SAT]


def test_an_error_that_no_node_means_for_good_is_asked_again(tmp_path: Path, node: PlantedNode) -> None:
    """An error that is none about the block, as a proxy gives it, costs the block no fees."""
    node.results |= {"getblockchaininfo": {"headers": 101, "blocks": 101}}
    node.errors["getblock"] = {"code": -1, "message": ["no", {}]}

    def tell_right() -> None:
        wait_until(lambda: node.n_asked["getblock"] > 0)
        node.errors.clear()
        node.results["getblock"] = described(1 + FEE_SAT / 1e8)

    assert stored_fees(tmp_path, node, tell_right) == [None, FEE_SAT]


def test_amounts_that_stay_wrong_cost_the_fees_and_not_the_block(
    tmp_path: Path, node: PlantedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no right amounts come for long, the block is asked for without them, and stored without fees."""
    monkeypatch.setattr(fetching, "WRONG_FOR_S", 0.01)
    name = hash_hex(decode_block(BLOCK).block_hash)
    wrong = described("zz")
    node.results |= {"getblockchaininfo": {"headers": 101, "blocks": 101}, "getblock": wrong}
    node.results[f"getblock {name} 1"] = wrong | {"tx": [each["txid"] for each in wrong["tx"]]}
    assert stored_fees(tmp_path, node, lambda: None) == [None, None]


def reject_rows(folder: Path, node: PlantedNode) -> list[tuple[str, str, bytes]]:
    """Run a session whose dataset lacks the parent of a stored block; return the rows of `rejects`."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("alpha", node.client(), inbox)
    dataset = Dataset.open(folder / "dataset", "regtest", create=True)
    with Journal(folder / "journal") as journal:
        journal.recover(dataset)
        batches = Batches(journal)
        fetcher = BlockFetcher(
            ("alpha", "s"),
            "regtest",
            requests=requests,
            batches=batches,
            stored=StoredBlocks([hash_bytes(TIP)], 1, [PARENT]),
            recent=RecentBlocks(),
            on_resolved=lambda *_: None,
        )
        fetcher.start(hash_bytes(TIP), 9, 1)
        while len(fetcher):
            inbox.get(timeout=10).deliver()
            fetcher.tick(monotonic_us(), at_once=True)
        batches.commit()
        journal.seal(dataset)
    requests.stop()
    return [(row["topic"], row["reason"], row["body"]) for row in dataset.read(REJECTS).to_pylist()]


def test_a_parent_that_the_node_does_not_know_leaves_a_mark(tmp_path: Path, node: PlantedNode) -> None:
    """A row of `rejects` names the unknown parent; there is none for the tip, which is no block's parent."""
    node.errors["getblock"] = NOT_FOUND
    assert reject_rows(tmp_path, node) == [("rpc", UNKNOWN_PARENT, PARENT)]


def test_a_parent_that_the_node_has_pruned_leaves_no_mark(tmp_path: Path, node: PlantedNode) -> None:
    """A pruned parent leaves no row of `rejects`, because another node or a backfill can bring it."""
    node.errors["getblock"] = PRUNED
    assert reject_rows(tmp_path, node) == []
