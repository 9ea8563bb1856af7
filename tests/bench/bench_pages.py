"""Measure the pages and the API: time of an answer with many clients, first paint, weight.

    python -m tests.bench.bench_pages --database FILE [--clients N] [--rounds N] [--out FILE] [--smoke]

The server is a process of its own. Each client asks for every page in an order of its own, so many times;
an answer counts from the connection to its last byte. Before that every page is asked for once, because what
the report draws is made once per build. Chromium then opens each page and tells its first contentful paint.
Told too are the seconds from the server's start until it listens and until the first page is there, and the
most memory that it has resided in.
With --smoke a small world is built and asked by two clients, so that the figures say nothing.
"""

import argparse
import http.client
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from analysis.database import open_database
from analysis.engine import build
from analysis.serve.pages import STATIC
from collector.regtest.ports import free_ports
from tests.analysis.report.chromium import BROWSERS, browser
from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

SMOKE: Final = Size(n_blocks=40, entering=64, taken=48)
FIRST: Final = "/pools"  # it needs the shares of the whole history
ASSETS: Final = tuple(f"/static/{name}" for name in STATIC)  # a page with charts asks for all of them
PAINT: Final = """
    new Promise(done => new PerformanceObserver(list => {
        const painted = list.getEntriesByName("first-contentful-paint")[0];
        if (painted) done(painted.startTime);
    }).observe({type: "paint", buffered: true}))
"""
ASKED: Final = {
    "height": "SELECT CAST(max(height) AS VARCHAR) FROM chain_blocks WHERE is_active",
    "pool": "SELECT pool FROM pool_share ORDER BY is_unknown, rank LIMIT 1",
    "txid": "SELECT hash_hex(min_by(txid, stay_no)) FROM mempool_residence WHERE mined_cut_no IS NOT NULL",
    "moment": "SELECT strftime(quantile_disc(connected_at, 0.5), '%Y-%m-%dT%H:%M:%SZ') FROM mempool_cuts",
}


def addresses(database: Path) -> list[str]:
    """Return the pages and answers to ask for, with values that the database has."""
    with open_database(database) as connection:
        found = {name: connection.execute(query).fetchone() for name, query in ASKED.items()}
    height, pool, txid, moment = (str((found[name] or ("",))[0]) for name in ASKED)
    pages = ["/", "/pools", f"/pools/{pool}", "/blocks", f"/blocks/{height}", f"/tx/{txid}"]
    pages += [f"/mempool?at={moment}", "/coverage", "/questions/share", "/findings", "/methods"]
    return [
        *pages,
        "/api/v1/pools",
        "/api/v1/blocks",
        f"/api/v1/blocks/{height}",
        f"/api/v1/mempool?at={moment}",
    ]


class Server(NamedTuple):
    """Describes a server: where it listens, when its process began (time.perf_counter), and its number."""

    host: str
    port: int
    begun_s: float
    process: int

    def most_resident_mb(self) -> float:
        """Return the most memory that the process has resided in so far."""
        words = Path(f"/proc/{self.process}/status").read_text().split()
        return int(words[words.index("VmHWM:") + 1]) * 1024 / 1e6


@contextmanager
def served(database: Path) -> Iterator[Server]:
    """Serve a database in a process of its own; give it when it listens, and stop it."""
    (port,) = free_ports(1)
    command = [
        sys.executable,
        "-m",
        "analysis",
        "serve",
        "--database",
        str(database),
        "--address",
        f"127.0.0.1:{port}",
    ]
    begun_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()  # said when connections wait to be accepted
            yield Server("127.0.0.1", port, begun_s, server.pid)
        finally:
            server.terminate()


