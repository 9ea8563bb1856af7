"""Write and read a benchmark as a JSON document whose form is fixed by results.schema.json.

Who reads a document can rely on four things: its version is one that this program reads, its form is that of
the schema, nothing was changed since it was written, and no figure contradicts another one. A digest shows
that nothing was changed: SHA-256 over the document without the digest, as JSON with sorted keys and without
blanks. It finds mistakes and careless edits. It is no signature: who wants to deceive can compute it anew.
"""

import hashlib
import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from gpuhash.errors import BackendUnavailableError, InvalidInputError
from gpuhash.measure import bench
from gpuhash.measure.bench import Result
from gpuhash.measure.conditions import Conditions
from gpuhash.measure.contradictions import first_contradiction
from gpuhash.measure.machine import Machine
from gpuhash.measure.peers import PeerResult

log = logging.getLogger("gpuhash")

FORMAT = 2  # version of the document; raised when a field changes its meaning or a new one is required
SCHEMA = "results.schema.json"
DERIVED = ("share_of_limit", "spread_ratio")  # written beside the fields of a Result, computed from them
REFERENCE = "hashlib and pycryptodome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Says how the figures of a benchmark were made: time per stage, energy window, order and statistic."""

    seconds_per_stage: float
    energy_window_s: float  # 0: energy was not measured
    warm_up_calls: int  # of every stage, not timed
    order: str = (
        "the stages of a case in turn, one run of each after the other; a GPU first works untimed for as long"
    )
    figure: str = "median of the runs, with quartiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Holds a benchmark document that was read and checked: machine, conditions, method and figures."""

    machine: Machine
    conditions: Conditions
    method: Method
    results: tuple[Result, ...]
    peers: tuple[PeerResult, ...]  # other programs that ran in turn with ours
    digest: str


def method_of(seconds: float, energy_window_s: float) -> Method:
    """Return the Method of a benchmark with these seconds per stage and this window of energy (seconds)."""
    return Method(
        seconds_per_stage=seconds, energy_window_s=energy_window_s, warm_up_calls=bench.WARM_UP_CALLS
    )


def to_json(
    machine: Machine,
    conditions: Conditions,
    method: Method,
    results: Iterable[Result],
    peers: Iterable[PeerResult] = (),
) -> str:
    """Return the document of a benchmark as JSON text, with its digest; unknown figures are null.

    The form is checked where jsonschema is installed; where it is not, the log says so.
    """
    rows = list(results)
    document: dict[str, Any] = {
        "format": FORMAT,
        "program": _program(),
        "machine": asdict(machine),
        "conditions": asdict(conditions),
        "method": asdict(method),
        "verification": {
            "reference": REFERENCE,
            "least_hashes_per_line": min((row.verified_hashes for row in rows), default=0),
        },
        "results": [{**asdict(row), **{name: getattr(row, name) for name in DERIVED}} for row in rows],
        "peers": [asdict(peer) for peer in peers],
    }
    document = json.loads(json.dumps(document, allow_nan=False))  # tuples become lists, as they are read
    document["digest"] = digest_of(document)
    try:
        fault = form_fault(document)
    except BackendUnavailableError as missing:
        _warn_unchecked(str(missing))
    else:
        if fault:
            raise AssertionError(f"the document does not have the form of {SCHEMA}: {fault}")
    return json.dumps(document, indent=1) + "\n"


def read(path: Path) -> Benchmark:
    """Read, check and return the document of a benchmark.

    Raises InvalidInputError with the reason if it cannot be read, is not JSON, has another version or form,
    was changed after it was written, or has a figure that was not verified or contradicts another one. Raises
    BackendUnavailableError if jsonschema is not installed.
    """
    document = _parse(path)
    fault = _version_fault(document) or form_fault(document)
    if fault:
        raise InvalidInputError(f"{path} {fault}")
    expected = digest_of(document)
    if document["digest"] != expected:
        raise InvalidInputError(
            f"{path} was changed after it was written: its digest is {document['digest'][:16]}..., its "
            f"content gives {expected[:16]}...; take the file as `gpuhash bench --json` wrote it"
        )
    for number, row in enumerate(document["results"], 1):
        if not row["verified_hashes"]:
            raise InvalidInputError(
                f"{path} was not verified: result {number} ({row['algorithm']}, {row['backend']}, "
                f"{row['stage']}) was timed without comparing a hash with the reference"
            )
    contradiction = first_contradiction(document)
    if contradiction:
        raise InvalidInputError(f"{path} {contradiction}; take the file as `gpuhash bench --json` wrote it")
    return Benchmark(
        machine=_machine(document["machine"]),
        conditions=Conditions(**document["conditions"]),
        method=Method(**document["method"]),
        results=tuple(_result(row) for row in document["results"]),
        peers=tuple(PeerResult(**peer) for peer in document["peers"]),
        digest=document["digest"],
    )


def digest_of(document: dict[str, Any]) -> str:
    """Return the SHA-256, in hex, of a document without its digest, as canonical JSON in UTF-8."""
    content = {name: value for name, value in document.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def form_fault(document: Any) -> str:
    """Return where and how a document departs from its schema; an empty text if it does not.

    Raises BackendUnavailableError if jsonschema is not installed.
    """
    try:
        import jsonschema  # noqa: PLC0415 - a bare GPU machine lacks it
    except ImportError as error:
        raise BackendUnavailableError(
            "results are checked with jsonschema; pip install jsonschema"
        ) from error
    fault = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(document))
    return "" if fault is None else f"has a wrong form: at {fault.json_path}, {fault.message}"


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a benchmark's document as a dict."""
    text = (resources.files("gpuhash.measure") / SCHEMA).read_text()
    return dict(json.loads(text))


def _parse(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(
            path.read_text(), object_pairs_hook=_without_repetition, parse_constant=_refuse_constant
        )
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or "format" not in document:
        raise InvalidInputError(f"{path} is not a benchmark of gpuhash: it has no field `format`")
    return document


def _version_fault(document: dict[str, Any]) -> str:
    if document["format"] == FORMAT and type(document["format"]) is int:
        return ""
    seen = f"has format {document['format']!r}; this program reads {FORMAT}"
    return f"{seen}. Measure again with `gpuhash bench --json`"


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict.

    Raise ValueError if a key stands twice: readers differ on which counts.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _machine(facts: dict[str, Any]) -> Machine:
    lists = {name: tuple(value) for name, value in facts.items() if isinstance(value, list)}
    return Machine(**(facts | lists))


def _result(row: dict[str, Any]) -> Result:
    names = {column.name for column in fields(Result)}
    return Result(**{name: value for name, value in row.items() if name in names})


def _program() -> str:
    try:
        return f"gpuhash {metadata.version('pool-measurement')}"
    except metadata.PackageNotFoundError:  # a folder copied to a bare machine
        return "gpuhash, not installed"


@cache
def _warn_unchecked(reason: str) -> None:
    """Log once that the form of the results was not checked."""
    log.warning("the form of the results was not checked: %s", reason)
