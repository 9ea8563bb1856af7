"""`gpuhash results`: many machines in one table, bad files refused with their reason."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhash import cli
from gpuhash.errors import InvalidInputError
from gpuhash.measure import document, submissions, whole_file
from gpuhash.measure.bench import Result
from gpuhash.measure.peers import PeerResult
from tests.gpuhash.measure import benchmarks

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Run a very short benchmark of the real cpu backend."""
    return benchmarks.measure()


@pytest.fixture
def folder(results: list[Result], tmp_path: Path) -> Path:
    """Write the benchmarks of two machines: one is twice as fast as the other."""
    (tmp_path / "slow.json").write_text(benchmarks.text_of(results))
    (tmp_path / "fast.json").write_text(benchmarks.text_of([twice_as_fast(result) for result in results]))
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command `results` in this process; return exit status, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["gpuhash", "results", *arguments])
        status = 0
        try:
            cli.main()
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        return status, *capsys.readouterr()

    return call


def twice_as_fast(result: Result) -> Result:
    """Return the result that a machine of twice the speed would give."""
    return replace(
        result,
        seconds=result.seconds / 2,
        lower_quartile_s=result.lower_quartile_s / 2,
        upper_quartile_s=result.upper_quartile_s / 2,
        hashes_per_s=result.hashes_per_s * 2,
        gigabytes_per_s=result.gigabytes_per_s * 2,
    )


def test_machines_stand_side_by_side_fastest_first(run: Run, folder: Path) -> None:
    """The faster machine is above the slower one in each case; energy is unknown, and the wall is named."""
    status, out, err = run(str(folder), "--stage", "kernel", "--algorithm", "sha256d")

    assert (status, err) == (0, "")
    figures = [line.split() for line in out.splitlines() if line.startswith("sha256d")]
    assert [line[4] for line in figures] == ["fast", "slow"]
    assert "n/a, no file has any" in out
    assert "meter at the wall" in out


def test_a_price_per_hour_gives_the_cost_of_hashes(results: list[Result], folder: Path) -> None:
    """3.60 an hour is 0.001 a second; a machine of twice the speed at the same price costs half per hash."""
    prices = submissions.prices_of(["3.6", "fast=7.2"])
    accepted, refused = submissions.collect(submissions.files_of([folder]), prices)
    lines = submissions.lines_of(accepted, "sha256d", "kernel")

    assert refused == []
    assert {line.name: line.cost for line in lines} == {
        "slow": pytest.approx(0.001 / lines[1].result.hashes_per_s * 1e12),
        "fast": pytest.approx(0.002 / lines[0].result.hashes_per_s * 1e12),
    }
    assert lines[0].cost == pytest.approx(lines[1].cost)
    free = submissions.collect(submissions.files_of([folder]), {})[0]
    assert {line.cost for line in submissions.lines_of(free, None, None)} == {None}
    assert len(submissions.lines_of(free, None, None)) == 2 * len(results)


def test_a_cost_of_thousands_is_a_whole_number(run: Run, folder: Path) -> None:
    """Where the hashes of the slow machine cost 1,496, the table says 1,496, not 1496 with a bare point."""
    accepted, _ = submissions.collect(submissions.files_of([folder]), {})
    (slow,) = (line for line in submissions.lines_of(accepted, "sha256d", "kernel") if line.name == "slow")
    price = 1496 * slow.result.hashes_per_s * 3600 / 1e12
    chosen = ("--stage", "kernel", "--algorithm", "sha256d", "--price-per-hour", f"slow={price}")
    _, out, _ = run(str(folder), *chosen)

    (line,) = (line for line in out.splitlines() if line.startswith("sha256d") and " slow " in line)
    assert "1,496" in line.split()


