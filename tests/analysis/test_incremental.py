"""Test that a build makes only what changed, gives what a build from nothing gives, and survives failures."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from analysis import engine, manifest
from analysis.catalog import load_catalog
from analysis.database import ask, open_database
from analysis.engine import BuildResult, Step, build
from analysis.errors import DatabaseError
from analysis.parts import Inputs, Part, PartsFolder, open_parts, parts_folder
from analysis.watch import changes
from collector.dataset.schema import TABLES
from tests.analysis.world import write_table, write_world

RULES = Path(__file__).parent / "cases" / "pools"
MARTS = ("block_pool", "pool_share", "mempool_cuts", "coverage_intervals")
BLOCKS = [
    {"block_hash": f"a{i}", "prev_hash": f"a{i - 1}", "height": i, "coinbase_script": "/Alpha/"}
    for i in range(1, 6)
]
WORLD = {
    "blocks": BLOCKS[:3],
    "mempool_events": [{"event": "C", "hash": f"a{i}", "received_at": 600 * i} for i in (1, 2, 3)],
}
COMMIT = "planted"
# Runs `build` in a process of its own; the third argument names a mart at which the process kills itself.
BUILD = f"""
import os, resource, signal, sys
from pathlib import Path
from analysis import engine, manifest
from analysis.errors import AnalysisError
manifest.commit = lambda: "{COMMIT}"
dataset, rules, database, name, marts = *map(Path, sys.argv[1:4]), sys.argv[4], sys.argv[5].split(",")
def progress(step):
    if step.name == name == "checks" or (step.name == name and step.number):
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "full" and step.name == marts[1]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    engine.build(dataset, rules, database, marts=marts, progress=progress)
except AnalysisError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a dataset of three blocks.

    All processes name one commit: git may be too slow for one of them, and the commit is a fact of a build.
    """
    monkeypatch.setattr(manifest, "commit", lambda: COMMIT)
    return write_world(tmp_path / "dataset", WORLD)


def built(dataset: Path, name: str = "a.duckdb", **options: Any) -> BuildResult:
    """Build some marts of the dataset beside it."""
    return build(dataset, options.pop("rules", RULES), dataset.parent / name, **{"marts": MARTS, **options})


def in_a_process(dataset: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Build in a process of its own; see BUILD."""
    command = [
        sys.executable,
        "-c",
        BUILD,
        dataset,
        RULES,
        dataset.parent / "a.duckdb",
        name,
        ",".join(MARTS),
    ]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def rows(database: Path) -> dict[str, pa.Table]:
    """Read every mart of a database."""
    with open_database(database) as connection:
        names = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
        marts = {model.name for model in load_catalog().layer("marts")} & {name for (name,) in names}
        return {name: connection.sql(f"FROM {name}").to_arrow_table() for name in sorted(marts)}


def add_block(dataset: Path, height: int = 4) -> None:
    """Add the next block, as a seal would."""
    path = dataset / "chain=regtest" / "blocks" / f"part={height}" / "b.parquet"
    write_table(path, TABLES["blocks"], [BLOCKS[height - 1]])


def test_a_new_block_matches_the_coinbases_of_its_own_heights_alone(tmp_path: Path) -> None:
    """What the rules match 5,000 heights below stays in its file, and a build from nothing finds the same."""
    far = {"block_hash": "f1", "prev_hash": "f0", "height": 5001, "coinbase_script": "/Beta/"}
    dataset = write_world(tmp_path / "dataset", {"blocks": [*BLOCKS[:3], far]})
    database = built(dataset, marts=["block_pool"]).database
    folder = parts_folder(database) / "pool_candidates"
    before = {path.name for path in folder.iterdir()}
    path = dataset / "chain=regtest" / "blocks" / "part=2" / "b.parquet"
    write_table(path, TABLES["blocks"], [far | {"block_hash": "f2", "prev_hash": "f1", "height": 5002}])

    again = built(dataset, marts=["block_pool"])

    assert "pool_candidates" in again.made
    with open_parts(database) as parts:
        named = {Path(file).name for file in parts.state.in_ranges["pool_candidates"].files}
    assert (len(before), len(named), len(before & named)) == (2, 2, 1)
    anew = built(dataset, "anew.duckdb", marts=["block_pool"])
    query = "FROM pool_candidates ORDER BY ALL"
    with open_database(again.database) as found, open_database(anew.database) as expected:
        assert found.sql(query).fetchall() == expected.sql(query).fetchall()
        assert len(found.sql(query).fetchall()) == len(BLOCKS[:3]) + 2


