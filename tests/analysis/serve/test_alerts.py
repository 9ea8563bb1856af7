"""Test events, their metrics, and webhooks against a server that fails, hangs and redirects."""

import datetime as dt
import json
import queue
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from analysis.engine import build
from analysis.errors import ServeError
from analysis.serve import webhooks as webhooks_of_serve
from analysis.serve.events import Event, events
from analysis.serve.results import Results
from analysis.serve.webhooks import MAX_QUEUED, MAX_TRIES, Alerts, Target, Webhook, read_targets, signature
from tests.analysis.serve.conftest import Site
from tests.analysis.shared_build import RULES
from tests.analysis.test_cli import run
from tests.analysis.world import START, label_bytes, write_world

# What the events are found in.
MARTS = (
    *("block_pool", "chain_blocks", "pool_life", "pool_share_window", "stale_branches"),
    *("run_manifest", "template_audit", "template_audit_block"),
)

SECRET = "a secret of a test"  # noqa: S105 - of a test
WAIT_S = 60
EVENT = Event("reorganisation:00", "reorganisation", None, "A node left a branch.", "/blocks/3")
N_EMPTY = 4


class Request(NamedTuple):
    """Holds one request that the planted server got."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class PlantedServer:
    """Takes events at /take; fails at /fail, twice at /twice, hangs at /hang, and redirects at /redirect."""

    def __init__(self) -> None:
        self.requests: queue.Queue[Request] = queue.Queue()
        self.released = threading.Event()
        planted, n_twice = self, iter(range(1000))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                planted.requests.put(Request(self.path, dict(self.headers.items()), body))
                if self.path == "/hang":
                    planted.released.wait(WAIT_S)
                    return
                fails = self.path == "/fail" or (self.path == "/twice" and next(n_twice) < 2)
                self.send_response(302 if self.path == "/redirect" else 500 if fails else 204)
                self.send_header("location", "/take")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Let what hangs go, and stop."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[PlantedServer]:
    """Give a server for one test."""
    planted = PlantedServer()
    yield planted
    planted.close()


@pytest.fixture
def webhooks() -> Iterator[list[Webhook]]:
    """Give a list whose webhooks are closed at the end."""
    made: list[Webhook] = []
    yield made
    for each in made:
        each.close()


def made(webhooks: list[Webhook], url: str, *, timeout_s: float = WAIT_S) -> Webhook:
    """Make a webhook that tries again at once."""
    webhooks.append(Webhook(Target(url=url, secret=SECRET), first_wait_s=0, timeout_s=timeout_s))
    return webhooks[-1]


def until(webhook: Webhook, outcome: str) -> None:
    """Wait until a webhook has counted an outcome."""
    waiting = threading.Event()
    for _ in range(WAIT_S * 100):
        if webhook.counts[outcome]:
            return
        waiting.wait(0.01)
    raise AssertionError(f"not {outcome}: {webhook.counts}")


def test_an_event_is_sent_signed(server: PlantedServer, webhooks: list[Webhook]) -> None:
    """The body is the event, and who knows the secret can prove who sent it and when."""
    webhook = made(webhooks, f"{server.url}/take")
    webhook.tell(EVENT)
    request = server.requests.get(timeout=WAIT_S)
    headers = {name.lower(): value for name, value in request.headers.items()}

    assert json.loads(request.body)["sentence"] == "A node left a branch."
    signed = signature(SECRET, headers["x-pool-analysis-time"], request.body)
    assert headers["x-pool-analysis-signature"] == f"sha256={signed}"
    assert signature("another secret, as long", headers["x-pool-analysis-time"], request.body) != signed
    until(webhook, "sent")


def test_a_server_that_fails_is_tried_again(server: PlantedServer, webhooks: list[Webhook]) -> None:
    """After two failures the third try is taken; each try has the same event and the same key."""
    webhook = made(webhooks, f"{server.url}/twice")
    webhook.tell(EVENT)
    until(webhook, "sent")
    tries = [server.requests.get(timeout=WAIT_S) for _ in range(3)]

    assert webhook.counts == {"failed": 2, "sent": 1}
    assert len({each.body for each in tries}) == 1
    assert len({each.headers["x-pool-analysis-event"] for each in tries}) == 1


@pytest.mark.parametrize("path", ["/fail", "/redirect"])
def test_after_the_last_try_an_event_is_dropped_and_named(
    server: PlantedServer, webhooks: list[Webhook], capfd: pytest.CaptureFixture[str], path: str
) -> None:
    """A redirect is not followed; the line names the server, and not the path, which may be a secret."""
    webhook = made(webhooks, server.url + path)
    webhook.tell(EVENT)
    until(webhook, "dropped")
    paths = {server.requests.get(timeout=WAIT_S).path for _ in range(MAX_TRIES)}

    assert (webhook.counts["failed"], paths, server.requests.empty()) == (MAX_TRIES, {path}, True)
    said = capfd.readouterr().err
    assert "http://127.0.0.1:" in said
    assert path not in said


def test_a_server_that_hangs_delays_nobody(server: PlantedServer, webhooks: list[Webhook]) -> None:
    """While one server hangs, telling returns, its queue stays bounded, and another server is told."""
    hanging, other = made(webhooks, f"{server.url}/hang"), made(webhooks, f"{server.url}/take")
    hanging.tell(EVENT)
    assert server.requests.get(timeout=WAIT_S).path == "/hang"
    for _ in range(MAX_QUEUED + 5):
        hanging.tell(EVENT)
    other.tell(EVENT)

    until(other, "sent")
    assert hanging.counts == {"dropped": 5}


def test_a_server_that_does_not_answer_in_time_has_failed(
    server: PlantedServer, webhooks: list[Webhook]
) -> None:
    """A try ends at its deadline, and the next one begins."""
    webhook = made(webhooks, f"{server.url}/hang", timeout_s=0.1)
    webhook.tell(EVENT)

    assert [server.requests.get(timeout=WAIT_S).path for _ in range(3)] == ["/hang"] * 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no webhook"),
        ("[[webhook]]\nurl = 'http://127.0.0.1/'", "lacks a text"),
        ("[[webhook]]\nurl = 'http://127.0.0.1/'\nsecret = 'short'", "16 characters"),
        ("[[webhook]]\nurl = 'ftp://127.0.0.1/'\nsecret = '{}'", "http://HOST/"),
        ("[[webhook]]\nurl = 'http://me@127.0.0.1/'\nsecret = '{}'", "has a user name"),
        ("[[webhook]]\nurl = 'http://169.254.169.254/latest'\nsecret = '{}'", "54, which is link-local"),
        ("[[webhook]]\nurl = 'http://[::ffff:169.254.169.254]/'\nsecret = '{}'", "link-local"),
        ("[[webhook]]\nurl = 'http://0.0.0.0/'\nsecret = '{}'", "no address"),
        ("[[webhook]]\nurl = 'http://[fe80::1]/'\nsecret = '{}'", "link-local"),
        ("[[webhook]]\nurl = 'http://127.0.0.1/'\nsecret = '{}'\nkinds = ['rain']", "the kinds are new_pool"),
        ("[[webhook]]\nurl = 'http://127.0.0.1/'\nsecret = '{}'\ntoken = 'x'", "the keys are kinds"),
        ("[[webhook]]\nurl = 'http://127.0.0.1/'\nsecret = '{}'\nkinds = [['a']]", "the kinds are new_pool"),
        ("[[webhook]]\nurl = 'http://a..b/'\nsecret = '{}'", "can be no name of a host"),
        ("[[webhook]", "cannot be read"),
        ("webhook = [1]", "a webhook that is no table"),
    ],
)  # fmt: skip
def test_a_webhook_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    """`serve` does not start; it names the entry and what to write."""
    file = tmp_path / "webhooks.toml"
    file.write_text(text.format(SECRET))
    result = run("serve", "--webhooks", file, "--database", tmp_path / "none.duckdb")

    assert result.returncode == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert SECRET not in result.stderr


def test_webhooks_are_read_with_their_kinds(tmp_path: Path) -> None:
    """Without `kinds` all are told."""
    file = tmp_path / "webhooks.toml"
    entry = f"[[webhook]]\nurl = 'https://127.0.0.1/x'\nsecret = '{SECRET}'\n"
    file.write_text(f"{entry}{entry}kinds = ['reorganisation']\n")
    everything, one = read_targets(file)

    assert "large_share" in everything.kinds
    assert one.kinds == {"reorganisation"}
    with pytest.raises(ServeError, match="cannot be read"):
        read_targets(tmp_path / "none.toml")


def eventful(folder: Path, n_blocks: int) -> Path:
    """Build a chain by Alpha alone: blocks 5 to 8 are empty, the others hold a transaction."""
    blocks: list[dict[str, Any]] = [
        {
            "block_hash": f"b{height}",
            "prev_hash": f"b{height - 1}",
            "height": height,
            "n_tx": 1 if 5 <= height < 5 + N_EMPTY else 2,
            "coinbase_script": "/Alpha/",
            "header_time": 600 * height,
            "arrived_at": 600 * height,
        }
        for height in range(1, n_blocks + 1)
    ]
    blocks[0].pop("prev_hash")
    dataset = write_world(folder / "dataset", {"blocks": blocks})
    return build(dataset, RULES, folder / "a.duckdb", marts=MARTS).database


def test_a_tag_that_no_rule_names_is_an_event(tmp_path: Path) -> None:
    """Three unknown blocks share a text that no named block has; two, a signal and mere bytes are none."""
    coinbases = [
        "/Alpha/EB1/",
        "x/Gamma <b>/EB1/",
        "/Delta/",
        "y/Gamma <b>/EB1/",
        "/Delta/",
        "/\x01\x02\x03\x04/",
    ]
    coinbases += ["/\x01\x02\x03\x04/", "/\x01\x02\x03\x04/", "/Gamma <b>/", "/Gamma <b>/", "Gamma <b>"]
    blocks: list[dict[str, Any]] = [
        {
            "block_hash": f"b{height}",
            "prev_hash": f"b{height - 1}",
            "height": height,
            "coinbase_script": coinbase,
            "header_time": 600 * height,
            "arrived_at": 600 * height,
        }
        for height, coinbase in enumerate(coinbases, start=1)
    ]
    blocks[0].pop("prev_hash")
    dataset = write_world(tmp_path / "dataset", {"blocks": blocks})
    database = build(dataset, RULES, tmp_path / "a.duckdb", marts=MARTS).database
    results = Results(database)
    (event,) = [each for each in results.read(events) if each.kind == "new_tag"]
    results.close()

    assert event.event_id == f"new_tag:{b'Gamma <b>'.hex()}"
    assert event.sentence == (
        "4 blocks that no rule names have /Gamma <b>/ in the coinbase, the first at height 2."
    )
    assert event.happened_at == START + dt.timedelta(seconds=600 * 9)
    assert event.path == f"/blocks/{label_bytes('b2')[::-1].hex()}"


def test_an_event_of_blocks_without_a_known_hash_names_a_height(tmp_path: Path) -> None:
    """Others label three empty blocks and tell no hash: no address is made of the key that stands for it."""
    rows = [{"source": "s", "height": height} for height in range(5, 8)]
    tables = {
        "external_pool_labels": [{**row, "label": "Alpha", "header_time": 600} for row in rows],
        "external_block_sizes": [{**row, "n_tx": 1, "size_bytes": 250} for row in rows],
    }
    dataset = write_world(tmp_path / "dataset", tables)
    results = Results(build(dataset, RULES, tmp_path / "a.duckdb", marts=MARTS).database)
    (event,) = [each for each in results.read(events) if each.kind == "empty_run"]
    results.close()

    assert (event.event_id, event.path) == ("empty_run:5", "/blocks/5")


@pytest.fixture(scope="module")
def two_builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the first 4 blocks of the chain, and all 12; return both databases."""
    return eventful(tmp_path_factory.mktemp("early"), 4), eventful(tmp_path_factory.mktemp("late"), 12)


