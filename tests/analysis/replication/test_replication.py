"""Test that `replicate paper` gives the figures of the authors' files, and refuses other files."""

import csv
import datetime as dt
import io
import json
import math
import random
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from analysis.attribution.rules import RuleSet, default_rules_dir, load_rules
from analysis.errors import PublishedDataError
from analysis.replication.paper import replicate
from analysis.replication.spreadsheet import read_rows
from analysis.replication.statement import CheckedStatement, write_statements
from tests.analysis.test_cli import run

NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
POOLS = {"antpool": "AntPool", "f2pool": "F2Pool", "btccom": "BTC.com", "viabtc": "ViaBTC"}


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    """Load the rules that come with the project."""
    return load_rules(default_rules_dir())


def write_sheet(path: Path, label: str, rows: list[tuple[int, int, int]]) -> None:
    """Write a spreadsheet of height, label, size and number of transactions; all rows share the label."""
    cells = "".join(
        f'<row r="{n}"><c r="A{n}"><v>{height}</v></c><c r="B{n}" t="s"><v>0</v></c>'
        f'<c r="C{n}"><v>{size}</v></c><c r="D{n}"><v>{n_tx}</v></c><c r="E{n}"/></row>'
        for n, (height, size, n_tx) in enumerate(rows, start=1)
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/sharedStrings.xml", f'<sst xmlns="{NAMESPACE}"><si><t>{label}</t></si></sst>')
        archive.writestr(
            "xl/worksheets/sheet1.xml",
            f'<worksheet xmlns="{NAMESPACE}"><sheetData>{cells}</sheetData></worksheet>',
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write files of the published form with ten invented blocks and three days."""
    labels = ["AntPool"] * 4 + ["F2Pool"] * 3 + ["BWPool", "BW.COM", "unknown"]
    lines = [f"{400_000 + n},{label}" for n, label in enumerate(labels)]
    (tmp_path / "miningpool.csv").write_text("\n".join(["blockid,miningpool", *lines]) + "\n")
    for file, label in POOLS.items():
        write_sheet(tmp_path / f"blocksize_{file}.xlsx", label, [(400_000, 208, 1), (400_011, 900, 7)])
    header = "Time,AntPool,F2Pool,Unknown,ViaBTC,others,,ALL,ANTPOOL,F2POOL,VIABTC,BTCCOM"
    days = [f"2016-02-{day} 00:00:00 UTC,30,20,10,,40,,100,30,20,0,{day - 21}" for day in (25, 26, 27)]
    (tmp_path / "hash_rate.csv").write_text("\n".join([header, *days]) + "\n")
    (tmp_path / "mining_revenue.csv").write_text("2/25/2016,1319649\n2/26/2016,1547381\n")
    (tmp_path / "bitcoin_price.csv").write_text(
        "currency,date_UTC,price_USD\nBTC,2016-02-25T00:00:00Z,432.4\n"
    )
    return tmp_path


@pytest.fixture(scope="module")
def published(rules: RuleSet, data_dir: Path) -> list[CheckedStatement]:
    """Check every statement on the authors' own files, once for all tests."""
    return replicate(data_dir / "paper", rules)


def by_statement(findings: list[CheckedStatement], beginning: str) -> CheckedStatement:
    """Return the only finding whose statement begins with a text."""
    (finding,) = [finding for finding in findings if finding.statement.startswith(beginning)]
    return finding


@pytest.mark.data
def test_the_papers_statements_on_the_authors_data(published: list[CheckedStatement]) -> None:
    """Figures and verdicts of each statement equal those counted by hand from the published files."""
    findings = published

    ours = {finding.statement: (finding.ours, finding.verdict) for finding in findings}
    for label, count in (
        ("AntPool", "27,026"),
        ("F2Pool", "19,282"),
        ("BTC.com", "17,488"),
        ("ViaBTC", "12,100"),
    ):
        assert ours[f"Blocks of {label} over the window"] == (count, "replicated")
    labelled = by_statement(findings, "Blocks that carry")
    assert labelled.ours.startswith("98.51 % (143,964 of 146,148")
    assert labelled.verdict == "differs"
    assert "88 heights of 146,236 are missing" in labelled.reason
    assert "the size files name 5,193, so over the whole window it is 95.14 % to 98.61 %" in labelled.reason
    top_25 = by_statement(findings, "Blocks of the 25")
    assert top_25.verdict == "replicated"
    assert "with the labels as published it is 96.76 %" in top_25.reason
    top_3 = by_statement(findings, "Hashrate of the three")
    assert top_3.ours == "over one third on 1,037 of 1,044 days; least 32.44 %"
    assert top_3.verdict == "differs"
    assert "988 of 992 runs" in top_3.reason
    assert by_statement(findings, "The price").verdict == "replicated"
    empty = by_statement(findings, "Intervals before")
    assert "950 of 75,490 blocks" in empty.ours
    assert "AntPool 562 of 26,932" in empty.ours
    cannot = [finding.statement for finding in findings if finding.verdict == "cannot be replicated"]
    assert len(cannot) == 4
    assert all(finding.reason for finding in findings)


@pytest.mark.data
def test_the_papers_growth_and_revenue_on_the_authors_data(published: list[CheckedStatement]) -> None:
    """Slopes and R2 equal those of an ordinary regression on the published series."""
    findings = published

    growth = {finding.statement: finding for finding in findings if "exponentially" in finding.statement}
    for name, r_squared, rate in (
        ("the network", 0.969, 0.00427),
        ("AntPool", 0.913, 0.00376),
        ("F2Pool", 0.805, 0.00301),
        ("BTC.com", 0.910, 0.00733),
        ("ViaBTC", 0.873, 0.00559),
    ):
        finding = growth[f"Hashrate of {name} grows exponentially"]
        assert f"R2 = {r_squared:.3f}" in finding.ours
        assert f"lambda = {rate:.5f} per day" in finding.ours
        assert finding.verdict == "replicated"
    trap = by_statement(findings, "Hashrate outgrows")
    assert "of revenue in USD 0.00295 per day" in trap.ours
    assert "of revenue per unit -0.00133 per day" in trap.ours
    assert trap.verdict == "replicated"
    assert by_statement(findings, "Each pool grows").ours.startswith("lambda above 0 for 4 of 4 pools")
    threshold = by_statement(findings, "Hashrate grows when")
    assert threshold.ours.startswith("331 USD per PH/s and day")
    assert threshold.verdict == "differs"


def write_series(folder: Path, days: Iterable[tuple[dt.date, float, float]]) -> None:
    """Write a hashrate (of the network, with the pools a part of it) and a revenue for each day."""
    header = "Time,AntPool,F2Pool,Unknown,ViaBTC,others,,ALL,ANTPOOL,F2POOL,VIABTC,BTCCOM"
    rates, revenues = [header], []
    for day, rate, revenue in days:
        parts = f"{rate / 4},{rate / 8},{rate / 8},{rate / 4},0,,{rate},0,0,0,{rate / 4}"
        rates.append(f"{day} 00:00:00 UTC,{parts}")
        revenues.append(f"{day:%m/%d/%Y},{revenue}")
    (folder / "hash_rate.csv").write_text("\n".join(rates) + "\n")
    (folder / "mining_revenue.csv").write_text("\n".join(revenues) + "\n")


@pytest.mark.parametrize(("pays_per_unit", "verdict"), [(True, "replicated"), (False, "differs")])
def test_a_planted_threshold_is_found_and_its_absence_too(
    folder: Path, rules: RuleSet, *, pays_per_unit: bool, verdict: str
) -> None:
    """A threshold is found if hashrate grows only after well-paid periods, and not if it grows regardless."""
    draw = random.Random(9)  # noqa: S311 - a test wants repeatable chance
    days, rate, begin = [], 1e18, dt.date(2016, 2, 25)
    for period in range(60):
        unit = draw.choice([200.0, 600.0])
        days += [
            (begin + dt.timedelta(days=14 * period + day), rate, unit * rate / 1e15) for day in range(14)
        ]
        is_good = unit == 600 if pays_per_unit else draw.random() < 0.5
        rate *= (1.1 if is_good else 1.0) * draw.uniform(0.99, 1.01)
    write_series(folder, days)

    threshold = by_statement(replicate(folder, rules), "Hashrate grows when")

    assert threshold.verdict == verdict
    if pays_per_unit:
        assert threshold.ours.startswith("200 USD per PH/s and day (95 % interval 200 to 600)")
        assert "+0.0 % below and +1" not in threshold.ours
        assert "below and +10." in threshold.ours or "below and +9." in threshold.ours


@pytest.mark.parametrize(("revenue_growth", "verdict"), [(0.001, "replicated"), (0.006, "differs")])
def test_the_trap_needs_hashrate_to_outgrow_revenue(
    folder: Path, rules: RuleSet, revenue_growth: float, verdict: str
) -> None:
    """For hashrate growing by 0.4 % a day, the verdict depends on whether revenue grows by less."""
    draw = random.Random(8)  # noqa: S311 - a test wants repeatable chance
    begin = dt.date(2016, 2, 25)
    write_series(
        folder,
        [
            (
                begin + dt.timedelta(days=day),
                1e18 * math.exp(0.004 * day + draw.gauss(0, 0.02)),
                1e6 * math.exp(revenue_growth * day + draw.gauss(0, 0.02)),
            )
            for day in range(120)
        ],
    )

    findings = replicate(folder, rules)

    assert by_statement(findings, "Hashrate outgrows").verdict == verdict
    assert by_statement(findings, "Each pool grows").verdict == verdict
    assert by_statement(findings, "Hashrate of AntPool grows").verdict == "replicated"


def test_files_without_a_day_in_common_say_nothing_of_revenue(folder: Path, rules: RuleSet) -> None:
    """Without a common day of hashrate and revenue, no statement about revenue per unit is checked."""
    (folder / "mining_revenue.csv").write_text("2/25/2012,1319649\n")

    findings = replicate(folder, rules)

    assert not [
        finding for finding in findings if "unit" in finding.statement or "earns" in finding.statement
    ]


def test_figures_follow_the_files(folder: Path, rules: RuleSet) -> None:
    """On invented files every figure is the planted one, so no verdict is a constant."""
    findings = replicate(folder, rules)

    antpool = by_statement(findings, "Blocks of AntPool")
    # Four blocks have a label, one of these is also in the size file, and a fifth is only there.
    assert (antpool.ours, antpool.verdict) == ("5", "differs")
    assert by_statement(findings, "Blocks that carry").ours.startswith("90.00 % (9 of 10;")
    top_25 = by_statement(findings, "Blocks of the 25")
    assert top_25.ours.startswith("90.00 %")
    assert top_25.verdict == "differs"
    assert "leaves 3 pools" in top_25.reason  # BWPool is an alias of BW.COM
    top_3 = by_statement(findings, "Hashrate of the three")
    assert (top_3.ours, top_3.verdict) == ("over one third on 3 of 3 days; least 54.00 %", "replicated")
    assert "4 of 8 blocks of four pools are empty" in by_statement(findings, "Intervals before").ours
    assert [finding for finding in findings if "exponentially" in finding.statement] == []


def test_files_are_found_in_a_clone_too(folder: Path, rules: RuleSet, tmp_path: Path) -> None:
    """Files two levels down, as in a clone, give the same; two copies are an error."""
    flat = replicate(folder, rules)
    for number, file in enumerate(sorted(folder.glob("*.*"))):
        place = tmp_path / "clone" / "Data Set" / f"Part {number}"
        place.mkdir(parents=True)
        file.rename(place / file.name)

    assert replicate(tmp_path / "clone", rules) == flat

    copy = tmp_path / "clone" / "Data Set" / "Copy"
    copy.mkdir()
    (copy / "miningpool.csv").write_text("")
    with pytest.raises(PublishedDataError, match=r"has miningpool\.csv twice, as "):
        replicate(tmp_path / "clone", rules)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("miningpool.csv", None, "has no miningpool.csv"),
        ("miningpool.csv", "blockid,miningpool\nx,AntPool\n", r"miningpool\.csv is not the file"),
        ("hash_rate.csv", "a,b\n1,2\n", r"hash_rate\.csv is not the file"),
        ("mining_revenue.csv", "soon,1\n", r"mining_revenue\.csv is not the file"),
        ("blocksize_viabtc.xlsx", "no zip", r"blocksize_viabtc\.xlsx cannot be read as a spreadsheet"),
    ],
)
def test_a_file_that_is_missing_or_another_is_named(
    folder: Path, rules: RuleSet, file: str, content: str | None, message: str
) -> None:
    """A missing or changed file raises an error of one sentence that names it."""
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)

    with pytest.raises(PublishedDataError, match=message) as error:
        replicate(folder, rules)
    assert "\n" not in str(error.value)


