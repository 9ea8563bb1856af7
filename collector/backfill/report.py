"""Report what a backfill did: as JSON for programs, and in a few lines for people."""

import json
import platform
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from collector.backfill.store import WorkResult
from collector.errors import SettingsError
from collector.log import counted

MILLION: Final = 1_000_000
MOST_SHOWN: Final = 10


@dataclass(slots=True, kw_only=True)
class Report:
    """Says what one backfill found and wrote. A span of heights includes both ends."""

    chain: str
    source: str  # the folder, or the node's address
    workers: int
    verified_by: str
    started_at: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    tip_height: int | None = None
    tip_hash: str | None = None
    n_found: int = 0  # blocks in the files
    n_repeated: int = 0  # further copies of blocks in the files
    n_stale: int = 0  # blocks that are not on the branch of most work
    n_without_height: int = 0
    without_height: list[str] = field(default_factory=list)  # hashes of the first ones; they are not written
    n_wanted: int = 0
    n_present_before: int = 0
    n_left_to_collector: int = 0  # above the height at which a running collector began
    n_lacked_fees: int = 0  # stored blocks that lacked fees, and whose fees this run looked for
    n_fees_filled: int = 0  # of them
    fees_problem: str = ""  # why the fees could not be filled
    missing_heights: list[tuple[int, int]] = field(default_factory=list)
    unknown_to_node: list[str] = field(default_factory=list)  # on our active branch, not on the node's
    scan_s: float = 0.0
    work_s: float = 0.0
    result: WorkResult = field(default_factory=WorkResult)

    def as_data(self) -> dict[str, Any]:
        """Return this backfill report as a dict for JSON, with rates and each stage's share of the time."""
        result = self.result
        seconds = result.times.seconds
        total_s = sum(seconds.values())
        facts = {name: value for name, value in asdict(self).items() if name != "result"}
        return facts | {
            "n_blocks": result.n_blocks,
            "n_tx": result.n_tx,
            "n_without_fees": result.n_without_fees,
            "n_present_meanwhile": result.n_present,
            "block_bytes": result.block_bytes,
            "file_bytes": result.file_bytes,
            "bytes_per_tx": round(result.file_bytes / result.n_tx, 1) if result.n_tx else None,
            "tx_per_s": round(result.n_tx / self.work_s) if self.work_s else None,
            "block_bytes_per_s": round(result.block_bytes / self.work_s) if self.work_s else None,
            "worker_memory_bytes": result.memory_bytes,
            "stage_seconds": {stage: round(spent, 3) for stage, spent in seconds.items()},
            "stage_ratio": {stage: round(spent / total_s, 3) for stage, spent in seconds.items()},
            "rejects": [
                {"origin": rejected.ref.origin, "reason": rejected.reason} for rejected in result.rejected
            ],
            "unfinished": result.unfinished,
            "unavailable": result.unavailable,
            "software": {
                "pool-measurement": metadata.version("pool-measurement"),
                "python": platform.python_version(),
                "pyarrow": metadata.version("pyarrow"),
                "numba": metadata.version("numba"),
            },
        }

    def write(self, path: Path) -> None:
        """Write this backfill report as JSON. Raises SettingsError when the file cannot be written."""
        try:
            path.write_text(json.dumps(self.as_data(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"cannot write the report {path}: {error.strerror}; "
                "the rows are written; set --report to another file"
            ) from None

    def lines(self) -> list[str]:
        """Return this backfill report as lines of text: what was written, and what was not."""
        result = self.result
        rate = f" ({result.n_tx / self.work_s:,.0f} tx/s, " if self.work_s else " ("
        rate += (
            f"{result.block_bytes / MILLION / self.work_s:,.0f} MB/s)" if self.work_s else "nothing to do)"
        )
        lines = [
            (
                f"wrote {counted(result.n_blocks, 'block')} and {counted(result.n_tx, 'transaction')} "
                f"in {self.work_s:.1f} s{rate}"
            ),
            (
                f"found {counted(self.n_found, 'block')}, {self.n_wanted:,} wanted, "
                f"{self.n_present_before:,} already stored"
            ),
        ]
        lines += [f"tip: height {self.tip_height}, {self.tip_hash}"] if self.tip_hash else []
        for count, text in (
            (self.n_left_to_collector, "left to the running collector"),
            (result.n_present, "stored by another process in the meantime"),
            (result.n_without_fees, "without some fees: no undo data found"),
            (self.n_without_height, "not written: no height can be found"),
            (len(result.unfinished), "not yet complete: the node is still writing; run again to add it"),
            (len(self.unknown_to_node), "not in the chain of the node"),
        ):
            lines += [f"{counted(count, 'block')} {text}"] if count else []
        if self.n_lacked_fees:
            lines.append(
                f"stored blocks without fees: {self.n_lacked_fees:,}, filled now: {self.n_fees_filled:,}"
            )
        if self.fees_problem:
            lines.append(f"fees of stored blocks were not filled: {self.fees_problem}")
        if result.unavailable:
            heights = _spans(_runs(int(each.partition(":")[0]) for each in result.unavailable))
            lines.append(
                f"{counted(len(result.unavailable), 'block')} pruned or not given by the node:"
                f" heights {heights}"
            )
            lines.append(f"for example {result.unavailable[0]}")
        if self.missing_heights:
            lines.append(f"no block found for heights {_spans(self.missing_heights)}")
        for rejected in result.rejected[:MOST_SHOWN]:
            lines.append(f"rejected {rejected.ref.origin}: {rejected.reason}")
        if len(result.rejected) > MOST_SHOWN:
            lines.append(f"and {len(result.rejected) - MOST_SHOWN} more in the table `rejects`")
        return lines


def _runs(heights: Iterable[int]) -> list[tuple[int, int]]:
    """Return spans (first, last) of consecutive heights that cover the given heights, sorted."""
    runs: list[tuple[int, int]] = []
    for height in sorted(set(heights)):
        if runs and runs[-1][1] == height - 1:
            runs[-1] = (runs[-1][0], height)
        else:
            runs.append((height, height))
    return runs


def _spans(spans: list[tuple[int, int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:MOST_SHOWN]]
    return ", ".join(shown) + (f" and {len(spans) - MOST_SHOWN} more" if len(spans) > MOST_SHOWN else "")
