"""Test rows of real blocks, from their bytes to what DuckDB reads, against published numbers."""

import csv
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import zstandard
from bitcoin.core import CTransaction, VarIntSerializer

from collector.codec.block import Block, decode_block, parse_block
from collector.codec.coinbase import bip34_height, coinbase_bytes
from collector.codec.rows import block_rows, fees_from_getblock, spent_types_from_getblock
from collector.codec.verify import backend_name, verify_block
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, OUTPUT_TYPES, TRANSACTIONS, hash_hex
from collector.errors import DecodeError

MAGIC = bytes.fromhex("f9beb4d9")


def rows_of(raw: bytes, height: int, fees: list[int | None] | None = None) -> tuple[dict, list[dict]]:
    """Make the rows of a mainnet block, its verdict included."""
    body = parse_block(raw)
    blocks, transactions = block_rows(
        body,
        chain="main",
        height=height,
        height_source="rpc",
        source="blkfile",
        verdict=verify_block(body.block, "main"),
        verified_by=backend_name(),
        fees=fees,
    )
    return blocks.to_pylist()[0], transactions.to_pylist()


def block_file(path: Path) -> Iterator[bytes]:
    """Split a blk file: magic, length, block."""
    data = io.BytesIO(path.read_bytes())
    while (magic := data.read(4)) == MAGIC:
        yield data.read(int.from_bytes(data.read(4), "little"))
    assert magic == b""


def manifest(folder: Path) -> dict[str, dict[str, str]]:
    """Return the manifest of the real blocks by hash."""
    csv.field_size_limit(1 << 20)
    with (folder / "manifest.csv").open(newline="") as file:
        return {row["hash"]: row for row in csv.DictReader(file)}


@pytest.mark.data
def test_every_real_block_reaches_duckdb_with_the_manifests_numbers(data_dir: Path, tmp_path: Path) -> None:
    """Bytes, records, verdict, rows, Parquet, DuckDB: what comes out is what others say of these blocks."""
    folder = data_dir / "mainnet-blocks"
    expected = manifest(folder)
    dataset = Dataset.open(tmp_path / "dataset", "main", create=True)
    raws = [
        *block_file(folder / "early-blocks.blk.dat"),
        *(path.read_bytes() for path in folder.glob("*.bin")),
    ]
    block_list, transaction_list = [], []
    for raw in raws:
        known = expected[hash_hex(decode_block(raw).block_hash)]
        row, transactions = rows_of(raw, int(known["height"] or 0))
        block_list.append(row)
        transaction_list += transactions
    dataset.write(BLOCKS, block_list, stem="real")
    dataset.write(TRANSACTIONS, transaction_list, stem="real")

    assert len(block_list) == len(expected)
    rows = in_duckdb(dataset, BLOCKS_QUERY)
    assert len(rows) == len(expected)
    for row in rows:
        compare(row, expected[hash_hex(row["block_hash"])])


# Each block, and what its transactions come to.
BLOCKS_QUERY = """
    select
        blocks.*,
        totals.* exclude (block_hash)
    from blocks join (
        select
            block_hash,
            count(*) as row_count,
            count(distinct txid) as txid_count,
            sum(size_bytes) as sizes_bytes,
            sum(weight_wu) as weights_wu,
            max(abs(vsize_vb - ceil(weight_wu / 4.0))) as vsize_error,
            count(*) filter (where has_witness) as witness_count,
            count(*) filter (where has_witness and not is_coinbase) as segwit_count,
            sum(n_inputs) filter (where not is_coinbase) as input_count,
            sum(n_outputs) as output_count,
            sum(len(output_types)) as type_count,
            sum(output_value_sat) filter (where not is_coinbase) as outputs_sat
        from transactions group by block_hash
    ) as totals using (block_hash)
"""


