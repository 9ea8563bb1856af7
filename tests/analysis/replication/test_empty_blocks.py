"""Test the statement on empty blocks with arrivals made for the authors' heights and with ugly files."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from analysis.errors import PublishedDataError
from analysis.replication.arrivals import ArrivalFacts, arrival_facts, load_arrivals
from analysis.replication.empty_blocks import empty_intervals
from analysis.replication.published import load
from analysis.replication.statement import CheckedStatement

FIRST_MS = 1_456_000_000_000
MEAN_S = 590.0
Row = tuple[int, int]  # height and milliseconds after FIRST_MS


@pytest.fixture(scope="module")
def sizes(data_dir: Path) -> pa.Table:
    """Read the authors' size files: height, pool and number of transactions of 75,490 blocks."""
    with duckdb.connect() as connection:
        load(connection, data_dir / "paper")
        return connection.sql("SELECT height, label, n_tx FROM paper_sizes").to_arrow_table()


def write(path: Path, rows: Sequence[Row], fork: int = 0) -> Path:
    """Write a file of arrivals; `fork` marks the hashes of a branch."""
    lines = (f"{height},{height + (fork << 64):064x},{FIRST_MS + ms}\n" for height, ms in rows)
    with path.open("a") as file:
        file.writelines(lines)
    return path


def arrivals_of(sizes: pa.Table, path: Path, seed: int, empty_factor: float) -> Path:
    """Write arrivals of each height of the window, as a Poisson process, in whole seconds.

    Before each empty block of the authors the interval is multiplied by `empty_factor`.
    """
    known, n_tx = sizes["height"].to_numpy(), sizes["n_tx"].to_numpy()
    heights = np.arange(known.min() - 1, known.max() + 1)
    intervals_s = np.random.default_rng(seed).exponential(MEAN_S, len(heights))
    intervals_s[known[n_tx == 1] - heights[0]] *= empty_factor
    seconds = intervals_s.cumsum().astype(np.int64)
    return write(path, list(zip(heights.tolist(), (seconds * 1000).tolist(), strict=True)))


def statement(sizes: pa.Table, files: Sequence[Path]) -> CheckedStatement:
    """Check the statement on blocks of known size and files of arrivals."""
    with duckdb.connect() as connection:
        connection.register("sizes", sizes)
        connection.execute("CREATE TABLE paper_sizes AS SELECT * FROM sizes")
        load_arrivals(connection, files)
        (checked,) = empty_intervals(connection)
        return checked


def intervals(files: Sequence[Path]) -> tuple[dict[tuple[str, int], float], ArrivalFacts]:
    """Return the interval of each source and height, and the facts of heights up to 1000."""
    with duckdb.connect() as connection:
        load_arrivals(connection, files)
        rows = connection.execute("SELECT source, height, interval_s FROM arrival_intervals").fetchall()
        return {(source, height): s for source, height, s in rows}, arrival_facts(connection, 0, 1000)


@pytest.mark.data
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_without_an_effect_nothing_is_confirmed(sizes: pa.Table, tmp_path: Path, seed: int) -> None:
    """Arrivals that do not depend on emptiness never confirm it, though every block is timed."""
    checked = statement(sizes, [arrivals_of(sizes, tmp_path / "made.csv", seed, 1.0)])

    assert checked.verdict == "differs"
    assert "an interval for 75,490 of 75,490 blocks (100.00 %)" in checked.reason
    assert "for 950 of 950 empty ones" in checked.reason
    assert "Stamps of made are whole seconds" in checked.reason


@pytest.mark.data
@pytest.mark.parametrize(("seed", "factor", "effect"), [(1, 0.2, -0.667), (2, 0.7, -0.176), (3, 1.5, 0.2)])
def test_a_planted_effect_is_found_with_its_size(
    sizes: pa.Table, tmp_path: Path, seed: int, factor: float, effect: float
) -> None:
    """The interval of the effect holds the planted one: (f - 1) / (f + 1) for exponential intervals."""
    checked = statement(sizes, [arrivals_of(sizes, tmp_path / "made.csv", seed, factor)])

    assert checked.verdict == ("replicated" if effect < 0 else "differs")
    low, high = checked.ours.split("rank-biserial")[1].split("interval ")[1].split(")")[0].split(" to ")
    assert float(low) < effect < float(high)
    assert "AntPool" in checked.reason.split("Within pools: ")[1]


