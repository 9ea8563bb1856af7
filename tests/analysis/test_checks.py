"""Test that each check is run where the dataset has what it needs, and else says what is missing."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from analysis import checks, engine
from analysis.catalog import load_catalog
from analysis.checks import CheckResult, counted, why_not_applicable
from analysis.engine import build
from collector.dataset.schema import DATASET_FORMAT, DATASET_MARKER, DATASET_VERSION, TABLES
from tests.analysis.test_cli import run
from tests.analysis.world import Rows, write_table, write_world

RULES = Path(__file__).parent / "cases" / "pools"
CHECKS = {model.name for model in load_catalog().layer("checks")}
# Two lists with a hole between them, and a block table that begins above a label.
IMPORTS: Mapping[str, Rows] = {
    "external_pool_labels": [{"source": "list", "height": h, "label": "A"} for h in (1, 2, 3, 90, 199)],
    "external_blocks": [
        {
            "source": "table",
            "block_hash": f"t{h}",
            "height": h,
            "n_tx": 1,
            "fees_sat": 0,
            "coinbase_script": "x",
        }
        for h in (200, 201, 205)
    ],
    "external_arrivals": [
        {"source": "clock", "block_hash": f"t{h}", "height": h, "arrived_at": h} for h in (200, 201)
    ],
    "external_prices": [{"source": "prices", "currency": "USD", "day_at": 0, "close": 1.0}],
}
BLOCKS: tuple[dict[str, Any], ...] = (
    {"block_hash": "a1", "height": 1, "n_tx": 2},
    {"block_hash": "a2", "prev_hash": "a1", "height": 2},
)


def write_tables(root: Path, tables: Mapping[str, Rows]) -> Path:
    """Write a dataset that has these rows and nothing else: no node and no coverage."""
    for name, rows in tables.items():
        write_table(root / "chain=main" / name / "part=0" / "a.parquet", TABLES[name], rows)
    (root / DATASET_MARKER).write_text(json.dumps({"format": DATASET_FORMAT, "version": DATASET_VERSION}))
    return root


def outcomes(dataset: Path) -> dict[str, CheckResult]:
    """Build a dataset; return the results of the checks that have an SQL file, by name."""
    results = build(dataset, RULES, dataset.parent / "analysis.duckdb").checks
    assert [check.name for check in results if check.name not in CHECKS and check.outcome == "failed"] == []
    return {check.name: check for check in results if check.name in CHECKS}


def passed(found: Mapping[str, CheckResult]) -> set[str]:
    """Name the checks that passed; every other one is not applicable, with a reason."""
    assert {check.outcome for check in found.values()} <= {"passed", "not applicable"}
    assert all(check.missing for check in found.values() if check.outcome == "not applicable")
    return {name for name, check in found.items() if check.outcome == "passed"}


def test_imports_alone_are_checked_for_what_they_promise(tmp_path: Path) -> None:
    """Lists of others may have holes, name no parents and no transactions: no check demands these of them."""
    found = outcomes(write_tables(tmp_path / "dataset", IMPORTS))

    assert passed(found) == {"one_active_block_per_height", "shares_sum_to_one"}
    assert "others promise no transactions" in str(found["transactions_match_blocks"].missing)


def test_where_memory_ends_for_two_checks_each_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks of which each fits in memory, but not two at the same time, have their results all the same."""
    dataset = write_tables(tmp_path / "dataset", IMPORTS)
    expected = build(dataset, RULES, tmp_path / "alone.duckdb", threads=1).checks
    run_alone = checks._run_if_changed

    def without_memory(*arguments: Any) -> CheckResult:
        if threading.current_thread() is not threading.main_thread():
            raise duckdb.OutOfMemoryException("no memory is left")
        return run_alone(*arguments)

    monkeypatch.setattr(checks, "_run_if_changed", without_memory)
    monkeypatch.setattr(engine, "_queries_at_once", lambda *_: 2)

    assert build(dataset, RULES, tmp_path / "a.duckdb").checks == expected


@pytest.mark.parametrize("name", sorted(IMPORTS))
def test_one_kind_of_import_is_enough(tmp_path: Path, name: str) -> None:
    """A dataset of one kind of list is built, and no check fails."""
    found = outcomes(write_tables(tmp_path / "dataset", {name: IMPORTS[name]}))

    expected = {
        "external_prices": set(),
        "external_arrivals": {"one_active_block_per_height"},  # which do not tell who mined
    }
    assert passed(found) == expected.get(name, {"one_active_block_per_height", "shares_sum_to_one"})


def test_an_imported_name_that_is_none_of_ours_is_told(tmp_path: Path) -> None:
    """The check warns, says where such names are listed, and its line counts the names, not the blocks."""
    given = [{"source": "list", "file_name": "list.csv", "licence": "CC0-1.0"}]
    tables = {
        "external_sources": given,
        "external_pool_labels": [
            {"source": "list", "height": height, "label": label}
            for height, label in enumerate(("Alpha", "NoSuchPool", "NoSuchPool", "unknown"))
        ],
    }

    found = outcomes(write_tables(tmp_path / "dataset", tables))["labels_mapped"]

    assert (found.outcome, found.n_offending) == ("warned", 1)
    assert "pool-analysis show unmapped_label" in found.summary


