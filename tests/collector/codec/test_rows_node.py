"""Test that the rows of a real node's blocks equal the node's own numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.codec.block import ParsedBlock, parse_block
from collector.codec.coinbase import bip34_height, coinbase_bytes
from collector.codec.rows import block_rows, fees_from_getblock, spent_types_from_getblock
from collector.codec.transaction import decode_transaction
from collector.codec.verify import backend_name, verify_block
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS, hash_bytes, hash_hex
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, find_bitcoind, load_scenario, run_scenario
from tests.collector.codec.compiled_scripts import output_types_of
from tests.collector.codec.node_rows import expected_block, expected_transaction

pytestmark = pytest.mark.bitcoind


class NodeAnswers(NamedTuple):
    """Holds the node's answers about one block."""

    body: ParsedBlock
    verbose: dict[str, Any]  # getblock, verbosity 3
    stats: dict[str, Any]  # getblockstats


@pytest.fixture(scope="module")
def rpc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpcClient]:
    """Return a client of a node that has played the smoke scenario."""
    with RegtestNode(find_bitcoind()) as node:
        run_scenario(load_scenario("smoke"), node, tmp_path_factory.mktemp("smoke"))
        yield node.client()


@pytest.fixture(scope="module")
def answered(rpc: RpcClient) -> list[NodeAnswers]:
    """Return the answers about every block from genesis to the tip."""
    hashes = rpc.batch([("getblockhash", height) for height in range(rpc.call("getblockcount") + 1)])
    answers = rpc.batch([("getblock", hash_, verbosity) for hash_ in hashes for verbosity in (0, 3)])
    stats = rpc.batch([("getblockstats", hash_) for hash_ in hashes])
    bodies = [parse_block(bytes.fromhex(raw)) for raw in answers[::2]]
    return [NodeAnswers(*each) for each in zip(bodies, answers[1::2], stats, strict=True)]


def batches_of(one: NodeAnswers) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Make the rows of a block as the live collector does."""
    txids = [hash_bytes(transaction["txid"]) for transaction in one.verbose["tx"]]
    return block_rows(
        one.body,
        chain="regtest",
        height=one.verbose["height"],
        height_source="rpc",
        source="rpc",
        verdict=verify_block(one.body.block, "regtest", txids),
        verified_by=backend_name(),
        fees=fees_from_getblock(one.verbose),
        spent_types=spent_types_from_getblock(one.verbose),
    )


def rows_of(one: NodeAnswers) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Make the rows of a block, and the header's time a number, as the node has it."""
    blocks, transactions = batches_of(one)
    (row,) = blocks.to_pylist()
    return row | {"header_time": int(row["header_time"].timestamp())}, transactions.to_pylist()


def test_every_number_of_a_block_is_the_nodes(answered: list[NodeAnswers]) -> None:
    """Each column of `blocks` for which the node has a number equals it; the verdict is valid."""
    assert len(answered) > 100
    for one in answered:
        row, _ = rows_of(one)
        ours = {
            "height_source": "rpc",
            "verdict": "valid",
            "verified_by": backend_name(),
            "source": "rpc",
        }
        assert row == expected_block(one.verbose, one.stats) | ours


def test_every_number_of_a_transaction_is_the_nodes(answered: list[NodeAnswers]) -> None:
    """Each column of `transactions` for which the node has a value equals it, in block order."""
    types = set()
    for one in answered:
        _, rows = rows_of(one)
        txids = [transaction["txid"] for transaction in one.verbose["tx"]]
        for index, (row, told) in enumerate(zip(rows, one.verbose["tx"], strict=True)):
            del row["effective_feerate_sat_vb"]  # compared elsewhere
            types.update(row["output_types"])
            assert row == expected_transaction(told, index, txids) | {
                "block_hash": hash_bytes(one.verbose["hash"]),
                "height": one.verbose["height"],
            }
    assert len(types) > 5


def test_every_coinbase_is_rebuilt_from_its_row(answered: list[NodeAnswers]) -> None:
    """The bytes are the node's, from the genesis block, which has no witness, to the tip."""
    for one in answered:
        row, _ = rows_of(one)
        rebuilt = coinbase_bytes(row)
        assert rebuilt is not None
        assert rebuilt.hex() == one.verbose["tx"][0]["hex"]