@pytest.mark.data
def test_arrivals_of_another_window_give_no_test(sizes: pa.Table, data_dir: Path) -> None:
    """Real files of 2021 to 2023 have no height of the paper: the statement cannot be replicated."""
    files = sorted((data_dir / "block-arrival-times").glob("*.csv"))

    checked = statement(sizes, files)

    assert checked.verdict == "cannot be replicated"
    assert "(3) give intervals of 0 empty and" in checked.reason


@pytest.mark.data
def test_real_files_give_the_intervals_of_one_clock(data_dir: Path) -> None:
    """Two nodes that list 39,000 blocks in common give the same intervals; half differ by 1 s at most."""
    files = [
        data_dir / "block-arrival-times" / f"{name}.csv" for name in ("darosior_node0", "vostrnad_node1")
    ]
    found, _ = intervals(files)
    of_node = [{height: s for (source, height), s in found.items() if source == path.stem} for path in files]
    common = sorted(of_node[0].keys() & of_node[1].keys())

    assert len(common) > 39_000
    differences = np.array([of_node[0][height] - of_node[1][height] for height in common])
    assert np.median(np.abs(differences)) <= 1
    assert np.mean(list(of_node[0].values())) == pytest.approx(588, abs=2)


def test_no_interval_has_two_clocks(tmp_path: Path) -> None:
    """A source without the parent gives no interval, even where another source, a day ahead, has it."""
    first = write(tmp_path / "first.csv", [(1, 0), (2, 600_000), (4, 1_800_000)])
    second = write(tmp_path / "second.csv", [(h, 86_400_000 + h * 500_500) for h in (2, 3, 4)])

    found, facts = intervals([first, second])

    assert found == {("first", 2): 600.0, ("second", 3): 500.5, ("second", 4): 500.5}
    assert facts.whole_seconds == ("first",)


def test_the_first_file_counts_where_both_have_an_interval(tmp_path: Path) -> None:
    """Of two files with an interval the first named is taken, whatever its name."""
    quick = write(tmp_path / "z.csv", [(h, h * 300_000) for h in range(120)])
    slow = write(tmp_path / "a.csv", [(h, h * 900_000) for h in range(120)])
    n_tx = [1 + height % 2 for height in range(1, 120)]
    blocks = pa.table({"height": range(1, 120), "label": ["P"] * 119, "n_tx": n_tx})

    checked = statement(blocks, [slow, quick])

    assert "by one clock (a 119)" in checked.reason


def test_forks_pauses_and_steps_back_are_left_out(tmp_path: Path) -> None:
    """Heights with two blocks, blocks fetched after a pause, and stamps before the parent are left out."""
    rows = [(h, h * 600_000) for h in range(1, 11)]
    rows += [(h, 90_000_000 + h * 1000) for h in range(11, 19)]  # eight blocks at once, after a day
    rows += [(19, 91_000_000), (20, 90_999_000), (21, 91_600_000)]
    path = write(tmp_path / "ugly.csv", rows)
    write(path, [(5, 3_000_000)], fork=1)
    write(path, [(7, 4_200_000)])  # the same block twice is no fork

    found, facts = intervals([path])

    assert sorted(height for _, height in found) == [2, 3, 4, 7, 8, 9, 10, 21]
    assert (facts.n_forks, facts.n_catch_up, facts.n_backwards) == (1, 8, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"x\.csv is no file; name a file of arrival times with --arrivals"),
        ("height,hash,timestamp_ms\n", r"x\.csv is no list of height"),
        (f"1,{'g' * 64},1\n", r"x\.csv is no list .* \(1 rows have no block hash\)"),
        ("<html>\n", r"x\.csv is no list of height"),
    ],
)
def test_another_file_is_refused_by_name(tmp_path: Path, content: str | None, message: str) -> None:
    """A file that is missing or has another form raises an error of one line that names it."""
    path = tmp_path / "x.csv"
    if content is not None:
        path.write_text(content)

    with duckdb.connect() as connection, pytest.raises(PublishedDataError, match=message) as error:
        load_arrivals(connection, [path])
    assert "\n" not in str(error.value)