def in_duckdb(dataset: Dataset, query: str) -> list[dict[str, Any]]:
    """Run a query over the dataset's files as the documentation says to read them."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    for name in ("blocks", "transactions"):
        files = f"{dataset.folder}/{name}/**/*.parquet"
        connection.read_parquet(files, hive_partitioning=False, union_by_name=True).create_view(name)
    return connection.sql(query).to_arrow_table().to_pylist()


def compare(row: dict[str, Any], known: dict[str, str]) -> None:
    """Compare a block's row and the totals of its transactions with the manifest."""
    assert hash_hex(row["block_hash"]) == known["hash"]
    assert int(row["header_time"].timestamp()) == int(known["time"])
    assert f"{row['bits']:08x}" == known["bits"]
    assert row["n_tx"] == row["row_count"] == row["txid_count"] == int(known["n_tx"])
    assert row["n_segwit_tx"] == row["segwit_count"]
    assert row["witness_count"] == int(known["n_segwit_tx"])
    assert row["size_bytes"] == int(known["size"])
    assert row["stripped_bytes"] == int(known["strippedsize"])
    assert row["weight_wu"] == int(known["weight"])
    # A header and the number of transactions are in the block's size, and in none of theirs.
    around_bytes = 81 if row["n_tx"] < 253 else 83
    assert row["sizes_bytes"] == row["size_bytes"] - around_bytes
    assert row["weights_wu"] == row["weight_wu"] - 4 * around_bytes
    assert row["vsize_error"] == 0
    assert (row["n_inputs"], row["n_outputs"]) == (row["input_count"] or 0, row["output_count"])
    assert row["type_count"] == row["output_count"]
    assert row["output_value_sat"] == (row["outputs_sat"] or 0)
    assert row["coinbase_script"].hex() == known["coinbase_hex"]
    assert row["coinbase_value_sat"] == int(known["coinbase_out_total"])
    outputs = row["coinbase_outputs"]
    assert [output["value_sat"] for output in outputs] == json.loads(known["coinbase_out_values"])
    assert [output["script"].hex() for output in outputs] == json.loads(known["coinbase_out_spk"])
    assert row["verdict"] == "valid"
    if known["height"]:
        assert row["height"] == int(known["height"])
        assert row["coinbase_value_sat"] - row["subsidy_sat"] == int(known["fees_implied"])


@pytest.mark.data
def test_heights_stated_in_real_coinbases_are_right(data_dir: Path) -> None:
    """BIP 34: every block since version 2 states the height that the manifest knows."""
    known = manifest(data_dir / "mainnet-blocks")
    checked = 0
    for path in data_dir.glob("mainnet-blocks/*.bin"):
        block = decode_block(path.read_bytes())
        if block.header.version >= 2:
            assert bip34_height(block) == int(known[hash_hex(block.block_hash)]["height"])
            checked += 1
    assert checked


@pytest.mark.data
def test_fees_of_a_real_block_sum_exactly(data_dir: Path) -> None:
    """Block 367891 and every output it spends: 14,001,930 sat, which is what its coinbase took."""
    (path,) = data_dir.glob("mainnet-blocks/367891-*.bin")
    raw = path.read_bytes()
    block = decode_block(raw)
    packed = (data_dir / "floresta" / "block_367891_spent_utxos.zst").read_bytes()
    spent = json.loads(zstandard.ZstdDecompressor().stream_reader(packed).read())

    row, transactions = rows_of(raw, 367_891, fees_from_getblock(as_getblock(block, spent)))

    assert row["fees_sat"] == sum(one["fee_sat"] for one in transactions[1:]) == 14_001_930
    assert row["coinbase_value_sat"] == row["subsidy_sat"] + row["fees_sat"]
    assert sum(one["input_value_sat"] for one in transactions[1:]) == sum(
        output["txout"]["value"] for output in spent
    )
    rates = [one["effective_feerate_sat_vb"] for one in transactions]
    assert rates[0] is None
    assert all(rate >= 0 for rate in rates[1:])
    for one in transactions:
        assert all(rates[parent] >= one["effective_feerate_sat_vb"] for parent in one["parents"] if parent)


def as_getblock(block: Block, spent: list[dict[str, Any]]) -> dict[str, Any]:
    """Write a block as `getblock` with verbosity 3 would, from the outputs that it spends, in order."""
    values = iter(Decimal(output["txout"]["value"]).scaleb(-8) for output in spent)
    return {
        "tx": [
            {
                "vin": [
                    {"coinbase": ""} if one.is_coinbase else {"prevout": {"value": next(values)}}
                    for _ in one.inputs
                ],
                "vout": [{"value": Decimal(output.value_sat).scaleb(-8)} for output in one.outputs],
            }
            for one in block.transactions
        ]
    }


