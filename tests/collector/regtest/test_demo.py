"""Test that a demo keeps its folder to itself, and says at its end how to go on."""

import sys
from pathlib import Path

import pytest

from collector.cli import main
from collector.dataset.files import lock_taken
from collector.errors import DatasetError
from collector.regtest import Bitcoind, Scenario
from collector.regtest.demo import LOCK, MARKER, run_demo


def test_two_demos_do_not_share_a_folder(smoke: Scenario, tmp_path: Path) -> None:
    """While one demo plays, a second with the same --out is refused, and leaves every file as it is."""
    out, nothing = tmp_path / "demo", Bitcoind(path=tmp_path / "none", version="none", source="a test")
    (out / "dataset").mkdir(parents=True)
    (out / MARKER).write_text("{}")

    with (
        lock_taken(out / LOCK, "held"),
        pytest.raises(DatasetError, match=f"another demo is writing to {out}.*another --out"),
    ):
        run_demo(smoke, out, nothing)

    assert sorted(path.name for path in out.iterdir()) == [LOCK, "dataset", MARKER]


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