def test_a_spreadsheet_without_the_columns_is_named(folder: Path, rules: RuleSet) -> None:
    """A row that lacks a value, or has a text in place of a number, raises an error that names the file."""
    write_sheet(folder / "blocksize_antpool.xlsx", "AntPool", [(400_000, 208, "many")])  # type: ignore[list-item]

    with pytest.raises(PublishedDataError, match=r"blocksize_antpool\.xlsx is not the file"):
        replicate(folder, rules)


def test_cells_are_read_by_column_and_empty_ones_left_out(tmp_path: Path) -> None:
    """Cells with shared texts get the text; a cell without a value is left out."""
    write_sheet(tmp_path / "a.xlsx", "Ant &amp; Pool", [(1, 2, 3)])

    assert list(read_rows(tmp_path / "a.xlsx")) == [{"A": "1", "B": "Ant & Pool", "C": "2", "D": "3"}]


@pytest.mark.parametrize(("width", "longest"), [(80, 80), (40, 40), (500, 100)])
def test_statements_fit_the_terminal(folder: Path, rules: RuleSet, width: int, longest: int) -> None:
    """No line is longer than the terminal or 100 characters, no word is lost, no control character left."""
    found = [*replicate(folder, rules), replace(replicate(folder, rules)[0], ours="\x1b[2J clear")]
    out = io.StringIO()

    write_statements(found, out, width)

    lines = out.getvalue().splitlines()
    assert longest - 15 < max(map(len, lines)) <= longest
    text = "".join(out.getvalue().split())
    assert all("".join(each.reason.split()) in text for each in found)
    assert "\x1b" not in out.getvalue()


