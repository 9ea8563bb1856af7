"""Say what a backfill did: as JSON for programs, in a few lines for people."""

import json
import platform
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from collector.backfill.work import Done
from collector.errors import SettingsError

MILLION: Final = 1_000_000
MOST_SHOWN: Final = 10


@dataclass(slots=True, kw_only=True)
class Report:
    """One run. Heights are spans with both ends included."""

    chain: str
    source: str  # the folder, or the node's address
    workers: int
    verified_by: str
    started_at: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    tip_height: int | None = None
    tip_hash: str | None = None
    n_found: int = 0  # blocks in the files
    n_repeated: int = 0  # that were in the files once more
    n_stale: int = 0  # of those found, not on the branch of most work
    n_without_height: int = 0
    without_height: list[str] = field(
        default_factory=list
    )  # hashes of the first of them; they are not written
    n_wanted: int = 0
    n_present_before: int = 0
    n_left_to_live: int = 0  # above where a running live collector began
    missing_heights: list[tuple[int, int]] = field(default_factory=list)
    unknown_to_node: list[str] = field(default_factory=list)  # on our active branch, not on the node's
    scan_s: float = 0.0
    work_s: float = 0.0
    done: Done = field(default_factory=Done)

    def as_data(self) -> dict[str, Any]:
        """Everything, with rates and with each stage's share of the workers' time."""
        done = self.done
        seconds = done.stages.seconds
        total_s = sum(seconds.values())
        facts = {name: value for name, value in asdict(self).items() if name != "done"}
        return facts | {
            "n_blocks": done.n_blocks,
            "n_tx": done.n_tx,
            "n_without_fees": done.n_without_fees,
            "n_present_meanwhile": done.n_present,
            "block_bytes": done.block_bytes,
            "file_bytes": done.file_bytes,
            "bytes_per_tx": round(done.file_bytes / done.n_tx, 1) if done.n_tx else None,
            "tx_per_s": round(done.n_tx / self.work_s) if self.work_s else None,
            "block_bytes_per_s": round(done.block_bytes / self.work_s) if self.work_s else None,
            "worker_memory_bytes": done.memory_bytes,
            "stage_seconds": {stage: round(spent, 3) for stage, spent in seconds.items()},
            "stage_ratio": {stage: round(spent / total_s, 3) for stage, spent in seconds.items()},
            "rejects": [{"origin": bad.place.origin, "reason": bad.reason} for bad in done.bad],
            "unfinished": done.unfinished,
            "unavailable": done.unavailable,
            "software": {
                "pool-measurement": metadata.version("pool-measurement"),
                "python": platform.python_version(),
                "pyarrow": metadata.version("pyarrow"),
                "numba": metadata.version("numba"),
            },
        }

    def write(self, path: Path) -> None:
        """Write it as JSON. Raises SettingsError when it cannot be put there."""
        try:
            path.write_text(json.dumps(self.as_data(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"cannot write the report {path}: {error.strerror}; set --report, the rows are written"
            ) from None

    def lines(self) -> list[str]:
        """Tell people what was done, and what was not."""
        done = self.done
        rate = f" ({done.n_tx / self.work_s:,.0f} tx/s, " if self.work_s else " ("
        rate += f"{done.block_bytes / MILLION / self.work_s:,.0f} MB/s)" if self.work_s else "nothing to do)"
        lines = [
            f"wrote {done.n_blocks:,} blocks and {done.n_tx:,} transactions in {self.work_s:.1f} s{rate}",
            f"found {self.n_found:,} blocks, {self.n_wanted:,} wanted, {self.n_present_before:,} were there",
        ]
        lines += [f"tip: height {self.tip_height}, {self.tip_hash}"] if self.tip_hash else []
        for count, text in (
            (self.n_left_to_live, "blocks left to the live collector that is running"),
            (done.n_present, "blocks were stored by another in the meantime"),
            (done.n_without_fees, "blocks without all their fees: no undo data found"),
            (self.n_without_height, "blocks whose height cannot be known, not written"),
            (len(done.unfinished), "record that the node was still writing; run again for it"),
            (len(self.unknown_to_node), "blocks that the node does not have on its chain"),
        ):
            lines += [f"{count:,} {text}"] if count else []
        if done.unavailable:
            heights = _spans(_runs(int(each.partition(":")[0]) for each in done.unavailable))
            lines.append(f"{len(done.unavailable):,} blocks were pruned or are not given: heights {heights}")
            lines.append(f"such as {done.unavailable[0]}")
        if self.missing_heights:
            lines.append(f"no block to be had for heights {_spans(self.missing_heights)}")
        for bad in done.bad[:MOST_SHOWN]:
            lines.append(f"rejected {bad.place.origin}: {bad.reason}")
        if len(done.bad) > MOST_SHOWN:
            lines.append(f"and {len(done.bad) - MOST_SHOWN} more in the table `rejects`")
        return lines


def _runs(heights: Iterable[int]) -> list[tuple[int, int]]:
    """Put heights together into spans with both ends included."""
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
