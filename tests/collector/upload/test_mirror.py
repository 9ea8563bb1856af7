"""Test that a dataset in a store reads as the dataset that was uploaded, whatever happens meanwhile."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis.engine import build
from analysis.raw_views import open_dataset
from collector.cli import app
from collector.compaction.run import compact
from collector.dataset import mirror
from collector.dataset.mirror import open_mirror
from collector.dataset.open import Dataset, open_to_read
from collector.dataset.schema import TABLES
from collector.errors import DatasetError, StoreError
from collector.upload.run import Upload
from tests.analysis.test_incremental import MARTS, RULES, WORLD, rows
from tests.analysis.world import write_world
from tests.collector.compaction.made_files import write_events
from tests.collector.upload.gate import Fault, Handler, Place, answer_lost, busy
from tests.collector.upload.test_upload import TODAY

READ = """
import sys
from pathlib import Path
from collector.dataset.open import open_to_read
open_to_read(Path(sys.argv[1]), None)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> Path:
    """Name a folder for caches, and the gate as the store of every command."""
    monkeypatch.setenv("POOL_STORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.gate.url)
    return tmp_path / "cache"


def upload(dataset: Dataset, place: Place) -> None:
    """Bring the copy up to date."""
    Upload.begin(dataset, place.store()).bring_up_to_date()


def files(dataset: Dataset) -> dict[str, tuple[bytes, int]]:
    """Return content and time of change of every file of the tables, by its path in the chain."""
    paths = [path for table in TABLES.values() for path in dataset.paths(table)]
    return {
        path.relative_to(dataset.folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in paths
    }


def n_fetched(place: Place) -> int:
    """Return how many files were asked for."""
    return sum(method == "GET" and ".parquet" in path for method, path in place.gate.requests)


def test_the_cache_is_the_dataset(dataset: Dataset, place: Place) -> None:
    """Every file with its time; a second call fetches none."""
    upload(dataset, place)

    opened = open_to_read(Path(str(place.address)), None)
    again = open_to_read(Path(f"{place.address}/"), "regtest")

    assert files(opened) == files(again) == files(dataset)
    assert opened.root == again.root
    assert n_fetched(place) == 7


def test_only_what_changed_is_fetched(dataset: Dataset, place: Place) -> None:
    """After a seal and a compaction the cache has what the dataset has, and nothing else."""
    upload(dataset, place)
    open_mirror(place.address, None, place.store())
    list(compact(dataset, today=TODAY))
    write_events(dataset, 1, 2, day=2, stem="later")
    upload(dataset, place)

    opened = open_mirror(place.address, None, place.store())

    assert files(opened) == files(dataset)
    assert n_fetched(place) == 7 + 2 + 1


def test_a_build_from_the_store_is_that_of_the_folder(tmp_path: Path, place: Place) -> None:
    """Every mart is equal to the last bit; a repeated build makes nothing."""
    folder = write_world(tmp_path / "world", WORLD)
    upload(Dataset.open(folder, "regtest"), place)
    address = Path(str(place.address))

    marts = (*MARTS, "run_manifest")
    local = build(folder, RULES, tmp_path / "local.duckdb", marts=marts)
    stored = build(address, RULES, tmp_path / "stored.duckdb", marts=marts)
    again = build(address, RULES, tmp_path / "stored.duckdb", marts=marts)

    assert rows(stored.database) == rows(local.database)
    assert again.made == ()


@pytest.mark.parametrize("fault", [busy, answer_lost])
def test_what_passes_is_waited_for(dataset: Dataset, place: Place, fault: Fault) -> None:
    """Each request is tried again."""
    upload(dataset, place)
    for part in ("dataset.json", "files.json", ".parquet"):
        place.gate.at("GET", part, *[fault] * 2)

    opened = open_mirror(place.address, None, place.store())

    assert place.gate.faults == []
    assert files(opened) == files(dataset)


def test_a_file_that_ends_early_is_fetched_again(dataset: Dataset, place: Place) -> None:
    """Half of a file does not count."""
    upload(dataset, place)

    def half(handler: Handler) -> bool:
        status, headers, content = handler.asked(handler.body())
        handler.send_response(status)
        handler.send_header("ETag", headers["etag"])
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.hang_up()
        return True

    place.gate.at("GET", ".parquet", half, half)

    assert files(open_mirror(place.address, None, place.store())) == files(dataset)


def test_an_upload_while_files_are_fetched_is_noticed(dataset: Dataset, place: Place) -> None:
    """Files that go meanwhile are those of an older list: the new one is read."""
    upload(dataset, place)

    def compacting(_: Handler) -> bool:
        list(compact(dataset, today=TODAY))
        upload(dataset, place)
        return False

    place.gate.at("GET", "/mempool_events/", lambda _: False, compacting)

    assert files(open_mirror(place.address, None, place.store())) == files(dataset)


@pytest.mark.parametrize("is_lost", [False, True], ids=["changed", "lost"])
def test_what_is_not_as_it_was_uploaded_is_refused(dataset: Dataset, place: Place, *, is_lost: bool) -> None:
    """The file is named, and an upload mends it; what was fetched before is kept."""
    upload(dataset, place)
    name = next(iter(files(dataset)))
    key = f"copy/chain=regtest/{name}"
    if is_lost:
        place.client.delete_object(Bucket=place.bucket, Key=key)
    else:
        place.put(key, place.read(key)[::-1])

    with pytest.raises(DatasetError, match=rf"{name} is not what was uploaded; `pool-collector upload`"):
        open_to_read(Path(str(place.address)), None)
    upload(dataset, place)

    assert files(open_to_read(Path(str(place.address)), None)) == files(dataset)


def test_a_kill_costs_what_was_under_way(dataset: Dataset, place: Place) -> None:
    """SIGKILL in the third file: the next call goes on with the third."""
    upload(dataset, place)
    killed: list[subprocess.Popen[bytes]] = []

    def kill(handler: Handler) -> bool:
        killed[0].send_signal(signal.SIGKILL)
        killed[0].wait()
        handler.hang_up()
        return True

    place.gate.at("GET", ".parquet", lambda _: False, lambda _: False, kill)
    with subprocess.Popen([sys.executable, "-c", READ, str(place.address)], env=os.environ) as process:
        killed.append(process)
    assert process.returncode == -signal.SIGKILL

    assert files(open_mirror(place.address, None, place.store())) == files(dataset)
    assert n_fetched(place) == 3 + 5


def test_a_dataset_that_does_not_fit_is_refused(
    dataset: Dataset, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is fetched; the variable is named."""
    upload(dataset, place)
    monkeypatch.setenv("POOL_STORE_CACHE_GB", "0.00001")

    with pytest.raises(StoreError, match="set POOL_STORE_CACHE_GB to more"):
        open_mirror(place.address, None, place.store())
    monkeypatch.setenv("POOL_STORE_CACHE_GB", "much")
    with pytest.raises(DatasetError, match="POOL_STORE_CACHE_GB='much' is no size"):
        open_to_read(Path(str(place.address)), None)
    assert n_fetched(place) == 0


def test_the_cache_used_longest_ago_makes_room(
    dataset: Dataset, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is being read stays, and a file of it that goes meanwhile is no error."""
    upload(dataset, place)
    opened = open_mirror(place.address, None, place.store())
    bytes_each = sum(len(content) for content, _ in files(dataset).values())
    older, read, newer = (Path(shutil.copytree(opened.root, f"{opened.root}{i}")) for i in range(3))
    for age, each in enumerate((newer, older, read)):
        os.utime(each / mirror.MIRROR_LOCK, (1e9 - age, 1e9 - age))
    (newer / "chain=regtest" / "blocks" / "gone.parquet").symlink_to("nowhere")
    monkeypatch.setenv("POOL_STORE_CACHE_GB", str(3.5 * bytes_each / 1e9))

    with Dataset(read, "regtest").read_lock():
        open_mirror(place.address, None, place.store())

    assert [each.exists() for each in (older, read, newer)] == [False, True, True]


def test_an_address_without_a_dataset_is_refused(dataset: Dataset, place: Place) -> None:
    """The sentence names what is missing."""
    address = Path(str(place.address))
    with pytest.raises(DatasetError, match=f"s3://{place.bucket}/copy is not a dataset"):
        open_to_read(address, None)
    place.put("copy/dataset.json", (dataset.root / "dataset.json").read_bytes())
    with pytest.raises(DatasetError, match="has no data yet"):
        open_to_read(address, None)
    upload(dataset, place)
    with pytest.raises(DatasetError, match="has only regtest; choose one with --chain"):
        open_to_read(address, "main")
    with pytest.raises(DatasetError, match="is no name of a bucket"):
        open_to_read(Path("s3://a/b"), None)


@pytest.mark.parametrize("chain", [None, "regtest"])
def test_a_lost_list_is_named(dataset: Dataset, place: Place, chain: str | None) -> None:
    """It is not taken for an upload that has not ended."""
    upload(dataset, place)
    place.client.delete_object(Bucket=place.bucket, Key="copy/chain=regtest/files.json")
    with pytest.raises(DatasetError, match=r"has lost its list of files, chain=regtest/files\.json; call"):
        open_to_read(Path(str(place.address)), chain)


def test_of_several_chains_one_is_chosen(dataset: Dataset, place: Place) -> None:
    """Without a choice the chains are named."""
    other = Dataset.open(dataset.root, "main")
    write_events(other, 1, 1)
    upload(dataset, place)
    upload(other, place)

    with pytest.raises(DatasetError, match="has the chains main, regtest; choose one with --chain"):
        open_to_read(Path(str(place.address)), None)
    assert files(open_dataset(Path(str(place.address)), "main")) == files(other)
    assert files(open_dataset(Path(str(place.address)), "regtest")) == files(dataset)


def test_commands_that_read_take_an_address_and_others_refuse_it(dataset: Dataset, place: Place) -> None:
    """`status` says of the copy what it says of the dataset; `check` looks for one in the store."""
    check = CliRunner().invoke(app, ["check", "--dataset", str(place.address)])
    upload(dataset, place)
    status = CliRunner().invoke(app, ["status", str(place.address), "--json"])
    refused = CliRunner().invoke(app, ["mend", str(place.address)])

    assert '"name": "mempool_events"' in status.stdout
    assert f"{place.address} is not a dataset" in str(check.exception)
    assert "this command needs the folder of a dataset" in str(refused.exception)
    with pytest.raises(DatasetError, match="this command needs the folder of a dataset"):
        Dataset.open(Path(str(place.address)), "regtest", create=True)
    assert not Path("s3:").exists()
