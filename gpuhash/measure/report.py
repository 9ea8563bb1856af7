"""Write results as CSV, compare two benchmarks, and say from which batch size a backend is faster."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from gpuhash.measure.bench import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Holds the speeds of the same measurement in two benchmarks, before and after."""

    algorithm: str
    backend: str
    stage: str
    message_bytes: int
    count: int
    before_hashes_per_s: float
    after_hashes_per_s: float

    @property
    def ratio(self) -> float:
        """The speed after divided by the speed before: above 1 is faster."""
        return self.after_hashes_per_s / self.before_hashes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Holds the smallest batch from which one backend is faster than another, end to end; None if never."""

    algorithm: str
    message_bytes: int
    faster: str
    slower: str
    from_count: int | None  # None: at no batch size that was measured


def to_csv(results: Iterable[Result]) -> str:
    """Return a CSV table with a line per result; unknown figures are empty."""
    text = io.StringIO()
    names = [column.name for column in fields(Result)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "share_of_limit"])
    for result in results:
        writer.writerow([*(getattr(result, name) for name in names), result.share_of_limit])
    return text.getvalue()


def compare(before: Iterable[Result], after: Iterable[Result]) -> list[Comparison]:
    """Return the measurements that two benchmarks have in common, in the order of the second."""
    known = {_key(result): result for result in before}
    return [
        Comparison(
            algorithm=result.algorithm,
            backend=result.backend,
            stage=result.stage,
            message_bytes=result.message_bytes,
            count=result.count,
            before_hashes_per_s=known[_key(result)].hashes_per_s,
            after_hashes_per_s=result.hashes_per_s,
        )
        for result in after
        if _key(result) in known
    ]


def crossovers(results: Iterable[Result]) -> list[Crossover]:
    """Return from which batch size on cpu is faster than reference, and cuda than cpu, per message size.

    Only end-to-end results of messages of one length count.
    """
    rates: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for result in results:
        if result.stage == "end-to-end" and not result.mixed:
            by_backend = rates.setdefault((result.algorithm, result.message_bytes), {})
            by_backend.setdefault(result.backend, {})[result.count] = result.hashes_per_s
    found = []
    for (algorithm, message_bytes), by_backend in rates.items():
        for faster, slower in (("cpu", "reference"), ("cuda", "cpu")):
            common = sorted(by_backend.get(faster, {}).keys() & by_backend.get(slower, {}).keys())
            if len(common) > 1:
                wins = [by_backend[faster][count] >= by_backend[slower][count] for count in common]
                first = next((count for i, count in enumerate(common) if all(wins[i:])), None)
                found.append(
                    Crossover(
                        algorithm=algorithm,
                        message_bytes=message_bytes,
                        faster=faster,
                        slower=slower,
                        from_count=first,
                    )
                )
    return found


def _key(result: Result) -> tuple[Any, ...]:
    return (result.algorithm, result.backend, result.stage, result.message_bytes, result.mixed, result.count)
