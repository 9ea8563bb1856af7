"""Test that a fault of node, settings or dataset ends in one clear sentence, status 1 and no write."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.blocks.stored import read_stored_blocks
from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, DATASET_MARKER
from collector.errors import DatasetError
from collector.regtest import RegtestNode, find_bitcoind
from collector.regtest import node as regtest_node
from tests.rights import without_rights

pytestmark = pytest.mark.bitcoind
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `pool-collector run` in this process and returns its status and output."""

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["pool-collector", "run", *map(str, arguments)])
        monkeypatch.setenv("POOL_COLLECTOR_STARTUP_PATIENCE_S", "0")
        monkeypatch.setenv("NO_COLOR", "1")
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        return int(exit_.value.code or 0), printed.out + printed.err

    return call


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return the path of a dataset that does not exist."""
    return tmp_path / "dataset"


@pytest.fixture(scope="module")
def mute(monkeypatch_module: pytest.MonkeyPatch) -> Iterator[RegtestNode]:
    """Start a node that does not publish `rawtx`."""
    monkeypatch_module.setattr(regtest_node, "PUBLISHED", ("sequence", "rawblock"))
    with RegtestNode(find_bitcoind()) as started:
        yield started


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    """Yield a monkeypatch whose changes last as long as the module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Hold a port that nothing listens on, so that connections to it are refused."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def reach(node: RegtestNode, dataset: Path) -> list[object]:
    """Return the command-line flags for this node and dataset."""
    return ["--rpc-url", node.rpc_url, "--cookie-file", node.cookie_path, "--dataset", dataset]


def assert_said(outcome: tuple[int, str], *words: str, dataset: Path | None = None) -> None:
    """Assert status 1, exactly one error line with these words, no traceback and no new dataset."""
    status, text = outcome
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert status == 1
    assert len(errors) == 1, text
    assert all(word in errors[0] for word in words), errors[0]
    assert "Traceback" not in text
    if dataset is not None:
        assert not dataset.exists()


def test_a_wrong_chain(run: Run, node: RegtestNode, dataset: Path) -> None:
    """The error names both chains, the node's and that of the settings."""
    said = run(*reach(node, dataset), "--chain", "signet")
    assert_said(said, "regtest", "signet", "set chain", dataset=dataset)


def test_a_missing_topic(run: Run, mute: RegtestNode, dataset: Path) -> None:
    """The error gives the line to add to bitcoin.conf."""
    said = run(*reach(mute, dataset), "--chain", "regtest")
    assert_said(said, "add zmqpubrawtx=tcp://127.0.0.1:", "bitcoin.conf", dataset=dataset)


def test_an_unreachable_node(run: Run, node: RegtestNode, dataset: Path, deaf_port: int) -> None:
    """The error gives the address at which no node answers."""
    flags = [*reach(node, dataset), "--chain", "regtest", "--rpc-url", f"http://127.0.0.1:{deaf_port}"]
    assert_said(run(*flags), f"127.0.0.1:{deaf_port}", "is bitcoind running", dataset=dataset)


def test_a_node_that_is_not_running(run: Run, tmp_path: Path, dataset: Path) -> None:
    """Without a cookie file, the error names the datadir in which it was looked for."""
    said = run("--chain", "regtest", "--datadir", tmp_path, "--dataset", dataset)
    assert_said(said, "no cookie file", str(tmp_path / "regtest"), dataset=dataset)


def test_a_wrong_cookie(run: Run, node: RegtestNode, tmp_path: Path, dataset: Path) -> None:
    """The error names the cookie file but does not show its content."""
    cookie = tmp_path / "cookie"
    cookie.write_text("__cookie__:hunter2")
    said = run(*reach(node, dataset), "--chain", "regtest", "--cookie-file", cookie)
    assert_said(said, "does not accept our credentials", str(cookie), dataset=dataset)
    assert "hunter2" not in said[1]


