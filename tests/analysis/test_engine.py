"""Test that a build opens datasets, names what it cannot read, and leaves nothing half-written."""

import datetime as dt
import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis import engine
from analysis.catalog import load_catalog
from analysis.checks import read_results
from analysis.database import connect, open_database
from analysis.engine import BuildResult, Step, build
from analysis.errors import AnalysisError, DatabaseError, DatasetError, RulesError
from analysis.parts import parts_folder
from collector.compaction.run import PartitionResult, compact
from collector.dataset.files import WRITE_LOCK
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from tests.analysis.world import label_bytes, write_table, write_world

RULES = Path(__file__).parent / "cases" / "pools"
BLOCK = {"block_hash": "a1", "height": 1, "arrived_at": 10}
# For tests in which it does not matter what is built; the manifest says which dataset a database may read.
ONE = ["chain_blocks"]
MANIFEST = ["run_manifest"]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Write a dataset of one block."""
    return write_world(tmp_path / "dataset", {"blocks": [BLOCK]})


def built(dataset: Path, **options: Any) -> BuildResult:
    """Build the dataset into a database beside it."""
    return build(dataset, RULES, dataset.parent / "build" / "analysis.duckdb", **options)


def only_file(dataset: Path, table: str) -> Path:
    """Return the path of the only file of a table."""
    (file,) = dataset.rglob(f"{table}/**/*.parquet")
    return file


def hash_in(result: BuildResult) -> str:
    """Return the hash of the dataset that a build recorded."""
    with open_database(result.database) as connection:
        ((found,),) = connection.execute(
            "SELECT value FROM run_manifest WHERE key = 'dataset_hash'"
        ).fetchall()
        return str(found)


def test_a_table_without_files_is_empty_with_the_types_of_the_contract(dataset: Path) -> None:
    """Every raw table is a view with the contract's columns and types, whether it has files or not."""
    with open_database(built(dataset, marts=MANIFEST).database) as connection:
        for table in TABLES.values():
            described = connection.execute(f"DESCRIBE {table.name}").fetchall()
            assert [name for name, *_ in described] == [column.name for column in table.columns]
        hashes = connection.execute("SELECT typeof(txid), count(*) FROM mempool_txs GROUP BY ALL").fetchall()
    assert hashes == []


def test_a_column_that_older_files_lack_is_null(dataset: Path) -> None:
    """Files with and without a nullable column are read together; a column of a later version is left out."""
    old = only_file(dataset, "blocks")
    table = pq.read_table(old)
    newer = table.set_column(
        table.schema.get_field_index("block_hash"),
        table.schema.field("block_hash"),
        pa.array([label_bytes("a2")], pa.binary(32)),
    ).append_column("of_the_future", pa.array([1]))
    pq.write_table(newer, old.with_name("b.parquet"))
    pq.write_table(table.drop_columns(["fees_sat", "witness_commitment"]), old)

    with open_database(built(dataset, marts=MANIFEST).database) as connection:
        rows = connection.execute("SELECT fees_sat FROM stg_blocks").fetchall()
        columns = [name for name, *_ in connection.execute("DESCRIBE stg_blocks").fetchall()]
    assert rows == [(None,), (None,)]
    assert columns == [column.name for column in TABLES["blocks"].columns]


def test_a_dataset_without_any_nullable_column_builds(dataset: Path) -> None:
    """Every column that may be null may also be missing in every file; each mart is made, as from nulls."""
    write_world(dataset.parent / "nulls", {"blocks": [BLOCK]})
    for path in dataset.rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        nullable = [field.name for field in table.schema if field.nullable]
        pq.write_table(table.drop_columns(nullable), path)
        nulls = [
            pa.nulls(len(table), field.type) if field.nullable else table[field.name]
            for field in table.schema
        ]
        other = dataset.parent / "nulls" / path.relative_to(dataset)
        pq.write_table(pa.Table.from_arrays(nulls, schema=table.schema), other)
    result, expected = (
        built(dataset),
        build(dataset.parent / "nulls", RULES, dataset.parent / "b" / "b.duckdb"),
    )
    with open_database(result.database) as one, open_database(expected.database) as two:
        for name in sorted({model.name for model in load_catalog().layer("marts")} - {"run_manifest"}):
            from_missing, from_nulls = (each.sql(f"FROM {name}").to_arrow_table() for each in (one, two))
            assert from_missing.to_pylist() == from_nulls.to_pylist(), name


