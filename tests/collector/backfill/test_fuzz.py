"""Test block files with random changes: no crash, no hang, no row that the sound files do not give."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.backfill.blockfiles import BlockFolder
from collector.backfill.catalogue import read_catalogue
from collector.backfill.undofiles import UndoFinder, UndoRequest
from collector.codec.chunk import BlockRef, RawBlocks, make_chunk
from collector.codec.rows import transactions_table
from collector.codec.timing import StageTimes
from collector.errors import SettingsError
from collector.regtest import RegtestNode
from tests.collector.backfill import made_files
from tests.collector.backfill.conftest import Rows

pytestmark = pytest.mark.bitcoind

BY_FEES = ("fee_sat", "input_value_sat", "effective_feerate_sat_vb", "spent_types", "sigop_cost")

changes = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["set", "insert", "delete", "magic", "zeros"]),
        st.binary(min_size=1, max_size=200),
    ),
    min_size=1,
    max_size=6,
)


def broken(data: bytes, wanted: "Changes") -> bytes:
    """Return the bytes with changes made at relative positions."""
    out = bytearray(data)
    for where, kind, content in wanted:
        at = int(where * len(out))
        if kind == "set":
            out[at : at + len(content)] = content
        elif kind == "insert":
            out[at:at] = content
        elif kind == "delete":
            del out[at : at + len(content)]
        elif kind == "magic":
            out[at : at + 4] = made_files.REGTEST
        else:
            out[at : at + len(content)] = bytes(len(content))
    return bytes(out)


Changes = list[tuple[float, str, bytes]]


@pytest.fixture(scope="module")
def check(node: RegtestNode, expected: Rows) -> Callable[[Changes, Changes], None]:
    """Return a function that changes files of the node's small blocks and checks the rows that they give."""
    source = node.datadir / "regtest" / "blocks"
    blocks = b"".join(
        made_files.frame(block) for block in made_files.read_blocks(source) if len(block) < 20_000
    )
    undo = b"".join(made_files.frame(each[:-32]) + each[-32:] for each in made_files.read_undo(source))
    known = {row["txid"]: row for row in expected.transactions.to_pylist()}

    def check(block_changes: Changes, undo_changes: Changes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "blk00000.dat").write_bytes(broken(blocks, block_changes))
            (Path(folder) / "rev00000.dat").write_bytes(broken(undo, undo_changes))
            found = rows_of_folder(Path(folder))
        for row in found:
            unknown = {name: None for name in BY_FEES if row[name] is None}
            # A header changed in time or nonce is another block, which on regtest often has its work.
            place = {"height": row["height"], "block_hash": row["block_hash"]}
            assert row == known[row["txid"]] | unknown | place

    return check


@settings(max_examples=60, deadline=None)
@given(block_changes=changes, undo_changes=changes | st.just([]))
def test_no_change_to_the_files_makes_a_wrong_row(
    check: Callable[[Changes, Changes], None], block_changes: Changes, undo_changes: Changes
) -> None:
    """Every row written equals the row of the node, except for fees that are not known."""
    check(block_changes, undo_changes)


def rows_of_folder(path: Path) -> list[dict[str, object]]:
    """Read a folder as a worker does, without a dataset."""
    try:
        folder = BlockFolder(path, "regtest")
    except SettingsError:  # no block is left in the file
        return []
    stock = read_catalogue(folder, lambda *_: None)
    wanted = [
        UndoRequest((0,), stock.headers[i, 4:36].tobytes(), int(stock.n_tx[i]), int(stock.undo_ranks[i]))
        for i in range(len(stock.at))
    ]
    if not wanted:
        return []
    undo, undo_limits = UndoFinder(folder).find(wanted)
    raws = [folder.read(0, int(stock.at[i]), int(stock.sizes_bytes[i])) for i in range(len(wanted))]
    raw_blocks = RawBlocks(
        refs=[
            BlockRef(stock.hashes[i].tobytes(), max(int(stock.heights[i]), 0), "tree", "blkfile", f"{i}")
            for i in range(len(wanted))
        ],
        data=np.frombuffer(b"".join(raws), np.uint8),
        limits=np.cumsum([0, *map(len, raws)]),
        undo=undo,
        undo_limits=undo_limits,
    )
    folder.close()
    chunk, _ = make_chunk(raw_blocks, "regtest", StageTimes())
    return transactions_table(chunk).to_pylist() if chunk is not None else []