def test_the_nodes_own_summaries_follow_from_the_rows(answered: list[NodeAnswers]) -> None:
    """Totals, extremes and medians that the node reports come out of the rows of `transactions`."""
    for one in answered:
        _, (_, *rows) = rows_of(one)
        stats = one.stats
        segwit = [row for row in rows if row["has_witness"]]
        assert stats["total_size"] == sum(row["size_bytes"] for row in rows)
        assert stats["total_weight"] == sum(row["weight_wu"] for row in rows)
        assert stats["swtotal_size"] == sum(row["size_bytes"] for row in segwit)
        assert stats["swtotal_weight"] == sum(row["weight_wu"] for row in segwit)
        if rows:
            assert stats["maxfee"] == max(row["fee_sat"] for row in rows)
            assert stats["minfee"] == min(row["fee_sat"] for row in rows)
            assert stats["avgfee"] == sum(row["fee_sat"] for row in rows) // len(rows)
            assert stats["maxtxsize"] == max(row["size_bytes"] for row in rows)
            assert stats["maxfeerate"] == max(row["fee_sat"] * 4 // row["weight_wu"] for row in rows)


def test_effective_feerates_conserve_what_was_paid(answered: list[NodeAnswers]) -> None:
    """Packages split fees, they make none: over a block, rates times sizes never exceed what was paid.

    They fall short where a later child was bound to the rate of a package taken before it.
    """
    lifted = 0
    for one in answered:
        _, (_, *rows) = rows_of(one)
        paid = sum(row["fee_sat"] for row in rows)
        assert sum(row["effective_feerate_sat_vb"] * row["vsize_vb"] for row in rows) <= paid * (1 + 1e-9)
        lifted += sum(
            row["effective_feerate_sat_vb"] > row["fee_sat"] / row["vsize_vb"] + 1e-9 for row in rows
        )
    assert lifted, "the scenario holds CPFP packages"


def test_transactions_decode_alone_as_they_do_in_blocks(answered: list[NodeAnswers]) -> None:
    """What `rawtx` carries gives the same record as the block that confirms it."""
    for one in answered:
        for index, told in enumerate(one.verbose["tx"]):
            raw = bytes.fromhex(told["hex"])
            inside = one.body.block.transactions[index]
            assert decode_transaction(raw) == inside._replace(source=raw, begin=0)


def test_heights_are_stated_in_coinbases(answered: list[NodeAnswers]) -> None:
    """Every coinbase from height 1 to the tip states its height (BIP 34); genesis states none."""
    assert [bip34_height(one.body.block) for one in answered] == [None, *range(1, len(answered))]


def test_the_rows_survive_parquet(answered: list[NodeAnswers], tmp_path: Path) -> None:
    """Rows read back from the dataset equal the answers of the node."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    block_rows_, transaction_rows = zip(*map(batches_of, answered), strict=True)
    dataset.write(BLOCKS, pa.Table.from_batches(block_rows_), stem="a")
    dataset.write(TRANSACTIONS, pa.Table.from_batches(transaction_rows), stem="a")

    blocks = dataset.read(BLOCKS).to_pylist()
    assert [hash_hex(row["block_hash"]) for row in blocks] == [one.verbose["hash"] for one in answered]
    assert [row["fees_sat"] for row in blocks] == [one.stats["totalfee"] for one in answered]
    assert dataset.read(TRANSACTIONS).equals(pa.Table.from_batches(transaction_rows))


PIECES = [
    *(bytes([opcode]) for opcode in (0, 1, 2, 0x14, 0x20, 0x21, 0x41, 0x4C, 0x4D, 0x4E, 0x50, 0x51, 0x52)),
    *(bytes([opcode]) for opcode in (0x53, 0x60, 0x6A, 0x76, 0x87, 0x88, 0xA9, 0xAC, 0xAE)),
    b"\x01\x10",
    b"\x01\x11",
    b"\x02\x4e\x73",
    b"\x14" + bytes(20),
    b"\x20" + bytes(32),
    b"\x21\x02" + bytes(32),
    b"\x21\x03" + bytes(32),
    b"\x41\x04" + bytes(64),
    b"\x41\x06" + bytes(64),
    b"\x4c\x21\x02" + bytes(32),
    b"\x76\xa9\x14" + bytes(20) + b"\x88\xac",
    b"\xa9\x14" + bytes(20) + b"\x87",
]
SCRIPTS = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join) | st.binary(max_size=45)


@settings(max_examples=40, deadline=None)
@given(st.lists(SCRIPTS, min_size=50, max_size=50))
def test_output_types_are_the_nodes_for_any_script(rpc: RpcClient, scripts: list[bytes]) -> None:
    """The node's own `decodescript` agrees on thousands of scripts made of the pieces that matter."""
    told = rpc.batch([("decodescript", script.hex()) for script in scripts])
    assert output_types_of(scripts) == [one["type"] for one in told]
