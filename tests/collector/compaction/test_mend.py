"""Test that `mend` fills null fees from stored transactions, changes nothing else, and survives a kill."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collector.check.model import NOTE, OK
from collector.check.run import check
from collector.cli import app
from collector.compaction import replacement
from collector.compaction.mend import Mended, mend
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, MEMPOOL_TXS, TRANSACTIONS
from collector.journal.journal import Journal
from tests.collector.compaction.made_files import (
    DAY_US,
    MIDNIGHT_US,
    block,
    files,
    flip_a_bit_unseen_by_duckdb,
    seen,
    transaction,
)
from tests.collector.compaction.test_compact_kill import CHANGES_AND_KILL

DAY = "date=2024-10-04"


def entry(number: int, fee_sat: int | None = None, day: int = 0) -> dict[str, Any]:
    """Make a row of mempool_txs; the transaction of an even number is in a block."""
    row = {"node": "n", "session": "s", "txid": number.to_bytes(32, "big"), "first_seen_kind": "pushed"}
    row |= {"entered_at": MIDNIGHT_US + day * DAY_US + number, "mempool_sequence": number, "fee_sat": fee_sat}
    return row | {"fee_source": None if fee_sat is None else "mempool_entry"}


def mined(number: int) -> dict[str, Any]:
    """Make a row of transactions with a fee of 1,000 satoshi and the number."""
    return transaction(number, 1) | {"txid": number.to_bytes(32, "big"), "fee_sat": 1000 + number}


def fees(dataset: Dataset) -> dict[int, tuple[int | None, str | None]]:
    """Return fee and source of every entry by its number, read with DuckDB and none of our code."""
    rows = seen(dataset, MEMPOOL_TXS)
    found = {int.from_bytes(row["txid"], "big"): (row["fee_sat"], row["fee_source"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Store entries of two days, some without a fee, and the blocks of those with even numbers."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    made = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    made.write(TRANSACTIONS, [mined(number) for number in (2, 4, 6, 8)], stem="blocks")
    made.write(MEMPOOL_TXS, [entry(1), entry(2), entry(3, 7)], stem="a")
    made.write(MEMPOOL_TXS, [entry(4), entry(5, 9)], stem="b")
    made.write(MEMPOOL_TXS, [entry(6, 11), entry(7)], stem="c")  # nothing to fill
    made.write(MEMPOOL_TXS, [entry(8, None, day=1)], stem="d")
    return made


MENDED = {1: (None, None), 2: (1002, "block"), 3: (7, "mempool_entry"), 4: (1004, "block")}
MENDED |= {5: (9, "mempool_entry"), 6: (11, "mempool_entry"), 7: (None, None), 8: (1008, "block")}


def test_null_fees_are_filled_where_a_stored_transaction_has_them(dataset: Dataset) -> None:
    """Only null fees change, only files with such fees are replaced, and a second run does nothing."""
    before = {row["txid"]: row for row in seen(dataset, MEMPOOL_TXS)}

    assert list(mend(dataset)) == [
        Mended(f"mempool_txs/{DAY}", 2),
        Mended("mempool_txs/date=2024-10-05", 1),
    ]

    assert fees(dataset) == MENDED
    for row in seen(dataset, MEMPOOL_TXS):
        old = before[row["txid"]]
        assert {**row, "fee_sat": None, "fee_source": None} == {**old, "fee_sat": None, "fee_source": None}
    kept = files(dataset.folder / "mempool_txs" / DAY)
    assert len(kept) == 2
    assert "c.parquet" in kept
    assert list(mend(dataset)) == []
    assert files(dataset.root / ".compaction" / "regtest") == ["lock"]


def test_check_counts_what_mend_can_fill(dataset: Dataset) -> None:
    """`check` notes the missing fees with the command that fills them, and nothing afterwards."""
    (found,) = (result for result in check(dataset) if result.name == "fees")
    assert (found.status, found.n_found) == (NOTE, 3)
    assert "pool-collector mend --chain regtest" in found.findings[0].mend
    result = CliRunner().invoke(app, ["mend", str(dataset.root)])
    assert (result.exit_code, "3 fees filled" in result.stdout) == (0, True)
    (found,) = (result for result in check(dataset) if result.name == "fees")
    assert found.status == OK


def test_blocks_without_fees_are_named_with_what_fills_them(dataset: Dataset) -> None:
    """No entry can get its fee from such a block, so the last line says which backfill comes first."""
    dataset.write(BLOCKS, [block(7, fees_sat=None), block(9, fees_sat=None), block(8, fees_sat=0)], stem="b")
    result = CliRunner().invoke(app, ["mend", str(dataset.root)])
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last.startswith("2 blocks without fees: `pool-collector backfill --node --chain regtest")
    assert "--from 7 --to 9`" in last


def test_a_damaged_file_of_entries_is_left_and_named(dataset: Dataset) -> None:
    """Other partitions are mended."""
    damaged = dataset.folder / MEMPOOL_TXS.name / DAY / "a.parquet"
    flip_a_bit_unseen_by_duckdb(damaged, "txid")
    content = damaged.read_bytes()

    left, mended = mend(dataset)

    assert f"cannot read {damaged}: " in left.error
    assert mended == Mended("mempool_txs/date=2024-10-05", 1)
    assert damaged.read_bytes() == content


def test_no_fee_is_taken_from_damaged_transactions(dataset: Dataset) -> None:
    """A wrong fee would get a right checksum. The fees of other files are filled in."""
    (damaged,) = dataset.paths(TRANSACTIONS)
    sound = damaged.read_bytes()
    flip_a_bit_unseen_by_duckdb(damaged, "fee_sat")
    before = seen(dataset, MEMPOOL_TXS)

    (left,) = mend(dataset)
    assert f"cannot read {damaged}: " in left.error
    assert seen(dataset, MEMPOOL_TXS) == before

    damaged.with_name("sound.parquet").write_bytes(sound)
    left, *_ = mend(dataset)
    assert f"cannot read {damaged}: " in left.error
    assert fees(dataset) == MENDED


def test_a_file_that_a_journal_seals_again_is_left_alone(dataset: Dataset) -> None:
    """A file whose journal segment still exists is not replaced, as the journal will write it again."""
    with Journal(dataset.root / "journal" / "regtest" / "n") as journal:
        journal.recover(dataset)
        journal.append("mempool_txs", [entry(20)])
        journal.flush()
        (segment,) = (dataset.root / "journal" / "regtest" / "n").glob("*.journal")
        dataset.write(TRANSACTIONS, [mined(20)], stem="more")
        (path,) = dataset.write(MEMPOOL_TXS, [entry(20)], stem=segment.stem)
        assert len(list(mend(dataset))) == 2
        assert path.exists()
        assert fees(dataset) == MENDED | {20: (None, None)}


def test_a_file_that_cannot_be_read_is_named_and_nothing_changes(dataset: Dataset) -> None:
    """An unreadable file leads to one error line and status 1, and nothing changes."""
    path = dataset.paths(MEMPOOL_TXS)[0]
    path.write_bytes(path.read_bytes()[:-20])
    before = {path: path.read_bytes() for path in dataset.paths(MEMPOOL_TXS)}
    result = CliRunner().invoke(app, ["mend", str(dataset.root)])
    assert result.exit_code == 1
    assert "pool-collector check" in str(result.exception)
    assert {path: path.read_bytes() for path in dataset.paths(MEMPOOL_TXS)} == before


MEND = """
from collector.compaction import mend

