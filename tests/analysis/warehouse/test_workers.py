"""Test marts that workers of Spark make: real processes, one of them killed, and the build killed."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from analysis.database import open_database
from analysis.engine import build
from analysis.errors import DatabaseError, WarehouseError
from analysis.parts import PartsFolder, parts_folder
from analysis.raw_views import listed_files
from analysis.schedule import Task
from analysis.tasks import Workplace, _read_batch, count_rows, make_part
from analysis.warehouse.workers import _attempt, open_workers
from collector.dataset.open import Dataset
from tests.analysis.days import PlantedDays
from tests.analysis.test_same_build import Contents, contents
from tests.analysis.warehouse.build_elsewhere import MARTS, RANGED
from tests.bench.planted_world import Size

ROOT = Path(__file__).resolve().parents[3]
TWO_WORKERS = "local-cluster[2,1,1024]"
WAIT_S = 500.0

needs_spark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="PySpark or Java is not installed",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> PlantedDays:
    """Plant a world of some days."""
    return PlantedDays(tmp_path_factory.mktemp("world"), Size(n_blocks=400, entering=24, taken=18, seed=1))


@pytest.fixture(scope="module")
def expected(world: PlantedDays, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Make the marts of the world in this process, each as a whole."""
    database = tmp_path_factory.mktemp("expected") / "a.duckdb"
    return contents(build(world.whole, world.pools, database, marts=MARTS, is_cut=False).database)


class Cluster:
    """Is a build that runs with workers of its own; `mark` stands in the environment of all its processes."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str, log: Path) -> None:
        self.process = process
        self.mark = mark
        self.log = log

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until a condition is true while the build runs."""
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < end_s
            time.sleep(0.01)

    def worker_pids(self) -> list[int]:
        """Return the processes that make ranges: those that the daemons of PySpark have forked."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                is_ours = self.mark.encode() in (folder / "environ").read_bytes()
                if is_ours and _is_daemon(folder) and _is_daemon(_parent(folder)):
                    found.append(int(folder.name))
            except (OSError, ValueError):
                continue
        return found


@contextmanager
def cluster(world: PlantedDays, dataset: Path, database: Path) -> Iterator[Cluster]:
    """Start a build with two workers of Spark; end what is left of it."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "tests.analysis.warehouse.build_elsewhere"]
    command += [str(each) for each in (dataset, world.pools, database, TWO_WORKERS)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "POOL_TEST_CLUSTER": mark}
    log = database.with_suffix(".log")
    with (
        log.open("w") as sink,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=sink, start_new_session=True) as process,
    ):
        try:
            yield Cluster(process, mark, log)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _is_daemon(folder: Path) -> bool:
    return b"pyspark.daemon" in (folder / "cmdline").read_bytes()


def _parent(folder: Path) -> Path:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return folder.parent / fields[1]


@needs_spark
@pytest.mark.timeout(900)
def test_marts_of_workers_are_those_of_one_process(
    world: PlantedDays, expected: Contents, tmp_path: Path
) -> None:
    """Two workers, killed in the midst of their work: the marts are those of a local build, bit for bit."""
    database = tmp_path / "a.duckdb"
    with cluster(world, world.whole, database) as running:
        running.wait_for(lambda: any(unfinished(database)))
        pids = running.worker_pids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert running.process.wait(WAIT_S) == 0, running.log.read_text()[-3000:]
    assert pids

    found = contents(database)
    assert [name for name in MARTS if not found[name].equals(expected[name])] == []
    assert all(expected[name].num_rows for name in MARTS)
    assert unfinished(database) == []


