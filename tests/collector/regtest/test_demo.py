"""Test that a demo keeps its folder to itself, and says at its end how to go on."""

import sys
from pathlib import Path

import pytest

from collector.cli import main
from collector.dataset.files import is_lock_held, lock_taken
from collector.errors import RegtestError
from collector.regtest import Bitcoind, Scenario
from collector.regtest.demo import LOCK, MARKER, run_demo


def test_two_demos_do_not_share_a_folder(
    smoke: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While one demo plays, a second with the same --out is refused, and leaves every file as it is.

    The command says so before it looks for a node.
    """
    out, nothing = tmp_path / "demo", Bitcoind(path=tmp_path / "none", version="none", source="a test")
    (out / "dataset").mkdir(parents=True)
    (out / MARKER).write_text("{}")

    with (
        lock_taken(out / LOCK, "held"),
        pytest.raises(RegtestError, match=f"another demo is writing to {out}.*another --out"),
    ):
        run_demo(smoke, out, nothing)

    monkeypatch.setattr(sys, "argv", ["pool-collector", "demo", "--out", str(out), "--bitcoind", "none"])
    with lock_taken(out / LOCK, "held"), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: another demo is writing to")
    assert sorted(path.name for path in out.iterdir()) == [LOCK, "dataset", MARKER]


@pytest.mark.bitcoind
def test_a_demo_holds_its_folder_until_it_ends(smoke: Scenario, bitcoind: Bitcoind, tmp_path: Path) -> None:
    """The lock is held while the nodes run, and free afterwards."""
    out, held = tmp_path / "demo", []

    run_demo(smoke, out, bitcoind, inspect=lambda _: held.append(is_lock_held(out / LOCK)))

    assert held == [True]
    assert not is_lock_held(out / LOCK)


@pytest.mark.bitcoind
def test_a_demo_ends_with_the_command_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line builds a database from what the demo has made."""
    out = tmp_path / "my demo"
    monkeypatch.setattr(sys, "argv", ["pool-collector", "demo", "--scenario", "smoke", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()

    assert not ended.value.code
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"next: pool-analysis build --dataset '{out}/dataset' --pools '{out}/pools'"
        f" --database '{out}/demo.duckdb'"
    )
    assert (out / "dataset" / "dataset.json").is_file()
    assert list((out / "pools").glob("*.toml"))