def work(dataset):
    return mend.mend(dataset)
"""


def test_a_kill_before_any_step_leaves_every_row_once(dataset: Dataset) -> None:
    """After a kill at any step, each entry is there once, with no fee or with the right one."""
    statuses = []
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            MEND + CHANGES_AND_KILL,
            dataset.root,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as killer:
        assert killer.stdin is not None
        assert killer.stdout is not None
        for line in killer.stdout:
            statuses.append(line.strip())
            found = fees(dataset)
            assert {number: found[number][0] for number in MENDED} == {
                number: found[number][0] and fee for number, (fee, _) in MENDED.items()
            }
            if all(fee is not None for number, (fee, _) in found.items() if number not in {1, 7}):
                number = 100 + len(statuses)  # one more fee, so that there is something to mend again
                dataset.write(TRANSACTIONS, [mined(number)], stem=f"late-{number}")
                dataset.write(MEMPOOL_TXS, [entry(number, day=number)], stem="late")
            killer.stdin.write("\n")
            killer.stdin.flush()
    assert statuses[-1] == "0"
    assert statuses[:-1] == ["9"] * (len(statuses) - 1)
    assert len(statuses) > 10
    list(mend(dataset))
    assert {number: fee for number, fee in fees(dataset).items() if number < 100} == MENDED
    assert {fee for number, (fee, _) in fees(dataset).items() if number > 100 and fee is None} == set()