@pytest.mark.data
def test_real_coinbases_are_rebuilt_from_their_rows(data_dir: Path) -> None:
    """Bytes, txid and wtxid of the coinbase of each real block, of several networks and with long outputs."""
    folder = data_dir / "mainnet-blocks"
    raws = [path.read_bytes() for path in (*folder.glob("*.bin"), *data_dir.glob("other-net-blocks/*.bin"))]
    raws += block_file(folder / "early-blocks.blk.dat")
    with_witness = 0
    for raw in raws:
        stream = io.BytesIO(raw[80:])
        VarIntSerializer.stream_deserialize(stream)
        coinbase = CTransaction.stream_deserialize(stream)
        row, transactions = rows_of(raw, 0)
        assert coinbase_bytes(row) == coinbase.serialize()
        assert coinbase_bytes(row, with_witness=False) == coinbase.serialize({"include_witness": False})
        assert (row["coinbase_txid"], transactions[0]["wtxid"]) == (coinbase.GetTxid(), coinbase.GetHash())
        with_witness += row["coinbase_reserved_value"] is not None
    assert 0 < with_witness < len(raws)


@pytest.mark.data
def test_parents_inside_a_real_block_are_found(data_dir: Path) -> None:
    """Every input that spends an output of the same block names an earlier transaction, once."""
    (path,) = data_dir.glob("mainnet-blocks/574200-*.bin")
    block = decode_block(path.read_bytes())
    _, transactions = rows_of(path.read_bytes(), 574_200)
    position = {one.txid: index for index, one in enumerate(block.transactions)}
    for one, row in zip(block.transactions, transactions, strict=True):
        inside = {position[spent.prev_txid] for spent in one.inputs if spent.prev_txid in position}
        assert row["parents"] == sorted(inside)
        assert all(parent < row["tx_index"] for parent in row["parents"])
    assert sum(len(row["parents"]) for row in transactions) > 100


@pytest.mark.data
def test_unknown_fees_stay_unknown(data_dir: Path) -> None:
    """Without fees, or with one missing, nothing that depends on them is guessed."""
    (path,) = data_dir.glob("mainnet-blocks/100001-*.bin")
    raw = path.read_bytes()

    row, transactions = rows_of(raw, 100_001)
    assert row["fees_sat"] is None
    assert {one["fee_sat"] for one in transactions} == {None}
    assert {one["input_value_sat"] for one in transactions} == {None}
    assert {one["effective_feerate_sat_vb"] for one in transactions} == {None}

    row, transactions = rows_of(raw, 100_001, [9, None, *([0] * 10)])
    assert row["fees_sat"] is None
    assert [one["fee_sat"] for one in transactions] == [None, None, *([0] * 10)]
    with pytest.raises(DecodeError, match="transactions 12, fees given for 2"):
        rows_of(raw, 100_001, [None, 1])


@pytest.mark.data
def test_a_block_without_transactions_has_no_fees(data_dir: Path) -> None:
    """An empty block's fees are known to be 0, whether or not fees were looked up."""
    (path,) = data_dir.glob("mainnet-blocks/670718-*.bin")
    row, (coinbase,) = rows_of(path.read_bytes(), 670_718)
    assert row["fees_sat"] == 0
    assert coinbase["fee_sat"] is None
    assert row["witness_commitment"] is None


def test_an_answer_without_spent_outputs_is_refused() -> None:
    """Verbosity 2, and pruned undo data, give no fees and an error that says what to ask for."""
    answer = {"tx": [{"vin": [{"coinbase": ""}], "vout": []}, {"vin": [{"txid": ""}], "vout": []}]}
    with pytest.raises(DecodeError, match="verbosity 3"):
        fees_from_getblock(answer)


def test_the_type_of_a_spent_output_does_not_depend_on_the_nodes_version() -> None:
    """It is that of the script, also where an older or later node has another word for it."""
    words = {"51024e73": "witness_unknown", "": "nonstandard", "6a": "of a later version"}
    spent = [
        {"prevout": {"value": 0, "scriptPubKey": {"hex": script, "type": word}}}
        for script, word in words.items()
    ]
    types = spent_types_from_getblock({"tx": [{}, {"vin": spent}]})
    assert types is not None
    assert [OUTPUT_TYPES[number] for number in types[1:]] == ["anchor", "nonstandard", "nulldata"]
    del spent[0]["prevout"]["scriptPubKey"]["hex"]
    assert spent_types_from_getblock({"tx": [{}, {"vin": spent}]}) is None