def test_a_bad_file_is_refused_and_the_others_are_shown(run: Run, folder: Path) -> None:
    """Changed, unverified, of an old version, a copy: a line each with the reason, and exit status 1."""
    for name in ("changed", "unverified", "old"):
        shutil.copy(folder / "slow.json", folder / f"{name}.json")
    shutil.copy(folder / "fast.json", folder / "twin.json")
    benchmarks.change(
        folder / "changed.json", lambda d: d["results"][0].update(hashes_per_s=1e12), digest_anew=False
    )
    benchmarks.change(
        folder / "unverified.json", lambda d: d["results"][0].update(verified_hashes=0), digest_anew=True
    )
    benchmarks.change(folder / "old.json", lambda d: d.update(format=1), digest_anew=True)

    status, out, err = run(str(folder))

    assert status == 1
    assert "fast" in out
    assert "slow" in out
    for reason in (
        "changed.json was changed after it was written",
        "unverified.json was not verified",
        "old.json has format 1; this program reads 2",
        "twin.json holds the same measurement as ",
    ):
        assert reason in err
    assert err.endswith("gpuhash: 4 of 6 files were refused\n")


def test_other_programs_are_shown_with_their_file(run: Run, results: list[Result], folder: Path) -> None:
    """The comparisons that a file holds stand in a table of their own, the highest ratio first."""
    for name, ratio in (("with_peer", 1.25), ("with_faster_peer", 0.75)):
        peer = PeerResult(
            algorithm="sha256",
            backend="cpu",
            peer="openssl speed -bytes 64",
            rounds=3,
            hashes_per_s=4e6 * ratio,
            peer_hashes_per_s=4e6,
            ratio=ratio,
        )
        (folder / f"{name}.json").write_text(benchmarks.text_of(results, [peer]))

    status, out, _ = run(str(folder))
    hidden = run(str(folder), "--algorithm", "sha256d")[1]

    lines = [line.split() for line in out.splitlines() if "openssl speed" in line]
    assert status == 0
    assert [(line[5], line[-2]) for line in lines] == [("with_peer", "1.250"), ("with_faster_peer", "0.750")]
    assert "openssl" not in hidden


CONTRADICTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "seconds": lambda d: d["results"][1].update(seconds=d["results"][1]["upper_quartile_s"] * 2),
    "hashes_per_s": lambda d: d["results"][1].update(hashes_per_s=d["results"][1]["hashes_per_s"] * 1.01),
    "gigabytes_per_s": lambda d: d["results"][1].update(gigabytes_per_s=12.5),
    "spread_ratio": lambda d: d["results"][1].update(spread_ratio=1e-3),
    "share_of_limit": lambda d: d["results"][1].update(share_of_limit=0.99),
    "limit_formula": lambda d: d["results"][1].update(limit_formula=""),
    "power_source": lambda d: d["results"][1].update(joules_per_hash=1e-9),
    "net_joules_per_hash": lambda d: d["results"][1].update(
        joules_per_hash=1e-9, net_joules_per_hash=2e-9, mean_w=1.0, power_source="RAPL"
    ),
    "least_hashes_per_line": lambda d: d["verification"].update(least_hashes_per_line=10**9),
    "window of energy": lambda d: d["results"][1].update(
        joules_per_hash=2e-9, net_joules_per_hash=1e-9, mean_w=1.0, power_source="RAPL"
    ),
    "begun_at": lambda d: d["conditions"].update(begun_at="2026-13-41T00:00:00+00:00"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_figures_that_contradict_each_other_are_refused(run: Run, folder: Path, name: str) -> None:
    """A figure is changed and the digest computed anew; what follows from the figure refuses the file."""
    path = folder / "slow.json"
    benchmarks.change(path, CONTRADICTIONS[name], digest_anew=True)

    status, _, err = run(str(path))

    assert status == 1
    assert "slow.json contradicts itself: " in err
    assert name in err


def test_figures_that_break_the_rules_are_marked(results: list[Result], folder: Path) -> None:
    """Too short, too few runs, too much spread, another program at work: each with its value."""
    benchmark = document.read(folder / "slow.json")
    benchmark = replace(benchmark, conditions=replace(benchmark.conditions, busy_elsewhere_ratio=0.5))
    wide = replace(results[1], runs=5, upper_quartile_s=results[1].lower_quartile_s * 2, joules_per_hash=1e-9)

    broken = submissions.broken_rules(benchmark, wide)

    assert [rule.split()[0] for rule in broken] == ["0.01", "5", "spread", "other", "energy"]
    careful = replace(
        benchmark,
        method=replace(benchmark.method, seconds_per_stage=10.0, energy_window_s=5.0),
        conditions=replace(benchmark.conditions, busy_elsewhere_ratio=0.01),
    )
    steady = replace(wide, runs=20, lower_quartile_s=wide.seconds, upper_quartile_s=wide.seconds)
    assert submissions.broken_rules(careful, steady) == []
    beyond = replace(steady, limit_hashes_per_s=steady.hashes_per_s / 1.5)
    assert submissions.broken_rules(careful, beyond) == ["150% of the limit"]
    unknown = replace(careful, conditions=replace(careful.conditions, busy_elsewhere_ratio=None))
    assert submissions.broken_rules(unknown, steady) == ["other load unknown"]


def test_the_chart_has_a_bar_per_machine(run: Run, folder: Path) -> None:
    """An SVG with both machines and the cases; a wrong name is refused before anything is read."""
    pytest.importorskip("vl_convert")

    assert run(str(folder), "--plot", str(folder / "all.svg"))[0] == 0

    text = (folder / "all.svg").read_text()
    assert text.startswith("<svg")
    for expected in ("fast, cpu", "slow, reference", "sha256d, 64 B, 300 a call, kernel"):
        assert f">{expected}</text>" in text
    assert "does not end in .svg" in run(str(folder), "--plot", str(folder / "all.png"))[2]


def test_wrong_calls_say_what_to_do(run: Run, folder: Path, tmp_path: Path) -> None:
    """No such file, an empty folder, an unknown name, nonsense as a price: one line each."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, complaint in (
        ((str(folder / "none.json"),), "none.json does not exist"),
        ((str(empty),), "has no file *.json; write one with gpuhash bench --json"),
        ((str(folder), "--algorithm", "md5"), "no file has a figure of algorithm md5"),
        ((str(folder), "--price-per-hour", "cheap"), "'cheap' is no price above 0"),
        ((str(folder), "--price-per-hour", "-1"), "'-1' is no price above 0"),
        ((str(folder), "--price-per-hour", "inf"), "'inf' is no price above 0"),
        ((str(folder), "--price-per-hour", "1", "--price-per-hour", "2"), "all files has a price already"),
        ((str(folder), "--price-per-hour", "other=1"), "names 'other'; the files are fast, slow"),
    ):
        status, _, err = run(*arguments)
        assert (status, complaint in err) == (1, True), err
    assert run()[0] == 2


def test_files_of_one_name_are_told_apart_by_their_folder(folder: Path, tmp_path: Path) -> None:
    """a/x.json and b/x.json are a/x and b/x; the same file named twice is read once."""
    for name, source in (("a", "slow"), ("b", "fast")):
        (tmp_path / name).mkdir()
        shutil.copy(folder / f"{source}.json", tmp_path / name / "x.json")

    files = submissions.files_of([tmp_path / "a", tmp_path / "b", tmp_path / "a" / "x.json"])
    accepted, _ = submissions.collect(files, {})

    assert [submission.name for submission in accepted] == ["a/x", "b/x"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """What cannot be encoded leaves the old file as it was; the check before leaves no trace."""
    path = tmp_path / "x.svg"
    whole_file.require(path)
    assert list(tmp_path.iterdir()) == []
    whole_file.write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        whole_file.write(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InvalidInputError, match="does not exist"):
        submissions.files_of([tmp_path / "y.json"])