@needs_spark
@pytest.mark.timeout(900)
def test_a_build_that_is_killed_keeps_what_its_workers_made(
    world: PlantedDays, expected: Contents, tmp_path: Path
) -> None:
    """The former database can be read, and the next build, a local one, uses the finished parts."""
    dataset, database = tmp_path / "dataset", tmp_path / "a.duckdb"
    world.add(dataset, world.days[:1])
    build(dataset, world.pools, database, marts=MARTS)
    earlier = parts_of(database)
    world.add(dataset, world.days[1:])

    with cluster(world, dataset, database) as running:
        running.wait_for(lambda: len(parts_of(database).keys() - earlier.keys()) > 2)
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait(WAIT_S)
    kept = parts_of(database)

    with open_database(database) as connection:
        assert connection.execute("SELECT count(*) FROM block_order").fetchone() != (0,)
    build(dataset, world.pools, database, marts=MARTS)
    after = parts_of(database)
    assert {file: after.get(file) for file in kept if file in after} == {
        file: kept[file] for file in kept if file in after
    }
    assert len(kept.keys() & after.keys()) > 2
    found = contents(database)
    assert [name for name in MARTS if not found[name].equals(expected[name])] == []


def unfinished(database: Path) -> list[Path]:
    """Return the files of ranges that are being written."""
    folders = [folder for name in RANGED for folder in parts_folder(database).glob(f"{name}*")]
    return [path for folder in folders for path in folder.glob(".*")]


def parts_of(database: Path) -> dict[str, int]:
    """Map each part that parts.json names to the time at which its file was written."""
    folder = parts_folder(database)
    return {
        file: (folder / file).stat().st_mtime_ns
        for file in PartsFolder(folder).state.parts
        if (folder / file).exists()
    }


def test_other_engines_are_refused() -> None:
    """A text that is no address of a cluster is refused in one sentence."""
    with pytest.raises(WarehouseError, match="spark://HOST:7077"), open_workers("ray"):
        pass


def test_without_pyspark_the_extra_is_named(tmp_path: Path) -> None:
    """The command says what to install, and writes nothing."""
    program = "import sys; sys.modules['pyspark'] = None; from analysis.__main__ import main; main()"
    command = [sys.executable, "-P", "-c", program, "build", str(tmp_path), "--engine", "local[2]"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert result.returncode == 1
    assert "pip install 'pool-measurement[spark]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    """Another hash of our sources is one sentence, which Spark does not try again."""
    place = Workplace(
        dataset=tmp_path, chain="main", files={}, folder=tmp_path, inputs={}, memory_gb=1, version="other"
    )
    task = Task(mart="block_order", name="block_order", inputs={"its range": "0"}, rows={})

    with pytest.raises(DatabaseError, match="another version"):
        make_part(place, task)
    assert isinstance(_attempt(partial(make_part, place, task)), DatabaseError)
    assert isinstance(
        _attempt(partial(_read_batch, "other", Dataset(tmp_path, "main"), 1, [])), DatabaseError
    )


def test_a_worker_reads_the_files_of_the_build_alone(world: PlantedDays, tmp_path: Path) -> None:
    """What is sealed after a build has listed its files is in no part and no check of it."""
    dataset = Dataset(world.whole, "main")
    files = listed_files(dataset)
    first, *later = files["block_arrivals"]
    place = Workplace(
        dataset=world.whole,
        chain="main",
        files={**files, "block_arrivals": [first]},
        folder=tmp_path,
        inputs={},
        memory_gb=1,
    )

    assert later
    expected = pq.read_metadata(dataset.folder / first).num_rows
    assert count_rows(place, frozenset({"stg_block_arrivals"}), {}, "FROM stg_block_arrivals") == expected


def test_a_query_that_fails_is_not_tried_again(world: PlantedDays, tmp_path: Path) -> None:
    """An error of DuckDB comes back as a value, and no half-written part is left."""
    dataset = Dataset(world.whole, "main")
    place = Workplace(
        dataset=world.whole,
        chain="main",
        files=listed_files(dataset),
        folder=tmp_path,
        inputs={},
        memory_gb=1,
    )
    task = Task(mart="block_order", name="block_order", inputs={"its range": "0"}, rows={})

    assert isinstance(_attempt(partial(make_part, place, task)), duckdb.Error)
    assert list(tmp_path.glob("*/*")) == []