def test_a_repeated_build_makes_nothing(dataset: Path) -> None:
    """The second build leaves the file as it is, and tells the same results."""
    first = built(dataset)
    before = first.database.stat()

    again = built(dataset)

    assert set(MARTS) < set(first.made)
    assert again.made == ()
    assert (again.n_rows, again.checks) == (first.n_rows, first.checks)
    assert os.path.samestat(before, first.database.stat())


def test_new_rows_cost_what_reads_them_and_no_more(dataset: Path) -> None:
    """A new block makes its marts again and no others; the result is that of a build from nothing."""
    first = built(dataset)
    add_block(dataset)

    again = built(dataset)

    assert {"block_pool", "pool_share"} <= set(again.made)
    assert "coverage_intervals" not in again.made
    assert again.n_rows["block_pool"] == first.n_rows["block_pool"] + 1
    assert rows(again.database) == rows(built(dataset, "anew.duckdb").database)


def test_the_wave_stops_where_rows_stay_equal(dataset: Path) -> None:
    """Another fact of the build makes block_pool again; its rows stay equal, so its readers are not made."""
    built(dataset)
    path = dataset / "chain=regtest" / "coverage" / "part=4" / "b.parquet"
    write_table(path, TABLES["coverage"], [{"topic": "rawtx", "from_at": 1, "to_at": 2}])

    again = built(dataset)

    assert {"block_pool", "coverage_intervals"} <= set(again.made)
    assert "pool_share" not in again.made
    assert rows(again.database) == rows(built(dataset, "anew.duckdb").database)


def test_a_changed_rule_makes_attribution_and_what_reads_it(dataset: Path, tmp_path: Path) -> None:
    """Marts that know no pool stay."""
    rules = tmp_path / "pools"
    shutil.copytree(RULES, rules)
    built(dataset, rules=rules)
    with (rules / "alpha.toml").open("a") as source:
        source.write('\n[[rules]]\ntag = "/Never seen/"\nsource = "test"\n')

    again = built(dataset, rules=rules)

    assert {"pool_candidates", "block_pool"} <= set(again.made)
    assert not {"mempool_cuts", "coverage_intervals"} & set(again.made)
    assert rows(again.database) == rows(built(dataset, "anew.duckdb", rules=rules).database)


def test_a_changed_alias_names_the_blocks_that_others_labelled_so(tmp_path: Path) -> None:
    """The alias names blocks without a coinbase. A changed link, which decides nothing, is taken over too."""
    tables = {"external_pool_labels": [{"source": "list", "height": 1, "label": "Bee"}]}
    dataset, rules = write_world(tmp_path / "dataset", tables), tmp_path / "pools"
    shutil.copytree(RULES, rules)
    pool = rules / "alpha.toml"
    first = built(dataset, rules=rules, marts=("block_pool",))
    pool.write_text('aliases = ["Bee"]\n' + pool.read_text())
    second = built(dataset, rules=rules, marts=("block_pool",))
    named = rows(second.database)["block_pool"]["pool"].to_pylist()
    pool.write_text('link = "https://alpha.example"\n' + pool.read_text())
    third = built(dataset, rules=rules, marts=("block_pool",))

    assert named == ["alpha"]
    assert first.rules_hash != second.rules_hash == third.rules_hash
    with open_database(third.database) as connection:
        links = connection.execute("SELECT link FROM pools WHERE slug = 'alpha'").fetchall()
    assert links == [("https://alpha.example",)]


def test_compaction_makes_no_mart_again(dataset: Path) -> None:
    """The same rows in other files change only the catalogue."""
    add_block(dataset)
    first = rows(built(dataset).database)
    files = sorted(dataset.rglob("blocks/**/*.parquet"))
    joined = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
    pq.write_table(joined, files[0].with_name("joined.parquet"))
    for file in files:
        file.unlink()

    again = built(dataset)

    assert again.made == ()
    assert rows(again.database) == first


def test_a_plan_says_what_a_build_would_do_and_why(dataset: Path) -> None:
    """The plan names what changed, and what depends on the rows of a mart that is made first."""
    database = dataset.parent / "a.duckdb"
    anew = engine.plan(dataset, RULES, database)
    assert {(mart.action, mart.reason) for mart in anew} == {("make", "it has not been made")}
    assert not database.exists()
    build(dataset, RULES, database)
    assert {mart.action for mart in engine.plan(dataset, RULES, database)} == {"keep"}

    add_block(dataset)

    planned = {mart.name: mart for mart in engine.plan(dataset, RULES, database)}
    assert planned["coverage_intervals"].action == "keep"
    assert planned["pool_candidates"].reason == "changed: stg_blocks"
    assert planned["pool_share"].action == "perhaps"
    made = build(dataset, RULES, database).made
    assert set(made) <= {name for name, mart in planned.items() if mart.action != "keep"}


