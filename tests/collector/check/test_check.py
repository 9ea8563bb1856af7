"""Test that a clean dataset passes, and that each planted fault is found by its check and by no other."""

import datetime as dt
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from collector.check.model import BREACH, NOTE, OK, CheckResult
from collector.check.run import check
from collector.cli import app
from collector.compaction import replacement
from collector.compaction.run import compact
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, MEMPOOL_EVENTS, MEMPOOL_TXS, TRANSACTIONS
from collector.dataset.schema.model import TRAITS
from collector.errors import DatasetError
from collector.journal.coverage_ledger import CoverageLedger
from collector.journal.journal import Journal
from collector.receive.records import COUNTER_RANGE, Message
from tests.collector.check.clean_view import CleanView, clean_view
from tests.collector.check.made_dataset import (
    ORIGIN,
    Rows,
    at_us,
    hash_of,
    make_all_rows,
    make_rows,
    name,
    write,
)

# The columns that files of version 0.1.0 lack.
LATER = {
    *(column.name for column in TRAITS),
    *("coinbase_version", "coinbase_sequence", "coinbase_locktime", "coinbase_reserved_value"),
    *("spent_types", "sigop_cost"),
}
LATER_OF_ENTRIES = {"version", "locktime", "output_types"}


def results(dataset: Dataset) -> dict[str, CheckResult]:
    """Check a dataset; return the results by name."""
    return {result.name: result for result in check(dataset)}


def breaches(dataset: Dataset) -> dict[str, str]:
    """Check a dataset; return the checks that found a breach, each with its first finding."""
    return breaches_of(results(dataset).values())


def breaches_of(found: Iterable[CheckResult]) -> dict[str, str]:
    """Return the checks that found a breach, each with its first finding."""
    return {each.name: each.findings[0].what for each in found if each.status == BREACH}


def test_a_clean_dataset_passes_every_check(tmp_path: Path) -> None:
    """No check finds anything, and each check has looked at some rows."""
    found = results(write(tmp_path / "d", make_all_rows()))
    assert {each.name: each.findings for each in found.values() if each.status != OK} == {}
    assert [each.name for each in found.values() if not each.n_rows] == []


def change(table: str, row: int, **values: Any) -> Callable[[Rows], None]:
    """Return a change of the rows that sets values in one row."""
    return lambda rows: rows[table][row].update(values)


def drop(table: str, row: int) -> Callable[[Rows], None]:
    """Return a change of the rows that leaves one row out."""
    return lambda rows: rows[table].pop(row) and None


def double(table: str, row: int, **values: Any) -> Callable[[Rows], None]:
    """Return a change of the rows that repeats one row with other values."""
    return lambda rows: rows[table].append({**rows[table][row], **values})