def test_folder_names_never_become_columns(dataset: Path) -> None:
    """A partition folder named height=0-999 does not replace the column `height`."""
    file = only_file(dataset, "blocks")
    folder = file.parent.with_name("height=0-999")
    file.parent.rename(folder)

    with open_database(built(dataset, marts=MANIFEST).database) as connection:
        assert connection.execute("SELECT height FROM stg_blocks").fetchall() == [(1,)]


def test_any_folder_name_will_do(tmp_path: Path) -> None:
    """A dataset whose path has quotes, brackets and stars is read like any other."""
    dataset = write_world(tmp_path / "it's [a] *dataset*" / "é", {"blocks": [BLOCK]})

    assert built(dataset, marts=ONE).n_rows["chain_blocks"] == 1


def test_a_block_that_came_twice_counts_once(dataset: Path) -> None:
    """A block that came from the wire and from block files becomes one row, the one with fees."""
    row = BLOCK | {"n_tx": 2, "source": "blkfile", "fees_sat": 7}
    row.pop("arrived_at")
    again = dataset / "chain=regtest"
    write_table(again / "blocks" / "part=1" / "backfill.parquet", TABLES["blocks"], [row])
    rows = [{"block_hash": "a1", "height": 1, "tx_index": i, "is_coinbase": i == 0} for i in range(2)]
    write_table(again / "transactions" / "part=1" / "backfill.parquet", TABLES["transactions"], rows)

    result = built(dataset)

    with open_database(result.database) as connection:
        assert connection.execute("SELECT source, fees_sat FROM stg_blocks").fetchall() == [("blkfile", 7)]
        assert connection.execute("SELECT count(*) FROM stg_transactions").fetchall() == [(2,)]
    assert result.failed_checks == ()


def test_the_order_of_files_does_not_choose_between_copies_of_a_block(tmp_path: Path) -> None:
    """Of two copies that both know the fees, the same rows count whichever file comes first."""
    block = BLOCK | {"n_tx": 2, "fees_sat": 500}
    block.pop("arrived_at")
    row = {"block_hash": "a1", "height": 1, "txid": "t", "fee_sat": 500}
    copies = [
        {"blocks": block, "transactions": row},
        {
            "blocks": block | {"verified_by": "gpu", "height_source": "tree"},
            "transactions": row | {"effective_feerate_sat_vb": 7.0, "sigop_cost": 4},
        },
    ]
    found = []
    for order, (first, second) in {"ab": copies, "ba": reversed(copies)}.items():
        dataset = write_world(tmp_path / order, {})
        for name, copy in (("a", first), ("b", second)):
            for table, one in copy.items():
                path = dataset / "chain=regtest" / table / "part=0" / f"{name}.parquet"
                write_table(path, TABLES[table], [one])
        result = build(
            dataset, RULES, tmp_path / f"{order}.duckdb", marts=[*MANIFEST, "block_facts", "block_order"]
        )
        with open_database(result.database) as connection:
            names = ("stg_blocks", "stg_transactions")
            found.append([connection.sql(f"FROM {name}").fetchall() for name in names])

    assert found[0] == found[1]
    assert [len(rows) for rows in found[0]] == [1, 1]