def ask(host: str, port: int, path: str) -> tuple[float, bytes]:
    """Ask for one path; return the seconds until its last byte, and the body as it was sent."""
    begun_s = time.perf_counter()
    connection = http.client.HTTPConnection(host, port, timeout=120)
    connection.request("GET", path, headers={"accept-encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == http.client.OK, (path, answer.status, body[:300])
    return time.perf_counter() - begun_s, body


def client(host: str, port: int, paths: list[str], seed: int) -> list[tuple[str, float]]:
    """Ask for all paths in a drawn order."""
    drawn = random.Random(seed).sample(paths, len(paths))  # noqa: S311 - an order, no secret
    return [(path, ask(host, port, path)[0]) for path in drawn]


def measured(database: Path, n_clients: int, n_rounds: int) -> dict[str, Any]:
    """Serve, ask and paint; return the figures of the start, and those per address."""
    paths = addresses(database)
    with served(database) as server:
        host, port = server.host, server.port
        start = {"listens_s": time.perf_counter() - server.begun_s}
        ask(host, port, FIRST)
        start["first_page_s"] = time.perf_counter() - server.begun_s
        first = {path: ask(host, port, path) for path in paths}
        assets = sum(len(ask(host, port, path)[1]) for path in ASSETS)
        with ThreadPoolExecutor(n_clients) as pool:
            jobs = [pool.submit(client, host, port, paths, seed) for seed in range(n_clients * n_rounds)]
            asked = [each for job in jobs for each in job.result()]
        start["most_resident_mb"] = server.most_resident_mb()
        painted = paints(f"http://{host}:{port}", [path for path in paths if not path.startswith("/api/")])
    figures = {}
    for path in paths:
        times = sorted(seconds for asked_path, seconds in asked if asked_path == path)
        figures[path] = {
            "first_ms": 1000 * first[path][0],
            "median_ms": 1000 * statistics.median(times),
            "p95_ms": 1000 * times[math.ceil(0.95 * len(times)) - 1],
            "weight_bytes": len(first[path][1]) + (0 if path.startswith("/api/") else assets),
            "first_paint_ms": painted.get(path),
        }
    return {"start": start, "pages": figures}


def paints(site: str, paths: list[str]) -> dict[str, float]:
    """Open each page in Chromium; return its first contentful paint in ms, and nothing without a browser."""
    if shutil.which("chromedriver") is None or not any(map(shutil.which, BROWSERS)):
        print("no headless browser, so no first paint: install chromium and chromium-driver")
        return {}
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as tab:
        return {path: tab.visit(site + path, width_px=1280).evaluate(PAINT) for path in paths}


def main() -> None:
    """Read the command line, measure, print and write the figures."""
    parser = argparse.ArgumentParser(description="Measure the pages and the API.")
    parser.add_argument("--database", type=Path, help="file of a build")
    parser.add_argument("--clients", type=int, default=20, help="clients at once")
    parser.add_argument("--rounds", type=int, default=3, help="how often each client asks for all")
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--smoke", action="store_true", help="a small world, two clients")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        database, n_clients, n_rounds = given.database, given.clients, given.rounds
        if given.smoke:
            folder, n_clients, n_rounds = Path(scratch), 2, 1
            database = build(
                write_world(simulate(SMOKE), folder), folder / "pools", folder / "a.duckdb"
            ).database
        if database is None:
            parser.error("name a --database, or --smoke")
        before = os.getloadavg()
        figures = measured(database, n_clients, n_rounds)
    print(
        "listens after {listens_s:.1f} s, first page after {first_page_s:.1f} s, "
        "at most {most_resident_mb:.0f} MB".format(**figures["start"])
    )
    for path, each in figures["pages"].items():
        painted = "" if each["first_paint_ms"] is None else f" painted {each['first_paint_ms']:6.0f} ms"
        times = f"{each['median_ms']:6.0f} ms, p95 {each['p95_ms']:6.0f} ms"
        print(f"{times} {each['weight_bytes'] / 1e3:6.0f} kB{painted:19} {path}")
    facts = {"clients": n_clients, "load_before": before, "load_after": os.getloadavg()} | figures
    if given.out:
        given.out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