@pytest.mark.parametrize("is_there", [True, False])
def test_new_events_of_a_new_build_are_told_once(
    tmp_path: Path,
    two_builds: tuple[Path, Path],
    server: PlantedServer,
    webhooks: list[Webhook],
    *,
    is_there: bool,
) -> None:
    """What the first build has is not told, whether or not it was there at the start.

    Four empty blocks in a row that come later are told once.
    """
    early, late = two_builds
    served = tmp_path / "served.duckdb"
    if is_there:
        shutil.copy(early, served)
    results = Results(served, waits=True)
    alerts = Alerts(results, [made(webhooks, f"{server.url}/take")])
    alerts.look()
    if not is_there:
        Path(shutil.copy(early, tmp_path / "new")).rename(served)
    before = {each.event_id for each in results.read(events)}
    alerts.look()
    Path(shutil.copy(late, tmp_path / "newer")).replace(served)
    alerts.look()
    alerts.look()

    expected = {each.event_id for each in results.read(events)} - before
    told = [json.loads(server.requests.get(timeout=WAIT_S).body) for _ in expected]
    results.close()
    assert {each["event_id"] for each in told} == expected
    assert "4 empty blocks in a row begin at height 5." in [each["sentence"] for each in told]
    assert server.requests.empty()


def test_alerts_go_on_after_a_database_that_cannot_answer(  # noqa: PLR0917 - fixtures
    tmp_path: Path,
    two_builds: tuple[Path, Path],
    server: PlantedServer,
    webhooks: list[Webhook],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A build of another version between two others is told once, and the events of the next one are sent."""
    monkeypatch.setattr(webhooks_of_serve, "POLL_S", 0.05)
    early, late = two_builds
    served, other = tmp_path / "served.duckdb", tmp_path / "other"
    shutil.copy(early, served)
    shutil.copy(early, other)
    with duckdb.connect(str(other)) as connection:
        connection.execute("DROP TABLE pool_life")
    results = Results(served)
    alerts = Alerts(results, [made(webhooks, f"{server.url}/take")])
    other.replace(served)
    said, deadline_s = "", time.monotonic() + WAIT_S
    while "events are not looked for" not in said and time.monotonic() < deadline_s:
        time.sleep(0.05)
        said += capsys.readouterr().err
    Path(shutil.copy(late, tmp_path / "newer")).replace(served)
    told = json.loads(server.requests.get(timeout=WAIT_S).body)
    alerts.close()
    results.close()

    assert said.count("another version built this database") == 1
    assert told["event_id"]


def test_metrics_have_events_and_shares(site: Site) -> None:
    """Prometheus gets each pool's share, the number of events of every kind, and when they were built."""
    answer = site.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    assert 'pool_analysis_pool_share_ratio{pool="alpha",window="all"} 0.75' in answer.text
    assert 'pool_analysis_events{kind="reorganisation"} 0.0' in answer.text
    assert "pool_analysis_build_timestamp_seconds" in answer.text


def test_the_dashboard_shows_every_metric_of_the_results(site: Site, repo_root: Path) -> None:
    """Its panels ask for metrics that exist, and for each of them."""
    panels = json.loads((repo_root / "collector/deploy/grafana-results.json").read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"pool_analysis_[a-z_]+", target["expr"])
    }
    existing = set(re.findall(r"^# TYPE (\w+)", site.get("/metrics").text, re.MULTILINE))

    assert existing <= asked
    # This world has no dated event, and nobody who is told.
    assert asked - existing <= {
        "pool_analysis_event_newest_timestamp_seconds",
        "pool_analysis_webhook_events_total",
    }