def test_a_backfill_alone_is_checked_for_its_blocks(tmp_path: Path) -> None:
    """Blocks from files without fees promise transactions and parents, and no mempool and no sums of fees."""
    world = {"blocks": [block | {"source": "blkfile"} for block in BLOCKS], "coverage": []}

    found = outcomes(write_world(tmp_path / "dataset", world))

    assert CHECKS - passed(found) == {
        "coinbase_within_reward",
        "labels_mapped",
        "own_transactions_were_waiting",
        "stays_overlap",
    }


def test_a_watched_node_is_checked_for_everything(tmp_path: Path) -> None:
    """With blocks, fees and a mempool that were seen, every check is run but that of imported names."""
    world = {
        "blocks": [
            block | {"arrived_at": 100.0 * n, "fees_sat": 0} for n, block in enumerate(BLOCKS, start=1)
        ],
        "mempool_txs": [{"txid": "t", "entered_at": 120, "fee_sat": 1}],
    }

    assert passed(outcomes(write_world(tmp_path / "dataset", world))) == CHECKS - {"labels_mapped"}


def test_own_blocks_beside_imports_are_still_checked(tmp_path: Path) -> None:
    """A hole between our own blocks is found, also where a list below begins earlier; a list may fill it."""
    own = {
        "blocks": [{"block_hash": f"a{h}", "prev_hash": f"a{h - 1}", "height": h} for h in (198, 200, 202)]
    }
    dataset = write_world(tmp_path / "dataset", own, chain="main")
    write_tables(dataset, {"external_pool_labels": IMPORTS["external_pool_labels"]})

    found = outcomes(dataset)

    assert (found["heights_missing"].outcome, found["heights_missing"].n_offending) == ("warned", 1)
    assert found["active_chain_unbroken"].outcome == "passed"  # a label has no hash that could differ


def test_build_and_check_say_the_outcome_and_the_reason(tmp_path: Path) -> None:
    """`build` gives a line per reason; `check` a line per check, as a table, CSV or JSON."""
    dataset, database = write_tables(tmp_path / "dataset", IMPORTS), tmp_path / "a.duckdb"
    built = run("build", "--dataset", dataset, "--database", database, "--pools", RULES)
    table = run("check", "--database", database)
    as_json = run("check", "--database", database, "--format", "json")

    assert [result.returncode for result in (built, table, as_json)] == [0, 0, 0]
    assert "not applicable: stays_overlap: no transaction was seen in a mempool" in built.stdout
    rows = {row["name"]: row for row in json.loads(as_json.stdout)}
    assert rows["stays_overlap"]["outcome"] == "not applicable"
    assert rows["stays_overlap"]["reason"] == "no transaction was seen in a mempool"
    assert rows["pool_share_grain"] == {
        "name": "pool_share_grain",
        "outcome": "passed",
        "n_offending": 0,
        "reason": None,
    }
    n_passed = sum(row["outcome"] == "passed" for row in rows.values())
    line = f"{len(rows)} checks: {n_passed} passed, {len(rows) - n_passed} not applicable"
    assert line in built.stdout.splitlines()
    assert line in table.stdout.splitlines()
    assert as_json.stderr.splitlines() == [line]


def test_reasons_are_said_once() -> None:
    """Checks with one reason share a line, and so do the grains of all empty relations."""
    results = [
        CheckResult(name=name, severity="fail", summary="s", n_offending=n, missing=missing)
        for name, n, missing in [
            ("a", 0, "no block"),
            ("b", 0, "no block"),
            ("c", 2, None),
            ("x_grain", 0, "x has no rows"),
            ("y_grain", 0, "y has no rows"),
        ]
    ]

    assert counted(results) == "5 checks: 1 failed, 4 not applicable"
    assert why_not_applicable(results) == [
        "not applicable: a, b: no block",
        "not applicable: the grain of relations without rows: 2",
    ]


@pytest.mark.parametrize("together", [1, 1_000_000], ids=["alone", "together"])
def test_equal_keys_are_counted_however_many_files_are_looked_at_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Two of three days have a transaction twice; a fourth day adds one, and the earlier counts stay."""
    monkeypatch.setattr(checks, "TOGETHER_ROWS", together)
    dataset = write_world(tmp_path / "dataset", {"blocks": BLOCKS})
    for day, txids in enumerate(["abb", "ab", "aab", "aa"]):
        rows = [{"txid": txid, "entered_at": day * 86_400 + 60} for txid in txids]
        path = dataset / "chain=regtest" / "mempool_txs" / f"part={day}" / "a.parquet"
        write_table(path, TABLES["mempool_txs"], rows)
        if day > 1:
            result = build(dataset, RULES, tmp_path / "a.duckdb", marts=["mempool_entries"])
            found = {check.name: check.n_offending for check in result.checks}
            assert found["stg_mempool_txs_grain"] == day