PLANTED: list[tuple[str, str, Callable[[Rows], None], set[str]]] = [
    ("a row twice", "grain", double("templates", 0), {"grain"}),
    ("a block told in two ways", "grain", double("blocks", 1, merkle_root=name("x")), {"grain", "hashes"}),
    (
        "a fee that is no difference",
        "ranges",
        change("transactions", 2, fee_sat=11),
        {"ranges", "transactions", "copies"},
    ),
    ("a negative counter that was pushed", "ranges", change("mempool_stats", 0, n_tx=-1), {"ranges"}),
    ("a weight that is none", "ranges", change("blocks", 0, weight_wu=7), {"ranges", "transactions"}),
    ("a reason for an addition", "ranges", change("mempool_events", 0, removal_reason="mined"), {"ranges"}),
    ("a lost transaction", "transactions", drop("transactions", 5), {"transactions", "numbers"}),
    ("a lost block", "transactions", drop("blocks", 2), {"transactions", "heights"}),
    (
        "transactions at another height",
        "transactions",
        change("transactions", 0, height=101),
        {"transactions"},
    ),
    ("an entry without its row", "first_seen", drop("mempool_txs", 3), {"first_seen"}),
    ("a block without its arrival", "first_seen", drop("block_arrivals", 1), {"first_seen"}),
    ("a missing height", "heights", drop("blocks", 1), {"heights", "transactions"}),
    (
        "a parent that is not there",
        "parents",
        change("blocks", 2, prev_hash=name("x")),
        {"parents", "arrivals", "hashes", "tips"},
    ),
    ("a merkle root that is wrong", "verdicts", change("blocks", 1, verdict="bad_merkle_root"), {"verdicts"}),
    ("a coinbase with another lock time", "hashes", change("blocks", 1, coinbase_locktime=7), {"hashes"}),
    (
        "a witness that the coinbase never had",
        "hashes",
        change("blocks", 1, coinbase_reserved_value=bytes(32)),
        {"hashes"},
    ),
    ("an nSequence that is none", "ranges", change("blocks", 1, coinbase_sequence=1 << 32), {"ranges"}),
    ("bytes of another transaction", "bodies", change("mempool_bodies", 0, txid=name("x")), {"bodies"}),
    ("an arrival at another height", "arrivals", change("block_arrivals", 0, height=7), {"arrivals"}),
    ("a session nobody knows", "sessions", change("templates", 0, session="x"), {"sessions", "templates"}),
    ("a lost transaction of a template", "templates", drop("template_txs", 1), {"templates"}),
    ("a lost template", "templates", drop("templates", 0), {"templates"}),
    ("intervals that overlap", "coverage", change("coverage", 1, from_at=at_us(2)), {"coverage"}),
    (
        "an interval that goes on nowhere",
        "coverage",
        change("coverage", 1, from_at=at_us(3) + 9),
        {"coverage"},
    ),
    (
        "an interval that ends before it begins",
        "coverage",
        change("coverage", 3, to_at=at_us(2)),
        {"coverage"},
    ),
    ("a lost message", "messages", drop("mempool_events", 5), {"messages", "numbers", "first_seen"}),
    (
        "a message that nobody claims",
        "messages",
        change("coverage", 1, last_sequence=5, n_messages=2),
        {"messages"},
    ),
    (
        "a number that jumps",
        "numbers",
        change("mempool_events", 6, mempool_sequence=18),
        {"numbers", "first_seen"},
    ),
    (
        "a number that goes back",
        "numbers",
        change("mempool_events", 1, mempool_sequence=9),
        {"numbers", "first_seen"},
    ),
    (
        "an entry without its message",
        "first_seen",
        change("mempool_txs", 1, txid=name("x")),
        {"first_seen", "ranges"},
    ),
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanView]:
    """Open a dataset without a fault that has a row of mempool_stats."""
    with clean_view(rows_with_stats(), tmp_path_factory.mktemp("check")) as opened:
        yield opened


def test_nothing_is_found_where_nothing_is_changed(clean: CleanView, tmp_path: Path) -> None:
    """No check finds a breach in the rows that the faults are planted in."""
    assert breaches_of(clean.check(rows_with_stats(), tmp_path).values()) == {}


@pytest.mark.parametrize(
    ("named", "plant", "others"), [each[1:] for each in PLANTED], ids=[each[0] for each in PLANTED]
)
def test_a_planted_breach_is_found(
    clean: CleanView, tmp_path: Path, named: str, plant: Callable[[Rows], None], others: set[str]
) -> None:
    """The named check finds the fault; only the checks in `others` may find it too."""
    rows = rows_with_stats()
    plant(rows)
    found = breaches_of(clean.check(rows, tmp_path).values())
    assert named in found
    assert set(found) <= others | {named}


def rows_with_stats() -> Rows:
    """Make all rows, and one of mempool_stats."""
    return {**make_all_rows(), "mempool_stats": [stats_row()]}


def stats_row() -> dict[str, Any]:
    """Make a row of mempool_stats."""
    row = {**ORIGIN, "taken_at": at_us(1), "n_tx": 1, "vsize_vb": 100, "usage_bytes": 1, "max_usage_bytes": 9}
    return row | {"fees_sat": 10, "min_feerate_sat_vb": 1.0, "histogram": []}


def test_missing_heights_are_named_as_ranges_with_what_fetches_them(tmp_path: Path) -> None:
    """Each range of missing heights is one finding with the command that fetches it."""
    rows = make_rows()
    for height in (105, 106, 108):
        rows["blocks"].append({**rows["blocks"][0], "height": height, "block_hash": hash_of(f"b{height}")})
        rows["blocks"][-1]["prev_hash"] = hash_of(f"b{height - 1}")
        rows["transactions"].append(
            {**rows["transactions"][0], "height": height, "block_hash": hash_of(f"b{height}")}
        )
    dataset = write(tmp_path / "d", rows)
    found = results(dataset)["heights"]
    assert [finding.what for finding in found.findings] == [
        "heights 103 to 104 are missing",
        "height 107 is missing",
    ]
    assert found.findings[0].mend == (
        f"pool-collector backfill --node --chain regtest --dataset {dataset.root} --from 103 --to 104"
    )
    assert found.n_found == 3


