"""Show the progress of a backfill: as a bar on a terminal, elsewhere as a line from time to time."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from collector.backfill.store import WorkResult, peak_memory_bytes

LINE_EVERY_S: Final = 10.0
MILLION: Final = 1_000_000
GIGA: Final = 1_000_000_000


class ProgressView:
    """Shows the progress of a backfill: the reading of headers, then the writing of rows.

    Use it in a `with` statement.
    """

    def __init__(self, console: Console, workers: int) -> None:
        self._console = console
        self._workers = workers
        self._begun_s = self._shown_s = time.monotonic()
        self._total = 0
        self._unit = "bytes"
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}% {task.fields[facts]}"),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task("reading headers", total=None, facts="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def scanned(self, n_files: int, n_all: int) -> None:
        """Show that a backfill has read the headers of `n_files` of `n_all` block files."""
        if self._bar is not None:
            self._bar.update(self._task, completed=n_files, total=n_all, facts=f"{n_files}/{n_all} files")
        elif n_files and self._is_time():
            self._console.print(f"headers of {n_files} of {n_all} files read")

    def begin(self, total: int, *, unit: str = "bytes") -> None:
        """Start to show a backfill's writing of rows; `total` counts bytes or blocks, as `unit` says."""
        self._begun_s = time.monotonic()
        self._total, self._unit = total, unit
        if self._bar is not None:
            self._bar.reset(self._task, total=max(total, 1), description="writing rows", facts="")

    def worked(self, result: WorkResult) -> None:
        """Show what a backfill has written so far; `result` is the sum over all finished units of work."""
        facts = self._facts(result)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._completed(result), facts=facts)
        elif self._is_time():
            share = 100 * self._completed(result) / max(self._total, 1)
            self._console.print(f"{share:.0f} % {facts}, {self._left(result)} left")

    def _completed(self, result: WorkResult) -> int:
        return result.block_bytes if self._unit == "bytes" else result.n_blocks

    def _facts(self, result: WorkResult) -> str:
        elapsed_s = max(time.monotonic() - self._begun_s, 1e-9)
        memory_bytes = peak_memory_bytes() + self._workers * result.memory_bytes
        height = f"height {result.last_height}, " if result.last_height >= 0 else ""  # -1: no block yet
        return (
            f"{height}{result.n_tx / elapsed_s:,.0f} tx/s, "
            f"{result.block_bytes / MILLION / elapsed_s:,.0f} MB/s, {memory_bytes / GIGA:.1f} GB memory"
        )

    def _left(self, result: WorkResult) -> str:
        elapsed_s = time.monotonic() - self._begun_s
        rest = max(self._total - self._completed(result), 0) / max(self._completed(result), 1)
        return f"{elapsed_s * rest:,.0f} s"

    def _is_time(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._shown_s < LINE_EVERY_S:
            return False
        self._shown_s = now_s
        return True
