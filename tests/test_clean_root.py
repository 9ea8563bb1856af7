"""Test the clean root folder of `make image`: what it shows, and that a shut one cannot be written.

`make image` itself installs the product and runs it; that takes minutes and belongs to no test.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clean_root import DEPLOY, ROOT, Stage, bare_root, copy, entering, instructions, setting


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Make a clean root; skips where none can be entered."""
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ("unshare", "chroot", "setpriv")):
        pytest.skip("a clean root folder needs root, and unshare, chroot and setpriv")
    (tmp_path / "data").mkdir(mode=0o777)
    (tmp_path / "data").chmod(0o777)
    (tmp_path / "extra").mkdir()
    made = bare_root(tmp_path / "root")
    if run(made, "true").returncode:
        pytest.skip("no mount of our own")
    return made


def run(stage: Stage, script: str, *, is_shut: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a shell script inside a root."""
    folder = stage.root.parent
    command = entering(
        stage, ["sh", "-c", script], data=str(folder / "data") if is_shut else "", extra=folder / "extra"
    )
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_dockerfile_is_read_as_its_instructions() -> None:
    """Lines that go on are one instruction, comments are none, and every instruction is known."""
    found = list(instructions((DEPLOY / "Dockerfile").read_text()))
    stage = Stage(Path("/"), environment={"PATH": "/bin"})
    for name, rest in found:
        if name not in ("FROM", "COPY", "RUN", "WORKDIR"):
            setting(stage, name, rest)

    assert [name for name, _ in found].count("FROM") == 2
    assert stage.user == "1000:1000"
    assert stage.entry == ["pool-collector"]
    assert stage.health[:2] == ["python", "-c"]
    assert stage.environment["PATH"].endswith(":/bin")
    assert not any("\\" in rest or "\n" in rest for name, rest in found if name == "ENV")


def test_a_clean_root_has_the_system_and_nothing_of_the_checkout(stage: Stage) -> None:
    """Its python runs, and neither the checkout nor its environment is there."""
    done = run(stage, f"python -c 'print(6 * 7)'; test -e {ROOT} && echo there; ls /opt")

    assert done.stdout.split() == ["42", "python"]


def test_only_data_can_be_written_in_a_root_that_is_shut(stage: Stage) -> None:
    """The image's user writes to /data and /tmp, and nowhere else."""
    stage.user = "1000:1000"
    script = (
        "touch /data/kept /tmp/lost; for each in / /opt /etc; do touch $each/x || echo refused; done; id -u"
    )
    done = run(stage, script, is_shut=True)

    assert done.stdout.split() == ["refused"] * 3 + ["1000"]
    assert (stage.root.parent / "data" / "kept").exists()
    assert list((stage.root / "tmp").iterdir()) == []


def test_a_copy_lands_where_an_engine_would_put_it(stage: Stage) -> None:
    """A folder's contents go to the target, files go into a folder, and a stage can be the origin."""
    stage.folder = "/source"
    (stage.root / "source").mkdir()
    copy({}, stage, ["LICENSE", "README.md", "./"])
    copy({}, stage, ["data/pools", "data/pools"])
    other = Stage(stage.root.parent / "other")
    (other.root / "opt").mkdir(parents=True)
    copy({"build": stage}, other, ["--from=build", "/source/data", "/opt/data"])

    assert (stage.root / "source" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (other.root / "opt" / "data" / "pools" / "README.md").exists()