@pytest.mark.parametrize("change", [lambda whole: whole[:-1], lambda whole: bytes(reversed(whole))])
def test_a_damaged_or_replaced_part_is_made_again(dataset: Path, change: Callable[[bytes], bytes]) -> None:
    """A part that lost bytes is not used, nor one that was written over with as many."""
    first = rows(built(dataset).database)
    (part,) = parts_folder(dataset.parent / "a.duckdb").glob("block_pool/*.parquet")
    part.write_bytes(change(part.read_bytes()))

    again = built(dataset)

    assert again.made == ("block_pool",)
    assert rows(again.database) == first


def test_a_part_with_another_time_and_its_bytes_is_kept(dataset: Path) -> None:
    """A copy of the folder need not be made again."""
    built(dataset)
    for part in parts_folder(dataset.parent / "a.duckdb").glob("*/*.parquet"):
        os.utime(part, ns=(0, 0))

    assert built(dataset).made == ()


@pytest.mark.parametrize("name", ["pool_share", "checks"])
def test_a_killed_build_leaves_the_older_state_and_its_work(dataset: Path, name: str) -> None:
    """After SIGKILL the older database can be read, and what was made is not made again."""
    first = built(dataset)
    before = rows(first.database)
    add_block(dataset)

    assert in_a_process(dataset, name).returncode == -signal.SIGKILL
    assert rows(first.database) == before
    again = built(dataset)

    assert "block_pool" not in again.made
    assert again.n_rows["block_pool"] == 4
    assert rows(again.database) == rows(built(dataset, "anew.duckdb").database)
    assert not list(dataset.parent.rglob("*.tmp")) + list(dataset.parent.glob(".building-*"))


def test_a_missing_part_that_no_mart_needs_does_not_end_a_build(dataset: Path) -> None:
    """A part of a killed build whose file is gone, and whose inputs have changed since, is forgotten."""
    folder = parts_folder(built(dataset).database)
    before = set(folder.glob("block_pool/*.parquet"))
    add_block(dataset)
    assert in_a_process(dataset, "checks").returncode == -signal.SIGKILL
    (part,) = set(folder.glob("block_pool/*.parquet")) - before
    part.unlink()
    add_block(dataset, height=5)

    again = built(dataset)

    assert again.n_rows["block_pool"] == 5
    with open_parts(again.database) as parts:
        assert part.relative_to(folder).as_posix() not in parts.state.parts


def test_a_full_disk_ends_a_build_with_one_sentence(dataset: Path) -> None:
    """A part that cannot be written leaves no half file; the older database stays, the next build goes on."""
    first = built(dataset)
    before = rows(first.database)
    add_block(dataset)

    ended = in_a_process(dataset, "full")

    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert "cannot" in ended.stderr
    assert rows(first.database) == before
    assert rows(built(dataset).database) == rows(built(dataset, "anew.duckdb").database)


def test_two_builds_of_one_database_are_refused(dataset: Path) -> None:
    """The second build, in a process of its own too, says that another one runs, and changes nothing."""
    database = dataset.parent / "a.duckdb"

    with open_parts(database):
        elsewhere = in_a_process(dataset, "no mart")
        with pytest.raises(DatabaseError, match="another build is making"):
            built(dataset)
    assert elsewhere.returncode == 1
    assert "another build is making" in elsewhere.stderr
    assert not database.exists()
    assert built(dataset).n_rows["block_pool"] == 3


def test_marts_outside_the_file_are_read_and_nothing_else(dataset: Path) -> None:
    """Views on parts keep digits, order and types; a query can open no other file."""
    inside = rows(built(dataset).database)
    outside = built(dataset, "outside.duckdb", inside_bytes=0).database

    assert rows(outside) == inside
    assert inside["mempool_cuts"].num_rows == 3
    with open_database(outside) as connection:
        kinds = "SELECT table_type FROM information_schema.tables WHERE table_name = 'mempool_cuts'"
        assert connection.execute(kinds).fetchall() == [("VIEW",)]
        with pytest.raises(Exception, match="disabled"):
            ask(connection, f"FROM read_parquet('{parts_folder(dataset.parent / 'a.duckdb')}/*/*')")


def test_old_parts_go_when_no_catalogue_names_them(dataset: Path) -> None:
    """The parts of this build and of the one before stay, so a reader of the older one is not disturbed."""
    outside = {"inside_bytes": 0}
    database = built(dataset, **outside).database
    (first,) = (parts_folder(database) / "block_pool").iterdir()
    with open_database(database) as reader:
        add_block(dataset)
        built(dataset, **outside)
        assert reader.sql("SELECT count(*) FROM block_pool").fetchall() == [(3,)]
    add_block(dataset, height=5)
    built(dataset, **outside)

    assert not first.exists()
    assert len(list((parts_folder(database) / "block_pool").iterdir())) == 2


