"""Test that the fast way from bytes to rows gives the rows and refusals of the plain one."""

import csv
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.codec.block import decode_block
from collector.codec.chunk import make_chunk
from collector.codec.feerates import UNKNOWN, effective_feerates
from collector.codec.rows import blocks_table, transactions_table
from collector.codec.scripts import output_type
from collector.codec.timing import StageTimes
from collector.codec.verify import backend_name
from collector.codec.walk import BLOCK, walk_blocks
from collector.dataset.open import Dataset
from collector.dataset.schema import OUTPUT_TYPES, TRANSACTIONS
from collector.errors import DecodeError, RowRefused
from tests.collector.codec import made_blocks as made
from tests.collector.codec.plain_feerate import plain_feerates
from tests.collector.codec.plain_scripts import plain_output_type


@settings(max_examples=300, deadline=None)
@given(made.mutated_scripts())
def test_output_types_are_those_of_the_plain_way(script: bytes) -> None:
    """Any script, valid or broken, gets the same type both ways."""
    data = np.frombuffer(b"\x00" + script + b"\x00", np.uint8)

    assert OUTPUT_TYPES[output_type(data, 1, 1 + len(script))] == plain_output_type(script)


def test_the_scripts_of_these_tests_have_every_type() -> None:
    """The scripts drawn in these tests cover every type."""
    assert {plain_output_type(script) for script in made.SCRIPTS} == set(OUTPUT_TYPES)


@settings(max_examples=60, deadline=None)
@given(st.lists(made.blocks(), min_size=1, max_size=4), st.data())
def test_rows_are_those_of_the_plain_way(raws: list[bytes], data: st.DataObject) -> None:
    """Every column of every row of any valid block is the same both ways."""
    heights = [200 + i for i in range(len(raws))]
    fee = st.none() | st.integers(0, 10**9)
    fees = [[None, *data.draw(st.lists(fee, min_size=n, max_size=n))] for n in map(count_others, raws)]
    expected_blocks, expected_txs = made.plain_rows(raws, heights, fees)

    chunk, bad = make_chunk(made.raw_blocks(raws, heights, fees), "regtest", StageTimes())

    assert bad == []
    assert chunk is not None
    assert transactions_table(chunk).equals(expected_txs)
    assert blocks_table(chunk, chain="regtest", verified_by=backend_name()).equals(expected_blocks)


@settings(max_examples=20, deadline=None)
@given(st.lists(made.blocks(), min_size=1, max_size=3))
def test_a_coded_table_makes_the_file_of_the_plain_one(raws: list[bytes]) -> None:
    """Rows, types and the contract in the metadata are the same for every reader."""
    heights = [200 + i for i in range(len(raws))]
    fees = [[None] * (1 + count_others(raw)) for raw in raws]
    chunk, _ = make_chunk(made.raw_blocks(raws, heights, fees), "regtest", StageTimes())
    assert chunk is not None

    with tempfile.TemporaryDirectory() as folder:
        dataset = Dataset.open(Path(folder), "regtest", create=True)
        plain, coded = [
            dataset.write(TRANSACTIONS, transactions_table(chunk, coded=way), stem=f"coded-{way}")
            for way in (False, True)
        ]
        for one, other in zip(plain, coded, strict=True):
            assert pq.read_schema(one).equals(pq.read_schema(other), check_metadata=True)
            assert pq.read_table(one).equals(pq.read_table(other))
            assert duckdb.sql(f"FROM '{one}' EXCEPT ALL FROM '{other}'").fetchall() == []
            assert pq.read_metadata(one).metadata == pq.read_metadata(other).metadata


def test_a_coded_table_with_a_strange_name_is_refused(tmp_path: Path) -> None:
    """The names are held to the closed set of the contract, as text is."""
    raw = made.solved_block([], height=200)
    chunk, _ = make_chunk(made.raw_blocks([raw], [200], [[None]]), "regtest", StageTimes())
    assert chunk is not None
    table = transactions_table(chunk, coded=True)
    at = table.schema.get_field_index("output_types")
    names = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["p2sh"]))
    strange = table.set_column(at, table.schema.field(at), pa.ListArray.from_arrays([0, 1], names))

    with pytest.raises(RowRefused, match="p2sh"):
        Dataset.open(tmp_path, "regtest", create=True).write(TRANSACTIONS, strange, stem="strange")


def count_others(raw: bytes) -> int:
    """Count the transactions besides the coinbase."""
    return len(decode_block(raw).transactions) - 1