def test_a_closed_zmq_port(
    run: Run, node: RegtestNode, tmp_path: Path, dataset: Path, deaf_port: int
) -> None:
    """A ZMQ address where nobody publishes is an error, instead of a collector that receives nothing."""
    config = tmp_path / "c.toml"
    config.write_text(f'[[node]]\nzmq = {{ rawtx = "tcp://127.0.0.1:{deaf_port}" }}\n')
    said = run(*reach(node, dataset), "--chain", "regtest", "--config", config)
    assert_said(said, "rawtx", f"127.0.0.1:{deaf_port}", dataset=dataset)


def test_an_unknown_setting(run: Run, tmp_path: Path, dataset: Path) -> None:
    """The error names the settings file and the unknown key."""
    config = tmp_path / "c.toml"
    config.write_text("seal_every = 3\n")
    assert_said(run("--config", config), str(config), "seal_every", dataset=dataset)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--rpc-url", "http://[::1"), ("http://[::1", "write http://127.0.0.1:8332")),
        (("--rpc-url", "http://127.0.0.1:99999"), ("99999", "write http://127.0.0.1:8332")),
        (("--rpc-url", "http://127.0.0.1:port"), ("port", "write http://127.0.0.1:8332")),
        (("--rpc-url", "127.0.0.1:8332"), ("127.0.0.1:8332", "write http://127.0.0.1:8332")),
        (("--metrics", "127.0.0.1:99999"), ("command line: metrics", "65535")),
        (("--metrics", "127.0.0.1:0"), ("command line: metrics", "65535")),
        (("--metrics", "127.0.0.1:\u00b2"), ("command line: metrics", "65535")),
    ],
)
def test_a_wrong_address(run: Run, dataset: Path, flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    """The error shows the wrong address and an example of a right one, before any node is asked."""
    assert_said(run(*flags, "--dataset", dataset), *words, dataset=dataset)


def test_a_password_in_a_wrong_address(run: Run, dataset: Path) -> None:
    """The error shows the wrong address without its password."""
    said = run("--rpc-url", "http://me:hunter2@[::1", "--dataset", dataset)
    assert_said(said, "http://[::1", dataset=dataset)
    assert "hunter2" not in said[1]


@pytest.mark.parametrize(
    "address", ["nonsense", "tcp://127.0.0.1", "tcp://127.0.0.1:70000", "udp://a:1", "ipc://"]
)
def test_a_wrong_zmq_address(run: Run, tmp_path: Path, dataset: Path, address: str) -> None:
    """The error names the settings file, the key and the wrong address."""
    config = tmp_path / "c.toml"
    config.write_text(f'[[node]]\nzmq = {{ rawtx = "{address}" }}\n')
    said = run("--config", config, "--dataset", dataset)
    assert_said(said, str(config), "zmq", repr(address), "write tcp://", dataset=dataset)


def test_nodes_that_are_not_json(run: Run, monkeypatch: pytest.MonkeyPatch, dataset: Path) -> None:
    """The error names the environment variable that is not JSON and gives an example."""
    monkeypatch.setenv("POOL_COLLECTOR_NODE", "not json")
    said = run("--dataset", dataset)
    assert_said(said, "POOL_COLLECTOR_NODE is not JSON", "rpc_url", dataset=dataset)


def test_a_foreign_folder(run: Run, node: RegtestNode, dataset: Path) -> None:
    """A folder with other files is refused as a dataset and stays as it is."""
    dataset.mkdir()
    (dataset / "holiday.jpg").write_bytes(b"x")
    assert_said(run(*reach(node, dataset), "--chain", "regtest"), str(dataset))
    assert [path.name for path in dataset.iterdir()] == ["holiday.jpg"]


def test_a_newer_dataset(run: Run, node: RegtestNode, dataset: Path) -> None:
    """A dataset of a newer format version is refused, so that nothing is written into it."""
    dataset.mkdir()
    (dataset / DATASET_MARKER).write_text('{"format": "pool-measurement", "version": 99}')
    assert_said(run(*reach(node, dataset), "--chain", "regtest"), "version 99")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system that refuses root, and root to ask it")
def test_a_folder_that_takes_nothing(run: Run, node: RegtestNode) -> None:
    """A dataset in /proc, where not even root can make a folder, is refused by name."""
    assert_said(run(*reach(node, Path("/proc/dataset")), "--chain", "regtest"), "/proc/dataset")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system that refuses root, and root to ask it")
def test_a_dataset_that_cannot_be_made() -> None:
    """The error says that the folder cannot be made, not that a dataset lacks something."""
    with pytest.raises(DatasetError, match=r"cannot make the dataset /proc/dataset: .*; choose a folder"):
        Dataset.open(Path("/proc/dataset"), "main", create=True)


def test_a_dataset_below_a_file(dataset: Path) -> None:
    """A dataset below a file is refused; the error names the file, which stays as it is."""
    dataset.write_text("x")
    with pytest.raises(DatasetError, match=f"^{dataset} is no folder; choose another"):
        Dataset.open(dataset / "x", "main", create=True)
    assert dataset.read_text() == "x"


def test_a_file_that_this_user_may_not_read(dataset: Path) -> None:
    """The error for an unreadable file asks for the right to read it, not to move the file away."""
    Dataset.open(dataset, "main", create=True)
    path = dataset / "chain=main" / "blocks" / "heights=0000000-0000999" / "x.parquet"
    path.parent.mkdir(parents=True)
    path.touch(mode=0)
    program = f"""
from collector.dataset.schema import BLOCKS
from collector.dataset.open import Dataset
from pathlib import Path
Dataset.open(Path({str(dataset)!r}), "main").read(BLOCKS)
"""
    command = [*without_rights(), sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.endswith(f"cannot read {path}; give this user the right to\n")


def test_a_dataset_behind_a_link_to_nowhere(dataset: Path) -> None:
    """A broken symbolic link is refused as a dataset; the error names the link, which stays."""
    dataset.symlink_to("nowhere")
    with pytest.raises(DatasetError, match=f"^{dataset} is no folder; choose another"):
        Dataset.open(dataset, "main", create=True)
    assert dataset.is_symlink()


@pytest.mark.parametrize("fault", ["truncated", "foreign", "other type"])
def test_a_file_that_is_no_file_of_blocks(dataset: Path, fault: str) -> None:
    """The error names the file in the folder of `blocks` that is damaged or foreign, and says to move it."""
    opened = Dataset.open(dataset, "regtest", create=True)
    path = opened.folder / BLOCKS.name / "heights=0-999" / "x.parquet"
    path.parent.mkdir(parents=True)
    columns = {"x": [1]} if fault == "foreign" else {"block_hash": [b"x" * 32], "height": ["1"]}
    schema = (
        None if fault == "foreign" else pa.schema([BLOCKS.arrow.field("block_hash"), ("height", "string")])
    )
    pq.write_table(pa.table(columns, schema=schema), path)
    if fault == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=f"{path}.*; move it"):
        read_stored_blocks(opened)


@pytest.mark.parametrize("place", ["foreign", "file", "file/below"])
def test_a_demo_where_it_must_not_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, place: str
) -> None:
    """The demo refuses a folder with other files before it looks for a node, and leaves it as it is."""
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "holiday.jpg").write_bytes(b"x")
    (tmp_path / "file").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    arguments = ["demo", "--out", str(tmp_path / place), "--bitcoind", str(tmp_path / "no-bitcoind")]
    monkeypatch.setattr(sys, "argv", ["pool-collector", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    said = (int(exit_.value.code or 0), capsys.readouterr().err)
    assert_said(said, str(tmp_path / place), "choose another --out")
    assert "node" not in said[1]
    assert ("a part of this path is a file" in said[1]) == place.startswith("file")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_wrong_flag_is_usage() -> None:
    """An unknown flag ends the command with status 2, as is usual for command lines."""
    command = [sys.executable, "-m", "collector", "run", "--chian", "main"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--chian" in done.stderr


def test_a_dry_run_does_nothing(run: Run, node: RegtestNode, dataset: Path) -> None:
    """A dry run prints the topics and the dataset that it would use, and makes no dataset."""
    status, text = run(*reach(node, dataset), "--chain", "regtest", "--dry-run")
    assert status == 0
    for topic, endpoint in node.zmq_endpoints.items():
        assert (f"{topic} at {endpoint}" in text) == (topic != "hashblock")
    assert f"would create the dataset {dataset}" in text
    assert not dataset.exists()
