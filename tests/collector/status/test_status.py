"""Test `pool-collector status`: counts, rates, gaps and the state of a running collector, without a node."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from collector.cli import app
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, COVERAGE
from collector.errors import DatasetError
from collector.journal.coverage_ledger import CoverageLedger
from collector.journal.journal import Journal
from collector.monitor.metrics import Metrics, NodeState
from collector.receive.records import Message
from collector.status.gather import gather
from collector.status.running import ask_metrics, metrics_url
from tests.collector.check.made_dataset import START_US, at_us, make_rows, write

DAY_US = 86_400_000_000


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make a dataset of a session that has ended."""
    return write(tmp_path / "d", make_rows())


def test_tables_are_counted_by_their_footers(dataset: Dataset) -> None:
    """Tables show files, rows, bytes and their span; a file that cannot be read is named."""
    tables = {table.name: table for table in gather(dataset).tables}
    assert (tables["blocks"].n_files, tables["blocks"].n_rows) == (1, 3)
    assert (tables["blocks"].first, tables["blocks"].last) == (100, 102)
    assert tables["blocks"].n_bytes == dataset.paths(BLOCKS)[0].stat().st_size
    events = tables["mempool_events"]
    assert (events.n_rows, events.first, events.last) == (7, "2024-10-04T00:00:01Z", "2024-10-04T00:00:07Z")
    assert tables["rejects"].n_rows == 0
    dataset.paths(BLOCKS)[0].write_bytes(b"PAR1")
    status = gather(dataset)
    assert status.unreadable == [str(dataset.paths(BLOCKS)[0])]


def test_a_damaged_file_hides_no_other_of_its_table(dataset: Dataset) -> None:
    """Of two files of a table one is damaged: it is named, and the rows of the other count."""
    (whole,) = dataset.paths(BLOCKS)
    damaged = whole.with_stem(f"{whole.stem}-2")
    damaged.write_bytes(whole.read_bytes()[:-9] + b"12345PAR1")

    status = gather(dataset)

    (blocks,) = [table for table in status.tables if table.name == "blocks"]
    assert (blocks.n_files, blocks.n_rows, blocks.first, blocks.last) == (1, 3, 100, 102)
    assert status.unreadable == [str(damaged)]