def test_a_block_stored_live_and_by_a_backfill_is_no_breach(tmp_path: Path) -> None:
    """Two copies of a block that agree are a note, even if only one has fees and their sources differ."""
    rows = make_rows()
    dataset = write(tmp_path / "d", rows)
    for row in rows["blocks"]:
        row |= {"fees_sat": None, "source": "blkfile", "height_source": "tree"}
    for row in rows["transactions"]:
        row |= {"fee_sat": None, "input_value_sat": None, "effective_feerate_sat_vb": None}
    write(tmp_path / "d", {name_: rows[name_] for name_ in ("blocks", "transactions")}, stem="backfill-1")
    found = results(dataset)
    assert (found["grain"].status, found["grain"].n_found) == (NOTE, 9)
    assert breaches(dataset) == {}


def test_what_a_running_collector_has_not_sealed_is_no_breach(tmp_path: Path) -> None:
    """Rows and messages that are still in the journal count as present."""
    rows = make_rows()
    for row in rows["coverage"]:
        row["end_reason"] = "sealed"
    waiting = rows["mempool_events"][6:]
    later = {name_: rows.pop(name_) for name_ in ("nodes", "templates", "template_txs")}
    rows["mempool_events"] = rows["mempool_events"][:6]
    entry = rows["mempool_txs"].pop(3)
    dataset = write(tmp_path / "d", rows)
    assert set(breaches(dataset)) == {"sessions", "messages"}
    with Journal(dataset.root / "journal" / "regtest" / "n") as journal:
        journal.recover(dataset)
        for name_, each in later.items():
            journal.append(name_, each)
        messages = [Message("n", "s", "sequence", row["sequence"], 0, b"") for row in waiting]
        journal.append_messages(messages)
        ledger = CoverageLedger("n", "s")
        ledger.open("sequence", at_us(6))
        ledger.count("sequence", 7, at_us(7))
        journal.append_messages([Message("n", "s", "sequence", 7, 0, b"")])
        journal.set_state("coverage/s", ledger.state())
        journal.flush()
        assert breaches(dataset) == {}
        assert results(dataset)["leftovers"].status == OK
        # A seal that is under way: of its files one is there, and its segment still is.
        (segment,) = journal._folder.glob("*.journal")
        partly = {"template_txs": [{**row, "taken_at": at_us(9)} for row in later["template_txs"]]}
        write(tmp_path / "d", partly, stem=segment.stem)
        assert breaches(dataset) == {}
    assert results(dataset)["leftovers"].findings[0].mend.startswith("`pool-collector run`")
    assert entry["txid"] == name("t4")


def test_transactions_of_a_running_backfill_are_no_breach_and_of_a_killed_one_are(tmp_path: Path) -> None:
    """Transactions without their block are a breach, except while a backfill holds its lock."""
    rows = make_rows()
    block = rows["blocks"].pop(2)
    dataset = write(tmp_path / "d", rows)
    assert block["height"] == 102
    assert "not in blocks" in breaches(dataset)["transactions"]
    with dataset.backfill_lock():
        assert breaches(dataset) == {}


def test_what_lies_about_is_named_and_no_breach(tmp_path: Path) -> None:
    """Unfinished, foreign and damaged files, and those of a killed compaction, are notes."""
    dataset = write(tmp_path / "d", make_rows())
    folder = dataset.paths(BLOCKS)[0].parent
    journal = dataset.root / "journal" / "regtest" / "n"
    journal.mkdir(parents=True)
    (dataset.root / ".compaction" / "regtest" / "old").mkdir(parents=True)
    left = [folder / ".x.parquet.tmp", folder / "notes.txt", folder / "x.parquet.damaged"]
    left += [journal / "00000001-aa.damaged", journal / "s.ring"]
    for path in left:
        path.write_bytes(b"x")
        os.utime(path, (time.time() - 7200,) * 2)
    found = results(dataset)["leftovers"]
    assert found.status == NOTE
    assert found.n_found == 6
    said = " ".join(finding.what for finding in found.findings)
    assert all(str(path) in said for path in left)
    for path in left:
        path.unlink()
    assert "killed compaction" in results(dataset)["leftovers"].findings[0].what


