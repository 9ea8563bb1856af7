"""Undo data goes to the block it is of: not to a sibling, and from the folder's file beside any copy."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from collector.backfill.report import Report
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS
from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput
from gpuhash.reference import sha256d
from tests.collector.backfill import made_files
from tests.collector.codec.made_blocks import solved_block
from tests.collector.codec.made_undo import undo_of

Backfill = Callable[..., Report]
COIN_SAT = 5_000_000_000
SCRIPT = b"\x51"


def hash_of(block: bytes) -> bytes:
    """Return the hash of a block."""
    return sha256d(block[:80])


def spending(fee_sat: int, coin: int) -> RegtestTransaction:
    """Spend one coin, whose number tells it from others."""
    spent = TxInput(sha256d(bytes([coin])), 0, b"", (), 0xFFFFFFFF)
    return RegtestTransaction((spent,), (TxOutput(COIN_SAT - fee_sat, SCRIPT),))


def undo_record(block: bytes, value_sat: int = COIN_SAT) -> bytes:
    """Write the undo record of a block that spends one coin of a value: frame, undo data, checksum."""
    undo = undo_of([[(value_sat, SCRIPT)]], height=1)
    return made_files.frame(undo) + sha256d(block[4:36] + undo)


def fees_of(dataset: Dataset) -> dict[bytes, int | None]:
    """Map each stored block to its fees in satoshi."""
    return {row["block_hash"]: row["fees_sat"] for row in dataset.read(BLOCKS).to_pylist()}


@pytest.fixture
def siblings() -> tuple[list[bytes], bytes, bytes, bytes]:
    """Make blocks 0 and 1, two blocks 2 that spend one coin each, and a block 3 on the first of these."""
    trunk = [solved_block([], height=0)]
    trunk.append(solved_block([], height=1, prev_hash=hash_of(trunk[0])))
    active = solved_block([spending(1_000, 1)], height=2, prev_hash=hash_of(trunk[1]), tag=b"a")
    stale = solved_block([spending(2_000, 2)], height=2, prev_hash=hash_of(trunk[1]), tag=b"b")
    child = solved_block([], height=3, prev_hash=hash_of(active))
    return trunk, active, stale, child


def write(folder: Path, files: Sequence[Sequence[bytes]], records: dict[int, bytes]) -> Path:
    """Write block files, and the undo files with these contents by number."""
    made_files.write_files(folder, files)
    for number, content in records.items():
        (folder / f"rev{number:05d}.dat").write_bytes(content)
    return folder


@pytest.mark.parametrize("first", ["active", "stale"])
def test_a_block_that_was_never_connected_does_not_get_the_undo_data_of_its_sibling(
    first: str,
    siblings: tuple[list[bytes], bytes, bytes, bytes],
    dataset: Dataset,
    backfill: Backfill,
    tmp_path: Path,
) -> None:
    """The one record is that of the block in the active chain, whichever block came first."""
    trunk, active, stale, child = siblings
    pair = [active, stale] if first == "active" else [stale, active]

    report = backfill(write(tmp_path / "blocks", [[*trunk, *pair, child]], {0: undo_record(active)}))

    fees = fees_of(dataset)
    assert (fees[hash_of(active)], fees[hash_of(stale)]) == (1_000, None)
    assert report.result.n_without_fees == 1


def test_of_two_records_that_fit_none_is_guessed_to_be_a_blocks_own(
    siblings: tuple[list[bytes], bytes, bytes, bytes], dataset: Dataset, backfill: Backfill, tmp_path: Path
) -> None:
    """After a reorganisation both siblings have a record; unlike ones do not say which is whose."""
    trunk, active, stale, child = siblings
    records = undo_record(stale, COIN_SAT + 5_000) + undo_record(active)

    backfill(write(tmp_path / "blocks", [[*trunk, stale, active, child]], {0: records}))

    fees = fees_of(dataset)
    assert (fees[hash_of(active)], fees[hash_of(stale)]) == (None, None)


def test_of_two_tips_with_equal_work_neither_gets_the_record(
    siblings: tuple[list[bytes], bytes, bytes, bytes], dataset: Dataset, backfill: Backfill, tmp_path: Path
) -> None:
    """The node may have connected the tip that it received second; a later block decides."""
    trunk, active, stale, child = siblings
    folder = write(tmp_path / "blocks", [[*trunk, stale, active]], {0: undo_record(active)})
    backfill(folder)
    assert set(fees_of(dataset).values()) == {0, None}

    made_files.write_files(folder, [[*trunk, stale, active, child]])
    backfill(folder)

    fees = fees_of(dataset)
    assert (fees[hash_of(active)], fees[hash_of(stale)]) == (1_000, None)


def test_siblings_in_two_files_have_their_own_undo_files(
    siblings: tuple[list[bytes], bytes, bytes, bytes], dataset: Dataset, backfill: Backfill, tmp_path: Path
) -> None:
    """A record lies beside the file of its block, so that siblings of two files cannot be mixed up."""
    trunk, active, stale, child = siblings
    records = {0: undo_record(stale, COIN_SAT + 5_000), 1: undo_record(active)}

    backfill(write(tmp_path / "blocks", [[*trunk, stale], [active, child]], records))

    fees = fees_of(dataset)
    assert (fees[hash_of(active)], fees[hash_of(stale)]) == (1_000, 7_000)


def test_undo_data_beside_a_further_copy_of_a_block_is_found(
    siblings: tuple[list[bytes], bytes, bytes, bytes], dataset: Dataset, backfill: Backfill, tmp_path: Path
) -> None:
    """Where two files hold a block, the undo data may lie beside the second one, and may come later."""
    trunk, active, _, child = siblings
    files = [[*trunk, active], [active, child]]
    folder = write(tmp_path / "blocks", files, {})
    backfill(folder)
    assert fees_of(dataset)[hash_of(active)] is None

    write(folder, files, {1: undo_record(active)})
    late = backfill(folder)
    at_once = Dataset.open(tmp_path / "at-once", "regtest", create=True)
    backfill(folder, into=at_once)

    assert late.n_fees_filled == 1
    assert fees_of(dataset)[hash_of(active)] == fees_of(at_once)[hash_of(active)] == 1_000