def test_the_command_writes_text_csv_and_json(folder: Path) -> None:
    """All three formats hold the same rows; a folder without the files gives one sentence and exit 1."""
    replicated = partial(run, "replicate", "paper", "--data")

    rows = json.loads(replicated(folder, "--format", "json").stdout)
    assert list(csv.DictReader(io.StringIO(replicated(folder, "--format", "csv").stdout))) == rows
    text = replicated(folder).stdout
    assert all(f"{row['verdict'].upper()}: {row['statement']}" in text for row in rows)
    assert text.splitlines()[-1].startswith(f"{len(rows)} statements; replicated: ")
    failed = replicated(folder / "nowhere")
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert "--data" in failed.stderr


def test_the_command_takes_arrivals(folder: Path) -> None:
    """Files named with `--arrivals` are read and counted; one that is missing is named, with exit 1."""
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text("".join(f"{h},{h:064x},{h}000\n" for h in (399_999, 400_000, 400_011)))
    replicated = partial(run, "replicate", "paper", "--data", folder, "--format", "json", "--arrivals")

    rows = json.loads(replicated(folder / "a.csv", "--arrivals", folder / "b.csv").stdout)

    (reason,) = [row["reason"] for row in rows if row["statement"].startswith("Intervals before")]
    assert reason.startswith("The files of arrivals (2) give intervals of 4 empty and 0 other blocks")
    failed = replicated(folder / "c.csv")
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    assert "c.csv is no file" in failed.stderr
