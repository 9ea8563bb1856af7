"""A real S3 server (moto) behind a gate for every test, and a dataset to copy."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.compaction import replacement
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS
from tests.collector.compaction.made_files import block, write_events
from tests.collector.upload.gate import KEY, SECRET, Place, opened_place, running_server


@pytest.fixture(scope="session")
def server_port() -> Iterator[int]:
    """Run an S3 server; return its port on loopback."""
    pytest.importorskip("boto3", reason="pip install '.[s3]'")
    pytest.importorskip("moto", reason="pip install -r tests/collector/upload/requirements.txt")
    with running_server() as port:
        yield port


@pytest.fixture
def place(server_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    """Make a bucket and a gate, and set the variables by which programs find their key."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    with opened_place(server_port) as opened:
        yield opened


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Store events of two days in small files, and two blocks; compaction leaves no old folder."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    made = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(made, 3, 4)
    write_events(made, 2, 4, day=1, stem="next")
    made.write(BLOCKS, [block(height) for height in (999, 1000)], stem="blocks")
    return made
