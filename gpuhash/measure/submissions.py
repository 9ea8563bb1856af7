"""Collect benchmarks of many machines, refuse those that cannot be relied on, and hold the rest to the rules.

The rules are those of SUBMITTING.md. A file is refused if its figures mean nothing: not verified, changed,
in contradiction with each other, of another version or form, or the same measurement twice. A figure that
breaks a rule about how carefully it was made is shown, with the rule beside it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuhash.errors import InvalidInputError
from gpuhash.measure import document
from gpuhash.measure.bench import LEAST_RUNS, Result
from gpuhash.measure.document import Benchmark
from gpuhash.measure.peers import PeerResult

LEAST_SECONDS = 1.0  # per stage
MOST_SPREAD = 0.05  # of the middle half of the runs
MOST_BUSY_ELSEWHERE = 0.05  # of all CPU time
LEAST_ENERGY_S = 5.0
MOST_SHARE = 1.02  # of a limit, which is itself measured on a CPU
HASHES_PRICED = 1e12  # a single hash costs too little to be read

WALL_POWER_NOTE = (
    "Energy is what a counter inside reports, not what a meter at the wall shows. NVML counts a GPU with "
    "its memory; RAPL counts CPU packages, without the memory modules, and is a model on some CPUs. Neither "
    "sees the losses of the power supply, fans, disks or the mainboard, so a wall shows more. Compare joules "
    "only between figures from one kind of counter."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Holds a benchmark that was accepted, under the name of its file, and the machine's price per hour."""

    name: str
    benchmark: Benchmark
    price_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Names a benchmark file that was not accepted, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Holds one figure of a machine, what it costs, and which rules for benchmarks it breaks."""

    name: str  # of the submission
    result: Result
    broken_rules: tuple[str, ...]
    cost: float | None  # of HASHES_PRICED hashes, in the currency of the price


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the benchmark files to read: those named, and the JSON files of the folders named, each once.

    Raises InvalidInputError for a path that does not exist and for a folder without a JSON file.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            if not inside:
                raise InvalidInputError(f"{path} has no file *.json; write one with gpuhash bench --json")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise InvalidInputError(f"{path} does not exist")
    return list(dict.fromkeys(found))


def collect(files: Sequence[Path], prices: dict[str, float]) -> tuple[list[Submission], list[Refusal]]:
    """Read benchmark files; return the accepted benchmarks and the refused files.

    `prices` are per hour, by name of a submission; the name "" stands for all others. Raises
    InvalidInputError if a price names no file.
    """
    names = _names(files)
    strangers = prices.keys() - {""} - set(names)
    if strangers:
        raise InvalidInputError(
            f"--price-per-hour names {min(strangers)!r}; the files are {', '.join(names)}"
        )
    accepted: list[Submission] = []
    refused: list[Refusal] = []
    first_of: dict[str, Path] = {}
    for name, path in zip(names, files, strict=True):
        try:
            benchmark = document.read(path)
        except InvalidInputError as error:
            refused.append(Refusal(path=path, reason=str(error)))
            continue
        if benchmark.digest in first_of:
            reason = f"{path} holds the same measurement as {first_of[benchmark.digest]}"
            refused.append(Refusal(path=path, reason=reason))
            continue
        first_of[benchmark.digest] = path
        price = prices.get(name, prices.get(""))
        accepted.append(Submission(name=name, benchmark=benchmark, price_per_hour=price))
    return accepted, refused


def lines_of(submissions: Iterable[Submission], algorithm: str | None, stage: str | None) -> list[Line]:
    """Return a Line per figure of the benchmarks, the fastest of each case first.

    Only figures of `algorithm` and `stage` are kept, where these are not None.
    """
    lines = [
        Line(
            name=submission.name,
            result=result,
            broken_rules=tuple(broken_rules(submission.benchmark, result)),
            cost=cost_of(submission.price_per_hour, result),
        )
        for submission in submissions
        for result in submission.benchmark.results
        if algorithm in {None, result.algorithm} and stage in {None, result.stage}
    ]
    return sorted(lines, key=lambda line: (*case_of(line.result), -line.result.hashes_per_s))


def peers_of(submissions: Iterable[Submission], algorithm: str | None) -> list[tuple[str, PeerResult]]:
    """Return the comparisons with other programs, each with the name of its file.

    They are sorted by algorithm, then by program; the highest ratio comes first in each. Only those of
    `algorithm` are returned, if it is not None.
    """
    found = [
        (submission.name, peer)
        for submission in submissions
        for peer in submission.benchmark.peers
        if algorithm in {None, peer.algorithm}
    ]
    return sorted(found, key=lambda each: (each[1].algorithm, each[1].peer, -each[1].ratio))


def case_of(result: Result) -> tuple[str, bool, int, int, str]:
    """Return what must be equal to compare two figures: algorithm, mixed or not, size, batch and stage."""
    return (result.algorithm, result.mixed, result.message_bytes, result.count, result.stage)


def broken_rules(benchmark: Benchmark, result: Result) -> list[str]:
    """Return a text for each rule for submissions that a figure breaks, with the value seen."""
    broken = []
    method, elsewhere = benchmark.method, benchmark.conditions.busy_elsewhere_ratio
    if method.seconds_per_stage < LEAST_SECONDS:
        broken.append(f"{method.seconds_per_stage:g} s per stage, least {LEAST_SECONDS:g}")
    if result.runs < LEAST_RUNS:
        broken.append(f"{result.runs} runs, least {LEAST_RUNS}")
    if result.spread_ratio > MOST_SPREAD:
        broken.append(f"spread {result.spread_ratio:.1%}, most {MOST_SPREAD:.0%}")
    if elsewhere is None:
        broken.append("other load unknown")
    elif elsewhere > MOST_BUSY_ELSEWHERE:
        broken.append(f"other load {elsewhere:.0%}, most {MOST_BUSY_ELSEWHERE:.0%}")
    if result.joules_per_hash is not None and method.energy_window_s < LEAST_ENERGY_S:
        broken.append(f"energy over {method.energy_window_s:g} s, least {LEAST_ENERGY_S:g}")
    if (result.share_of_limit or 0) > MOST_SHARE:
        broken.append(f"{result.share_of_limit:.0%} of the limit")
    return broken


def cost_of(price_per_hour: float | None, result: Result) -> float | None:
    """Return the cost of HASHES_PRICED hashes at a price per hour and a measured speed; None for no price."""
    if price_per_hour is None:
        return None
    return price_per_hour / 3600 / result.hashes_per_s * HASHES_PRICED


def prices_of(texts: Iterable[str]) -> dict[str, float]:
    """Return prices per hour by name: `2.5` is for every file (""), `name=2.5` for the file name.json.

    Raises InvalidInputError if a price is no number above 0, or is given twice.
    """
    prices: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            price = math.nan
        if not (0 < price < math.inf):
            raise InvalidInputError(f"--price-per-hour {text!r}: {number!r} is no price above 0")
        if name in prices:
            raise InvalidInputError(f"--price-per-hour {text!r}: {name or 'all files'} has a price already")
        prices[name] = price
    return prices


def _names(files: Sequence[Path]) -> list[str]:
    """Return a name per benchmark file: its own without .json, after that of its folder if two are equal."""
    short = [path.stem for path in files]
    return [
        f"{path.parent.name}/{stem}" if short.count(stem) > 1 else stem
        for path, stem in zip(files, short, strict=True)
    ]