def test_a_compacted_dataset_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset passes every check after compaction."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    rows = make_rows()
    for number in range(4):
        part = {name_: each[number::4] for name_, each in rows.items()}
        dataset = write(tmp_path / "d", part, stem=f"seal-{number}")
    done = list(compact(dataset, today=dt.date(2024, 10, 5)))
    assert {result.partition.split("/")[0] for result in done} >= {"mempool_events", "coverage"}
    assert len(dataset.paths(MEMPOOL_EVENTS)) == 1
    assert len(dataset.paths(TRANSACTIONS)) == 4
    assert breaches(dataset) == {}


def test_a_dataset_of_version_0_1_0_reads_checks_and_compacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files without the columns that came later pass every check, alone and merged with newer ones.

    These columns are null where the older files lack them, and the other rows keep theirs.
    """
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    rows = make_all_rows()
    newer = rows["mempool_txs"].pop(2)
    dataset = write(tmp_path / "d", rows)
    for path in dataset.root.rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        later = LATER | LATER_OF_ENTRIES if MEMPOOL_TXS.name in path.parts else LATER
        kept = table.drop_columns([name for name in table.column_names if name in later])
        pq.write_table(kept, path, compression="zstd")
    assert all(row[name] is None for row in dataset.read(BLOCKS).to_pylist() for name in LATER & set(row))
    write(dataset.root, {"mempool_txs": [newer | {"version": 3, "output_types": ["anchor"]}]}, "00000002-aa")

    def versions() -> list[int | None]:
        return [row["version"] for row in dataset.read(MEMPOOL_TXS).to_pylist()]

    assert sorted(versions(), key=str) == [3, *[None] * (len(rows["mempool_txs"]))]
    assert breaches(dataset) == {}
    list(compact(dataset, today=dt.date(2024, 10, 5)))
    assert len(dataset.paths(MEMPOOL_TXS)) == 1
    assert sorted(versions(), key=str) == [3, *[None] * (len(rows["mempool_txs"]))]
    assert breaches(dataset) == {}


def test_the_command_prints_a_table_or_json_and_fails_on_a_breach(tmp_path: Path) -> None:
    """The exit status is 0 for a clean dataset, 1 for a breach and 2 for wrong usage."""
    rows = make_rows()
    dataset = write(tmp_path / "d", rows)
    clean = run_check(dataset.root)
    assert (clean.exit_code, clean.stdout.splitlines()[-1][:10]) == (0, "no breach;")
    write(tmp_path / "d", {"templates": rows["templates"]}, stem="again")
    broken = run_check(dataset.root, "--json")
    assert broken.exit_code == 1
    said = json.loads(broken.stdout)
    assert [each["name"] for each in said["checks"] if each["status"] == BREACH] == ["grain"]
    shown = run_check(dataset.root)
    assert (shown.exit_code, "mend: " in shown.stdout) == (1, True)
    assert run_check(dataset.root, "--nonsense").exit_code == 2
    assert isinstance(run_check(tmp_path).exception, DatasetError)  # which `main` prints, with status 1


def test_a_check_that_saw_nothing_does_not_say_ok(tmp_path: Path) -> None:
    """It says that it had no data, and so does the last line; a program reads how much was looked at."""
    rows = make_rows()
    write(tmp_path / "d", {name: rows[name] for name in ("blocks", "transactions")})
    some = run_check(tmp_path / "d").stdout
    results = {line.split()[0]: line.split()[1:4] for line in some.splitlines() if line[1:2].isalpha()}
    assert results["subsidies"][0] == "ok"
    assert results["templates"] == ["no", "data", "0"]
    assert re.fullmatch(r"no breach; \d+ checks had nothing to look at", some.splitlines()[-1])

    Dataset.open(tmp_path / "empty", "main", create=True)
    empty = run_check(tmp_path / "empty")
    assert empty.exit_code == 0
    assert empty.stdout.splitlines()[-1].startswith("no breach, because there was nothing to look at")
    assert " ok " not in empty.stdout.partition("leftovers")[0].partition("\n")[2]


def run_check(*arguments: Path | str) -> Result:
    """Run `pool-collector check` in this process."""
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


@pytest.mark.parametrize(
    ("first", "following", "end_reason", "is_fault"),
    [
        ((COUNTER_RANGE - 2, COUNTER_RANGE - 1), (0, 1), "sealed", False),
        ((COUNTER_RANGE - 2, 1), (2, 2), "sealed", False),
        ((COUNTER_RANGE - 2, COUNTER_RANGE - 1), (141, 142), "gap", False),
        ((COUNTER_RANGE - 2, COUNTER_RANGE - 1), (1, 1), "sealed", True),
        ((141, 142), (COUNTER_RANGE - 1, COUNTER_RANGE - 1), "gap", True),
        ((141, 142), (142, 143), "gap", True),
        ((7, 6), (7, 8), "gap", True),
    ],
)
def test_a_counter_wraps_at_32_bits(
    tmp_path: Path, first: tuple[int, int], following: tuple[int, int], end_reason: str, *, is_fault: bool
) -> None:
    """0 follows the highest counter, and a counter half the range ahead or more is a step back."""
    rows = make_rows()
    for number, ((low, high), reason) in enumerate(((first, end_reason), (following, "shutdown"))):
        counters = {"first_sequence": low, "last_sequence": high, "end_reason": reason}
        n_messages = {"n_messages": (high - low) % COUNTER_RANGE + 1}
        span = {"from_at": at_us(number), "to_at": at_us(number + 1)}
        rows["coverage"].append({**rows["coverage"][0], "topic": "rawblock"} | counters | n_messages | span)
    assert ("coverage" in breaches(write(tmp_path / "d", rows))) == is_fault


def with_a_turn(rows: Rows, n_before: int) -> None:
    """Let the counter of `sequence` return to 0 after the first `n_before` messages."""

    def turned(counter: int) -> int:
        return (counter - n_before) % COUNTER_RANGE

    for event in rows["mempool_events"]:
        if event["kind"] == "pushed":
            event["sequence"] = turned(event["sequence"])
    for interval in rows["coverage"]:
        if interval["topic"] in ("sequence", "mempool"):
            interval["first_sequence"] = turned(interval["first_sequence"])
            interval["last_sequence"] = turned(interval["last_sequence"])


@pytest.mark.parametrize("n_before", range(1, 7))
def test_nothing_is_found_where_the_counter_returns_to_0(
    clean: CleanView, tmp_path: Path, n_before: int
) -> None:
    """Message 0 follows message 4294967295, in an interval as between two."""
    rows = rows_with_stats()
    with_a_turn(rows, n_before)
    assert breaches_of(clean.check(rows, tmp_path).values()) == {}


OF_MESSAGES = ("messages", "numbers", "moments", "tips", "reasons", "first_seen")


@pytest.mark.parametrize(
    ("named", "plant", "others"),
    [each[1:] for each in PLANTED if each[1] in OF_MESSAGES],
    ids=[each[0] for each in PLANTED if each[1] in OF_MESSAGES],
)
def test_a_breach_is_found_where_the_counter_returns_to_0(
    clean: CleanView, tmp_path: Path, named: str, plant: Callable[[Rows], None], others: set[str]
) -> None:
    """Faults in messages are found there too, and no other ones."""
    rows = rows_with_stats()
    plant(rows)
    with_a_turn(rows, 4)
    found = breaches_of(clean.check(rows, tmp_path).values())
    assert named in found
    assert set(found) <= others | {named}


@pytest.mark.parametrize("topic", ["sequence", "mempool"])
def test_numbers_are_not_followed_across_a_hole_that_coverage_names(tmp_path: Path, topic: str) -> None:
    """The mempool sequence may jump across a gap in coverage and outside `mempool` intervals."""
    rows = make_rows()
    rows["mempool_events"][3]["mempool_sequence"] = rows["mempool_txs"][2]["mempool_sequence"] = 1014
    for number, entry in ((4, None), (6, 3)):
        rows["mempool_events"][number]["mempool_sequence"] += 1000
        if entry is not None:
            rows["mempool_txs"][entry]["mempool_sequence"] += 1000
    assert "numbers" in breaches(write(tmp_path / "one", rows))
    first, second = (row for row in rows["coverage"] if row["topic"] == topic)
    first |= {"end_reason": "gap", "last_sequence": 2, "n_messages": 3, "to_at": at_us(2)}
    second |= {"first_sequence": 3, "n_messages": 4, "from_at": at_us(3)}
    assert breaches(write(tmp_path / "two", rows)) == {}
    for row in rows["coverage"]:
        if row["topic"] == "mempool":
            row |= {"first_sequence": 0, "last_sequence": 6, "from_at": at_us(3), "to_at": at_us(6)}
    rows["coverage"] = [row for row in rows["coverage"] if row["topic"] == "sequence"] + [
        {**rows["coverage"][-1], "topic": "mempool", "n_messages": 7, "end_reason": "shutdown"}
    ]
    assert "numbers" not in breaches(write(tmp_path / "three", rows))