@settings(max_examples=150, deadline=None)
@given(made.blocks(max_transactions=3), st.data())
def test_the_walk_accepts_what_the_decoder_accepts(raw: bytes, data: st.DataObject) -> None:
    """For a byte changed, lost or added, or a cut, both ways accept the bytes or both refuse them."""
    broken = bytearray(raw)
    at = data.draw(st.integers(80, len(raw) - 1))
    change = data.draw(st.sampled_from(["set", "cut", "insert", "delete"]))
    if change == "set":
        broken[at] = data.draw(st.sampled_from([0, 1, 0xFC, 0xFD, 0xFE, 0xFF]) | st.integers(0, 255))
    elif change == "cut":
        del broken[at:]
    elif change == "insert":
        broken.insert(at, data.draw(st.integers(0, 255)))
    else:
        del broken[at]
    try:
        decode_block(bytes(broken))
        is_sound = True
    except DecodeError:
        is_sound = False

    layout = walk_blocks(np.frombuffer(bytes(broken), np.uint8), np.array([0, len(broken)]))

    assert bool(layout.blocks["is_sound"][0]) is is_sound


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda raw: raw[:-1], "end inside the transaction"),
        (lambda raw: raw[:40] + bytes([raw[40] ^ 1]) + raw[41:], "bad_"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "bad_merkle_root"),
    ],
)
def test_a_bad_block_is_set_aside_whole_and_the_rest_goes_on(change: object, reason: str) -> None:
    """Of three blocks with one broken, two give rows, and the third gives its bytes and a reason."""
    raws = [made.solved_block([], height=height) for height in (7, 8, 9)]
    assert callable(change)
    broken = change(raws[1])

    chunk, bad = make_chunk(made.raw_blocks([raws[0], broken, raws[2]], [7, 8, 9]), "regtest", StageTimes())

    assert chunk is not None
    expected_blocks, expected_txs = made.plain_rows([raws[0], raws[2]], [7, 9])
    assert transactions_table(chunk).equals(expected_txs)
    assert blocks_table(chunk, chain="regtest", verified_by=backend_name()).equals(expected_blocks)
    assert [each.body for each in bad] == [broken]
    assert reason in bad[0].reason


def test_witness_data_that_is_not_committed_to_is_refused() -> None:
    """A witness changed after the block was made leaves txids and merkle root as they are."""
    spend = made.TxInput(bytes(range(32)), 0, b"", (b"\x51" * 30,))
    raw = made.solved_block([made.RegtestTransaction((spend,), (made.TxOutput(5, b"\x51"),))], height=9)
    changed = raw.replace(b"\x51" * 30, b"\x52" * 30)

    chunk, bad = make_chunk(made.raw_blocks([changed], [9]), "regtest", StageTimes())

    assert chunk is None
    assert bad[0].reason.startswith("bad_witness_commitment")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_effective_feerates_are_those_of_the_plain_way(data: st.DataObject) -> None:
    """Chains, diamonds, ties and unknown fees: bit for bit the same rates, block after block."""
    vsizes: list[int] = []
    fees: list[int | None] = []
    limits, parents, expected = [0], [], []
    sizes = data.draw(st.lists(st.integers(1, 26), min_size=1, max_size=3))
    records = np.zeros(len(sizes), BLOCK)
    for record, n_tx in zip(records, sizes, strict=True):
        record["first_tx"], record["n_tx"] = len(vsizes), n_tx
        n = {"min_size": n_tx, "max_size": n_tx}
        own_vsizes = data.draw(st.lists(st.integers(60, 400), **n))
        own_fees = data.draw(st.lists(st.integers(0, 20).map(lambda fee: fee * 100), **n))
        unknown = data.draw(st.sets(st.integers(0, 200)))
        own_fees = [None if i in unknown else fee for i, fee in enumerate(own_fees)]
        own_parents = [
            sorted(data.draw(st.sets(st.integers(0, k - 1), max_size=3))) if k else [] for k in range(n_tx)
        ]
        expected += plain_feerates(own_vsizes, own_fees, own_parents)
        vsizes += own_vsizes
        fees += own_fees
        for own in own_parents:
            parents += own
            limits.append(len(parents))

    rates = effective_feerates(
        records,
        np.array(vsizes, np.int64),
        np.array([UNKNOWN if fee is None else fee for fee in fees], np.int64),
        np.array(limits, np.int32),
        np.array(parents, np.int32),
    )

    assert [None if np.isnan(rate) else rate for rate in rates] == expected


def test_a_chain_of_thousands_is_rated_in_time() -> None:
    """A block that is one long chain of rising fees takes no more steps than it has pairs."""
    n_tx = 3000
    records = np.zeros(1, BLOCK)
    records["n_tx"] = n_tx
    vsizes, fees = np.full(n_tx, 100), np.arange(n_tx) * 10
    limits = np.append(0, np.arange(n_tx)).astype(np.int32)

    rates = effective_feerates(records, vsizes, fees, limits, np.arange(n_tx - 1, dtype=np.int32))

    assert np.all(rates == (n_tx - 1) * 10 / 2 / 100)


@pytest.mark.data
def test_real_blocks_give_the_rows_of_the_plain_way(data_dir: Path) -> None:
    """Old and new mainnet blocks in one chunk give the rows of the plain way."""
    with (data_dir / "mainnet-blocks" / "manifest.csv").open() as lines:
        files = {row["file"]: int(row["height"]) for row in csv.DictReader(lines) if row["height"]}
    files = {name: height for name, height in files.items() if name.endswith(".bin")}
    raws = [(data_dir / "mainnet-blocks" / name).read_bytes() for name in files]
    heights = list(files.values())
    expected_blocks, expected_txs = made.plain_rows(raws, heights, chain="main")

    chunk, bad = make_chunk(made.raw_blocks(raws, heights), "main", StageTimes())

    assert bad == []
    assert chunk is not None
    assert transactions_table(chunk).equals(expected_txs)
    assert blocks_table(chunk, chain="main", verified_by=backend_name()).equals(expected_blocks)
    assert len(raws) > 20