def test_all_of_it_is_in_utc(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time zone of the machine does not move a block to another day."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    with open_database(built(dataset, marts=["pool_share_day"]).database) as connection:
        assert connection.execute("SELECT CAST(day AS VARCHAR) FROM pool_share_day").fetchall() == [
            ("2026-01-01",)
        ]


def missing(dataset: Path) -> None:
    """Delete the folder of the dataset."""
    shutil.rmtree(dataset)


def foreign(dataset: Path) -> None:
    """Delete the marker of the dataset."""
    (dataset / "dataset.json").unlink()


def of_another_program(dataset: Path) -> None:
    """Replace the marker with that of another program."""
    (dataset / "dataset.json").write_text('{"format": "other", "version": 1}')


def of_the_future(dataset: Path) -> None:
    """Raise the version in the marker."""
    (dataset / "dataset.json").write_text('{"format": "pool-measurement", "version": 99}')


def with_a_torn_marker(dataset: Path) -> None:
    """Cut the marker in the middle."""
    (dataset / "dataset.json").write_text('{"format": "pool-')


def empty(dataset: Path) -> None:
    """Delete everything in the dataset but the marker."""
    shutil.rmtree(dataset / "chain=regtest")


def with_a_torn_file(dataset: Path) -> None:
    """Cut off the footer of a Parquet file."""
    file = only_file(dataset, "transactions")
    file.write_bytes(file.read_bytes()[:-20])


def with_garbage_inside_a_file(dataset: Path) -> None:
    """Overwrite the data of a Parquet file and leave its footer."""
    file = only_file(dataset, "transactions")
    raw = bytearray(file.read_bytes())
    raw[4:300] = b"\xff" * 296
    file.write_bytes(raw)


def with_a_pipe(dataset: Path) -> None:
    """Put a named pipe among the files; opening it would never return."""
    os.mkfifo(only_file(dataset, "blocks").with_name("z.parquet"))


def with_a_foreign_file(dataset: Path) -> None:
    """Put a Parquet file of another schema beside the files of a table."""
    pq.write_table(pa.table({"x": [1]}), only_file(dataset, "blocks").with_name("z.parquet"))


def with_heights_as_text(dataset: Path) -> None:
    """Add a file of blocks whose heights are text."""
    file = only_file(dataset, "blocks")
    table = pq.read_table(file)
    place = table.schema.get_field_index("height")
    pq.write_table(table.set_column(place, "height", pa.array(["1"])), file.with_name("z.parquet"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (missing, "there is no dataset"),
        (foreign, "is not a dataset: it has no dataset.json"),
        (of_another_program, "marks the data of another program"),
        (of_the_future, "version 99"),
        (with_a_torn_marker, "dataset.json cannot be read"),
        (empty, "has no data yet"),
        (with_a_torn_file, r"transactions/part=0/a\.parquet cannot be read"),
        (with_garbage_inside_a_file, r"transactions/part=0/a\.parquet cannot be read"),
        (with_a_pipe, r"blocks/part=0/z\.parquet is no file but a pipe, device or folder"),
        (with_a_foreign_file, r"blocks/part=0/z\.parquet has no column block_hash"),
        (with_heights_as_text, r"blocks/part=0/z\.parquet: column height is VARCHAR, but blocks has INTEGER"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_read_is_named(dataset: Path, spoil: Callable[[Path], None], message: str) -> None:
    """A damaged dataset makes a build fail with one sentence that names the file, and leaves no database."""
    spoil(dataset)

    with pytest.raises(DatasetError, match=message) as error:
        built(dataset)
    assert "\n" not in str(error.value)
    assert not list(dataset.parent.rglob("*.duckdb"))


def test_a_chain_must_be_named_where_there_are_several(dataset: Path) -> None:
    """A dataset of two chains is refused without a chain, and with a chain that it lacks."""
    write_world(dataset, {"blocks": [BLOCK, BLOCK | {"block_hash": "b1", "height": 2}]}, chain="signet")

    with pytest.raises(DatasetError, match="signet, regtest; choose one"):
        built(dataset)
    with pytest.raises(DatasetError, match="no chain 'main'"):
        built(dataset, chain="main")
    assert built(dataset, chain="signet", marts=ONE).n_rows["chain_blocks"] == 2


def test_marts_need_no_dataset(dataset: Path) -> None:
    """Every mart can be read after the dataset is deleted, whether it is a table or a view on tables."""
    database = built(dataset).database
    shutil.rmtree(dataset)

    with open_database(database) as connection:
        for mart in load_catalog().layer("marts"):
            connection.execute(f"FROM {mart.name}")
        kinds = "SELECT table_type FROM information_schema.tables WHERE table_name = 'owner_periods'"
        assert connection.execute(kinds).fetchall() == [("VIEW",)]
        assert connection.execute("SELECT count(*) FROM owner_periods").fetchall() == [(12,)]


def test_a_build_that_fails_leaves_the_older_database(dataset: Path) -> None:
    """A failed build changes nothing in the older database and leaves no partial file beside it."""
    first = built(dataset, marts=ONE)
    before = first.database.read_bytes()
    with_a_torn_file(dataset)

    with pytest.raises(DatasetError):
        built(dataset)
    assert first.database.read_bytes() == before
    assert sorted(path.name for path in first.database.parent.iterdir()) == [
        "analysis.duckdb",
        "analysis.duckdb.marts",
    ]


def test_a_place_that_cannot_be_written_is_named(dataset: Path) -> None:
    """A file where the database's folder should be gives one sentence."""
    (dataset.parent / "build").write_text("in the way")

    with pytest.raises(DatabaseError, match="cannot be written"):
        built(dataset)


def test_a_file_that_the_system_does_not_open_is_named(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the system on a file of the dataset is not one on the database, which can be written."""
    file = only_file(dataset, "blocks")

    denied = PermissionError(errno.EACCES, "Permission denied", str(file))
    monkeypatch.setattr(engine, "raw_contents", Mock(side_effect=denied))
    with pytest.raises(DatasetError, match=r"blocks/part=0/a\.parquet cannot be read \(Permission denied\)"):
        built(dataset)

    error_of_copying = (errno.ENOSPC, "No space left on device", str(file), None, "copy")
    monkeypatch.setattr(engine, "raw_contents", Mock(side_effect=OSError(*error_of_copying)))
    with pytest.raises(DatabaseError, match="cannot be written"):
        built(dataset)


def test_rules_are_read_first(dataset: Path, tmp_path: Path) -> None:
    """A folder without rules raises RulesError before anything is built."""
    with pytest.raises(RulesError):
        build(dataset, tmp_path / "no-rules", tmp_path / "analysis.duckdb")


def test_checks_find_what_they_look_for(tmp_path: Path) -> None:
    """Each planted fault is found by the check for it, and by no other check."""
    world = {
        "blocks": [
            BLOCK,
            {"block_hash": "a2", "prev_hash": "a1", "height": 2, "verdict": "bad_txid"},
            {"block_hash": "a9", "prev_hash": "a8", "height": 9, "coinbase_value_sat": 5, "fees_sat": 1},
        ],
        "mempool_txs": [{"txid": "t", "entered_at": at, "fee_sat": 1} for at in (1, 2)],
    }
    dataset = write_world(tmp_path / "dataset", world)
    extra = [{"block_hash": "a9", "height": 9, "tx_index": 1, "txid": "x"}]
    write_table(
        dataset / "chain=regtest" / "transactions" / "part=1" / "b.parquet", TABLES["transactions"], extra
    )

    result = built(dataset)

    found = {check.name: (check.severity, check.n_offending) for check in result.checks if check.n_offending}
    assert found == {
        "blocks_not_valid": ("warn", 1),
        "heights_missing": ("warn", 1),
        "coinbase_within_reward": ("fail", 1),
        "transactions_match_blocks": ("fail", 1),
        "stays_overlap": ("warn", 1),
    }
    with open_database(result.database) as connection:
        assert read_results(connection) == result.checks


def test_a_row_that_is_there_twice_breaks_the_grain(dataset: Path) -> None:
    """The check made from a head's grain finds a key that two rows have."""
    row = {"topic": "rawtx", "from_at": 1, "to_at": 2}
    write_table(
        dataset / "chain=regtest" / "coverage" / "part=1" / "b.parquet", TABLES["coverage"], [row, row]
    )

    assert "stg_coverage_grain" in [
        check.name for check in built(dataset, marts=["coverage_intervals"]).failed_checks
    ]


def test_a_database_that_no_build_made_is_refused(tmp_path: Path) -> None:
    """Opening a missing file, or a file that is no database, raises DatabaseError with one sentence."""
    with pytest.raises(DatabaseError, match="there is no database"), open_database(tmp_path / "none"):
        pass
    (tmp_path / "text").write_text("no database")
    with pytest.raises(DatabaseError, match="is no DuckDB database"), open_database(tmp_path / "text"):
        pass


def test_temporary_files_have_a_bound(dataset: Path) -> None:
    """A build that needs more temporary files than it may have says so, and leaves no file."""
    rows = [{"block_hash": f"b{i}", "height": i, "coinbase_script": f"{i:032}" * 40} for i in range(40_000)]
    write_table(dataset / "chain=regtest" / "blocks" / "part=1" / "b.parquet", TABLES["blocks"], rows)

    with pytest.raises(
        DatabaseError, match=r"than its 0\.06 GB of memory and 0\.001 GB of temporary files in "
    ):
        built(dataset, memory_gb=0.06, temp_gb=0.001)
    assert [path.name for path in (dataset.parent / "build").iterdir()] == ["analysis.duckdb.marts"]
    assert not list((dataset.parent / "build").rglob("*.tmp"))


@pytest.mark.parametrize(("memory_gb", "of_duckdb_gb"), [(4.0, 3.65), (0.5, 0.25), (None, None)])
def test_memory_is_that_of_the_process(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, memory_gb: float | None, of_duckdb_gb: float | None
) -> None:
    """DuckDB gets what Python and the libraries leave of a build's memory, and half where that is little."""
    given: list[float | None] = []

    def connected(*path: Path, memory_gb: float | None = None, **options: Any) -> Any:
        given.append(memory_gb)
        return connect(*path, memory_gb=memory_gb, **options)

    monkeypatch.setattr(engine, "connect", connected)
    built(dataset, marts=MANIFEST, memory_gb=memory_gb)
    assert given == [of_duckdb_gb]


def test_errors_are_in_one_tree() -> None:
    """DatasetError, DatabaseError and RulesError are AnalysisErrors, which the command line catches."""
    assert all(issubclass(error, AnalysisError) for error in (DatasetError, DatabaseError, RulesError))


def test_compaction_changes_no_file_of_a_build_that_is_reading(dataset: Path) -> None:
    """A compaction that starts during a build waits until the build ends, and then merges the files."""
    file = only_file(dataset, "blocks")
    folder = file.parent.with_name("height=000000000-000000999")
    file.parent.rename(folder)
    write_table(folder / "b.parquet", TABLES["blocks"], [{"block_hash": "a2", "height": 2}])
    write_table(folder.with_name("height=000001000-000001999") / "c.parquet", TABLES["blocks"], [])
    target = Dataset(dataset, "regtest")
    with target.write_lock():
        pass
    outcomes: list[PartitionResult] = []
    compaction = threading.Thread(target=lambda: outcomes.extend(compact(target, today=dt.date(2030, 1, 1))))
    seen: list[list[str]] = []

    def progress(step: Step) -> None:
        if step.name == "pool_candidates":
            compaction.start()
        if step.name == "checks":
            compaction.join(1.0)  # enough to merge two files and to reach the swap
        seen.append(sorted(path.name for path in folder.glob("*.parquet")))

    result = built(dataset, progress=progress, marts=ONE)
    compaction.join()
    assert result.n_rows["chain_blocks"] == 2
    assert set(map(tuple, seen)) == {("a.parquet", "b.parquet")}
    assert [outcome.n_files for outcome in outcomes if outcome.merged] == [2]
    assert built(dataset, marts=ONE).n_rows["chain_blocks"] == 2


def test_a_file_that_is_sealed_during_a_build_is_for_the_next_one(dataset: Path) -> None:
    """Marts, checks and the record of a build have the files with which it began, and no later one."""
    later = dataset / "chain=regtest" / "blocks" / "later" / "b.parquet"
    before = hash_in(built(dataset, marts=[*ONE, *MANIFEST]))
    shutil.rmtree(dataset.parent / "build")

    def progress(step: Step) -> None:
        if step.name == "pool_candidates":
            write_table(later, TABLES["blocks"], [{"block_hash": "a2", "height": 2}])

    during = built(dataset, marts=[*ONE, *MANIFEST], progress=progress)
    assert during.n_rows["chain_blocks"] == 1
    assert during.failed_checks == ()
    assert hash_in(during) == before
    with open_database(during.database) as connection:  # its views find the file all the same, as before
        assert connection.execute("SELECT count(*) FROM blocks").fetchall() == [(2,)]
        comments = connection.execute("SELECT comment FROM duckdb_columns() WHERE table_name = 'blocks'")
        assert comments.fetchall() == [(column.doc,) for column in TABLES["blocks"].columns]
    after = built(dataset, marts=[*ONE, *MANIFEST])
    assert after.n_rows["chain_blocks"] == 2
    assert hash_in(after) != before


def test_a_dataset_that_may_only_be_read_is_built(dataset: Path) -> None:
    """A dataset whose lock file cannot be opened is built."""
    lock = dataset / "chain=regtest" / WRITE_LOCK
    assert not lock.exists()
    lock.symlink_to(lock)  # cannot be opened by anyone

    assert built(dataset, marts=ONE).n_rows["chain_blocks"] == 1


@pytest.mark.parametrize("text", ["# Notes\n", "x"])
def test_a_file_that_is_no_database_is_not_replaced(dataset: Path, tmp_path: Path, text: str) -> None:
    """A build that is told to make its database in place of another file fails, and the file stays."""
    path = tmp_path / "notes.md"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(DatabaseError, match="is no DuckDB database, so it is not replaced"):
        build(dataset, RULES, path, marts=["chain_blocks"])

    assert path.read_text(encoding="utf-8") == text
    assert not path.with_name("notes.md.marts").exists()


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE mine AS SELECT 1 AS a", "CREATE VIEW mine AS SELECT 1 AS a"]
)
def test_a_database_of_somebody_else_is_not_replaced(dataset: Path, tmp_path: Path, statement: str) -> None:
    """A build that is told to replace a DuckDB file which no build made fails, and the file stays."""
    path = tmp_path / "other.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(statement)

    with pytest.raises(DatabaseError, match="is no database of pool-analysis, so it is not replaced"):
        build(dataset, RULES, path, marts=["chain_blocks"])

    with duckdb.connect(path) as connection:
        assert connection.execute("FROM mine").fetchall() == [(1,)]


def test_a_database_of_a_build_is_replaced_without_its_parts(dataset: Path, tmp_path: Path) -> None:
    """A build replaces a database of an earlier build whose folder of parts is gone, and an empty one."""
    path = tmp_path / "a.duckdb"
    duckdb.connect(path).close()
    for _ in range(2):
        assert build(dataset, RULES, path, marts=ONE).n_rows["chain_blocks"] == 1
        shutil.rmtree(parts_folder(path))