def test_a_build_that_could_not_record_its_end_keeps_the_files_of_its_database(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the database that it left can go on while the next build ends."""
    outside = {"inside_bytes": 0}
    built(dataset, **outside)
    add_block(dataset)

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as at_the_end:
        at_the_end.setattr(PartsFolder, "finish", full)
        with pytest.raises(DatabaseError, match="is complete"):
            built(dataset, **outside)
    with open_database(dataset.parent / "a.duckdb") as reader:
        assert reader.sql("SELECT count(*) FROM block_pool").fetchall() == [(4,)]
        add_block(dataset, height=5)
        built(dataset, **outside)
        assert reader.sql("SELECT count(*) FROM block_pool").fetchall() == [(4,)]


def test_files_are_read_again_by_other_versions(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older DuckDB summed up of the same files does not get into the hash of the dataset."""
    parts = PartsFolder(parts_folder(built(dataset, marts=["run_manifest"]).database))
    for facts in parts.state.raw_files.values():
        facts[3] += 1
    parts.save()
    monkeypatch.setattr(engine, "versions_hash", lambda: "those of a newer DuckDB")

    again, anew = (built(dataset, name, marts=["run_manifest"]).database for name in ("a.duckdb", "b.duckdb"))

    manifests = [rows(database)["run_manifest"] for database in (again, anew)]
    assert manifests[0].filter(pc.field("key") == "dataset_hash") == manifests[1].filter(
        pc.field("key") == "dataset_hash"
    )


def test_progress_counts_steps_and_tells_the_time_left(dataset: Path) -> None:
    """Steps count up to at most their number; a second making knows what each took before."""
    steps: list[Step] = []
    built(dataset)
    add_block(dataset)

    built(dataset, progress=steps.append)

    *made, last = steps
    assert last.name == "checks"
    numbers = [step.number for step in made]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] <= made[0].n_steps
    assert all(step.left_s is not None and step.left_s > 0 for step in made)


def test_two_marts_that_are_begun_together_are_two_steps(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step has the number of another, also where two threads look at their marts before either tells."""
    both = threading.Barrier(2, timeout=60)
    looked: set[str] = set()
    find = PartsFolder.find

    def together(self: PartsFolder, name: str, inputs: Inputs) -> Part | None:
        thread = threading.current_thread()
        if thread is not threading.main_thread() and thread.name not in looked:
            looked.add(thread.name)
            both.wait()
        return find(self, name, inputs)

    steps: list[Step] = []
    monkeypatch.setattr(PartsFolder, "find", together)
    monkeypatch.setattr(engine, "_queries_at_once", lambda *_: 2)
    built(dataset, progress=steps.append)

    numbers = [step.number for step in steps[:-1]]
    assert numbers == list(range(1, len(numbers) + 1))


def test_where_memory_ends_for_two_marts_each_is_made_alone(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marts of which each fits in memory, but not two at the same time, make the database all the same."""
    expected = rows(built(dataset, "alone.duckdb", threads=1).database)
    both = threading.Barrier(2, timeout=60)
    failed: set[str] = set()
    make = PartsFolder.make

    def without_memory(self: PartsFolder, *recipe: Any) -> Part:
        thread = threading.current_thread()
        if thread is not threading.main_thread() and thread.name not in failed:
            failed.add(thread.name)
            both.wait()
            raise duckdb.OutOfMemoryException("no memory is left")
        return make(self, *recipe)

    monkeypatch.setattr(PartsFolder, "make", without_memory)
    monkeypatch.setattr(engine, "_queries_at_once", lambda *_: 2)

    found = built(dataset)

    assert len(failed) == 2
    assert len(found.made) == len(set(found.made))
    assert rows(found.database) == expected


def test_watching_yields_after_each_seal(dataset: Path) -> None:
    """Changed files yield once; without a change it waits and looks again."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            add_block(dataset)

    seen = changes(dataset, None, wait)

    next(seen)
    next(seen)
    assert len(waits) == 2


def test_a_folder_with_the_files_of_others_is_refused(dataset: Path) -> None:
    """Old parts are removed, so a build does not begin in a folder that it did not make."""
    folder = parts_folder(dataset.parent / "a.duckdb")
    (folder / "photos").mkdir(parents=True)
    (folder / "photos" / "a.jpg").write_text("a photo")

    with pytest.raises(DatabaseError, match="has files, but no"):
        built(dataset)
    assert (folder / "photos" / "a.jpg").read_text() == "a photo"
