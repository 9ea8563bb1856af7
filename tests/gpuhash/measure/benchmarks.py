"""A short real benchmark as a document, for tests that change it."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gpuhash.measure import bench, document, machine
from gpuhash.measure.bench import SEARCH, Case, Result
from gpuhash.measure.conditions import Watch
from gpuhash.measure.peers import PeerResult

CASES = [
    Case(algorithm=SEARCH, count=4096, message_bytes=80),
    Case(algorithm="sha256d", count=300, message_bytes=64),
    Case(algorithm="keccak256", count=300, message_bytes=0, mixed=True),
]


def measure() -> list[Result]:
    """Run a very short benchmark of the real cpu backend."""
    return list(bench.run(CASES, ["cpu"], seconds=0.01))


def text_of(results: list[Result], peers: Iterable[PeerResult] = ()) -> str:
    """Return the document of these results, made on this machine."""
    method = document.method_of(0.01, energy_window_s=0)
    return document.to_json(machine.describe(), Watch().conditions(), method, results, peers)


def change(path: Path, edit: Callable[[dict[str, Any]], object], *, digest_anew: bool) -> None:
    """Edit the document in a file; with `digest_anew` compute its digest again, as a forger would."""
    content = json.loads(path.read_text())
    edit(content)
    if digest_anew:
        content["digest"] = document.digest_of(content)
    path.write_text(json.dumps(content))