@pytest.mark.parametrize("kind", [duckdb.InvalidInputException, duckdb.IOException])
def test_a_file_that_fails_only_while_it_is_read_is_named(dataset: Dataset, kind: type[Exception]) -> None:
    """A file can have a sound footer and a damaged page: one sentence names it and says what to do."""
    (path,) = dataset.paths(COVERAGE)
    whole = path.read_bytes()
    with duckdb.connect() as connection:
        for at in range(4, len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
            try:
                connection.execute("SELECT count(*) FROM parquet_metadata(?)", [str(path)])
                connection.execute("SELECT hash(COLUMNS(*)) FROM read_parquet(?)", [str(path)]).fetchall()
            except kind:
                break
            except duckdb.Error:
                continue

    said = CliRunner().invoke(app, ["status", str(dataset.root)]).exception

    assert isinstance(said, DatasetError)
    assert str(said).startswith(f"{path} cannot be read (DuckDB says: ")
    assert str(said).endswith("; restore it or move it out of the dataset")


def test_a_node_shows_its_last_session_its_tip_and_its_rates(dataset: Dataset) -> None:
    """Rates are averages over the seven recorded seconds; `behind_s` counts from the last of them."""
    before_s = time.time()
    (node,) = gather(dataset).nodes
    assert (node.name, node.session, node.n_sessions, node.is_running) == ("n", "s", 1, False)
    assert (node.tip_height, node.stored_height) == (102, 102)
    assert node.observed_until == "2024-10-04T00:00:07Z"
    assert node.behind_s is not None
    assert before_s - 0.1 <= node.behind_s + at_us(6) / 1e6 <= time.time() + 0.1
    # All but what stands at the begin: 7 events, 4 entries, 2 arrivals, 3 rows of a template, 2 intervals.
    assert node.rows_per_s == pytest.approx(18 / 7, abs=0.001)
    assert node.txs_per_s == pytest.approx(4 / 7, abs=0.001)


def test_gaps_of_the_last_day_are_named(tmp_path: Path) -> None:
    """A gap between two intervals and one up to now are shown; older ones are not."""
    now_us = time.time_ns() // 1000
    rows = make_rows()
    interval = rows["coverage"][0]
    hours = [(-40, -30, "gap"), (-29, -3, "reconnect"), (-2, -1, "shutdown")]
    rows["coverage"] = [
        {**interval, "from_at": now_us + begin * DAY_US // 24, "to_at": now_us + end * DAY_US // 24}
        | {"end_reason": reason}
        for begin, end, reason in hours
    ]
    (node,) = gather(write(tmp_path / "d", rows)).nodes
    assert [(gap.topic, gap.duration_s, gap.reason, gap.to_at is None) for gap in node.gaps] == [
        ("sequence", pytest.approx(3600, abs=1), "reconnect", False),
        ("sequence", pytest.approx(3600, abs=60), "shutdown", True),
    ]


def test_what_a_clock_ahead_recorded_tells_nothing(tmp_path: Path) -> None:
    """A session and an interval in the future hide neither the last session nor the gaps up to now."""
    now_us = time.time_ns() // 1000
    rows = make_rows()
    ahead_us = now_us + 400 * DAY_US
    rows["nodes"] = [
        rows["nodes"][0] | {"session": "ahead", "started_at": ahead_us},
        rows["nodes"][0] | {"session": "last", "started_at": now_us - 3 * DAY_US // 24},
    ]
    ends = [("ahead", ahead_us, 1, "clock_step"), ("last", now_us - 3 * DAY_US // 24, 1, "shutdown")]
    rows["coverage"] = [
        rows["coverage"][0]
        | {"session": session, "from_at": from_at, "to_at": from_at + hours * DAY_US // 24}
        | {"end_reason": reason}
        for session, from_at, hours, reason in ends
    ]
    rows["mempool_events"] = [
        each | {"received_at": now_us - 2 * DAY_US // 24 - 1} for each in rows["mempool_events"]
    ]
    root = write(tmp_path / "d", rows).root
    said = json.loads(CliRunner().invoke(app, ["status", str(root), "--json"]).stdout)
    (node,) = said["nodes"]
    assert (node["session"], node["n_sessions"], node["n_intervals_ahead"]) == ("last", 1, 1)
    assert node["behind_s"] == pytest.approx(7200, abs=60)
    assert node["rows_per_s"] == pytest.approx(8 / 3600, abs=0.001)  # 7 events and an interval
    assert [(gap["reason"], gap["to_at"]) for gap in node["gaps"]] == [("shutdown", None)]
    assert "1 interval in the future left out" in CliRunner().invoke(app, ["status", str(root)]).stdout


def test_after_a_kill_the_open_gap_says_that_no_collector_runs(tmp_path: Path) -> None:
    """The last interval of a killed collector ends with a seal, which is no reason for a gap."""
    now_us = time.time_ns() // 1000
    rows = make_rows()
    rows["coverage"] = [
        rows["coverage"][0] | {"from_at": now_us - DAY_US // 12, "to_at": now_us - DAY_US // 24}
    ]
    shown = CliRunner().invoke(app, ["status", str(write(tmp_path / "d", rows).root)]).stdout
    assert re.search(r"sequence: .* to now, \S+ min \(no collector is running\)", shown)


def test_a_running_collector_shows_its_journal_and_no_gap_at_the_end(dataset: Dataset) -> None:
    """A held lock means running; rows still in the journal count as observed and as backlog."""
    with Journal(dataset.root / "journal" / "regtest" / "n") as journal:
        journal.recover(dataset)
        ledger = CoverageLedger("n", "s")
        now_us = time.time_ns() // 1000
        for topic in ("sequence", "mempool"):
            ledger.open(topic, START_US + 7_000_000)
            ledger.count(topic, 7, now_us)
        journal.append_messages([Message("n", "s", "sequence", 7, now_us * 1000, b"x" * 1000)])
        journal.set_state("coverage/s", ledger.state())
        journal.flush()
        status = gather(dataset)
        (node,) = status.nodes
        assert status.is_running
        assert node.is_running
        assert node.n_segments == 1
        assert node.journal_bytes > 1000
        assert node.behind_s is not None
        assert node.behind_s < 60
        assert node.gaps == []


def test_what_metrics_say_now_is_shown_per_node(
    served: tuple[str, Metrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics are read from this machine only, past any proxy; no answer is no error."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    address, metrics = served
    metrics.state("n", NodeState(in_step=True, away=False, n_mempool=5, n_queued=3, n_waiting=2))
    said = ask_metrics(address)["n"]
    assert (said["in_step"], said["rpc_away"], said["queued_messages"]) == (1, 0, 3)
    assert ask_metrics("192.0.2.1:9733") == {}
    assert ask_metrics("127.0.0.1:1") == {}


@pytest.mark.parametrize("text", ["a{, =b} 1", "# TYPE a", "<html>{\n</html>"])
def test_another_service_at_the_address_is_no_error(text: str) -> None:
    """What answers there may be no collector; text that is no metrics counts as no answer."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert ask_metrics(f"127.0.0.1:{server.server_port}") == {}


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("[::1]:9733", "http://[::1]:9733/metrics"),
        ("127.0.0.1:9733@example.org", None),  # a name and a password, and then another machine
        ("127.0.0.1:9733/../x", None),
        ("0.0.0.0:9733", None),
        ("nothing", None),
    ],
)
def test_a_dataset_from_elsewhere_makes_nobody_else_be_asked(address: str, url: str | None) -> None:
    """An address from a dataset that is not a loopback host and a port gives no URL."""
    assert metrics_url(address) == url


def test_the_command_shows_it_in_a_terminal_and_as_json(dataset: Dataset) -> None:
    """The command prints the status as text and as JSON; a folder that is no dataset is an error."""
    shown = CliRunner().invoke(app, ["status", str(dataset.root)])
    assert shown.exit_code == 0
    assert "no collector is running" in shown.stdout
    assert "recorded until 2024-10-04 00:00:07 UTC" in shown.stdout
    assert "first (UTC)" in shown.stdout
    assert re.search(r"blocks +1 +3 +0\.0 +block 100 +block 102", shown.stdout)
    assert max(map(len, shown.stdout.splitlines()[1:])) <= 80  # the first has a path
    said = CliRunner().invoke(app, ["status", str(dataset.root), "--json"])
    assert json.loads(said.stdout)["nodes"][0]["tip_height"] == 102
    none = CliRunner().invoke(app, ["status", str(dataset.root.parent)])
    assert isinstance(none.exception, DatasetError)


def test_imported_rows_have_the_span_of_what_they_are_about(dataset: Dataset, tmp_path: Path) -> None:
    """Prices span their days, not the moment of import; JSON has numbers, ISO 8601 and the column."""
    prices = tmp_path / "prices.csv"
    prices.write_text("date,price\n2016-01-06,430\n2016-03-09,412\n")
    options = ["--source", "me", "--licence", "CC0-1.0", "--url", "https://example.org"]
    imported = CliRunner().invoke(
        app, ["import", "prices", str(prices), *options, "--dataset", str(dataset.root)]
    )
    assert imported.exit_code == 0, imported.output

    said = json.loads(CliRunner().invoke(app, ["status", str(dataset.root), "--json"]).stdout)
    spans = {table["name"]: (table["span_column"], table["first"], table["last"]) for table in said["tables"]}
    assert spans["external_prices"] == ("day_at", "2016-01-06T00:00:00Z", "2016-03-09T00:00:00Z")
    assert spans["blocks"] == ("height", 100, 102)
    column, *ends = spans["external_sources"]
    assert column == "imported_at"
    moments = [*ends, said["nodes"][0]["started_at"], said["nodes"][0]["observed_until"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moment) for moment in moments)

    shown = CliRunner().invoke(app, ["status", str(dataset.root)]).stdout
    assert re.search(r"external_prices +1 +2 +0\.0 +2016-01-06 +2016-03-09 *\n", shown)
    assert "first and last are the times of import: external_sources\n" in shown


def test_output_that_goes_to_no_terminal_is_as_wide_as_its_rows(dataset: Dataset) -> None:
    """A narrow COLUMNS cuts and wraps nothing there; tests/test_narrow_terminals.py has the terminals."""
    shown = CliRunner().invoke(app, ["status", str(dataset.root)], env={"COLUMNS": "20"}).stdout
    grid = shown.partition("\n\n")[2].partition("\n\n")[0]
    names = [table.name for table in gather(dataset).tables if table.n_files]
    assert [line.split()[0] for line in grid.splitlines()] == ["table", *names]


def test_many_gaps_do_not_fill_the_screen(tmp_path: Path) -> None:
    """Text shows only the 20 newest gaps, with readable durations; JSON has all of them."""
    now_us = time.time_ns() // 1000
    rows = make_rows()
    minutes = [(-20 * number - 10, -20 * number - 5) for number in range(30)]
    rows["coverage"] = [
        rows["coverage"][0]
        | {"from_at": now_us + begin * 60_000_000, "to_at": now_us + end * 60_000_000, "end_reason": "gap"}
        for begin, end in minutes
    ]
    root = write(tmp_path / "d", rows).root
    shown = CliRunner().invoke(app, ["status", str(root)]).stdout
    assert "gaps in the last day (times in UTC): 30\n    the last 20 of them; --json has all" in shown
    assert shown.count(", 15.0 min (gap)") == 19
    assert re.search(r"to now, \d+\.\d min \(gap\)", shown)
    assert "recorded until" in shown
    said = json.loads(CliRunner().invoke(app, ["status", str(root), "--json"]).stdout)
    assert len(said["nodes"][0]["gaps"]) == 30
