"""Show how far a backfill is: a bar where a person watches, a line now and then elsewhere."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from collector.backfill.work import Done, peak_memory_bytes

LINE_EVERY_S: Final = 10.0
MILLION: Final = 1_000_000
GIGA: Final = 1_000_000_000


class Watcher:
    """Tells about the scan and then about the work; use it in a `with` statement."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console = console
        self._workers = workers
        self._begun_s = self._told_s = time.monotonic()
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
        """Tell how many files have been looked through."""
        if self._bar is not None:
            self._bar.update(self._task, completed=n_files, total=n_all, facts=f"{n_files}/{n_all} files")
        elif n_files and self._is_time():
            self._console.print(f"headers of {n_files} of {n_all} files read")

    def begin(self, total: int, *, unit: str = "bytes") -> None:
        """Begin to tell about the work; unit is `bytes` or `blocks`."""
        self._begun_s = time.monotonic()
        self._total, self._unit = total, unit
        if self._bar is not None:
            self._bar.reset(self._task, total=max(total, 1), description="writing rows", facts="")

    def worked(self, done: Done) -> None:
        """Tell what has been done so far."""
        facts = self._facts(done)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._completed(done), facts=facts)
        elif self._is_time():
            share = 100 * self._completed(done) / max(self._total, 1)
            self._console.print(f"{share:.0f} % {facts}, {self._left(done)} left")

    def _completed(self, done: Done) -> int:
        return done.block_bytes if self._unit == "bytes" else done.n_blocks

    def _facts(self, done: Done) -> str:
        elapsed_s = max(time.monotonic() - self._begun_s, 1e-9)
        memory_bytes = peak_memory_bytes() + self._workers * done.memory_bytes
        return (
            f"height {done.last_height}, {done.n_tx / elapsed_s:,.0f} tx/s, "
            f"{done.block_bytes / MILLION / elapsed_s:,.0f} MB/s, {memory_bytes / GIGA:.1f} GB memory"
        )

    def _left(self, done: Done) -> str:
        elapsed_s = time.monotonic() - self._begun_s
        rest = max(self._total - self._completed(done), 0) / max(self._completed(done), 1)
        return f"{elapsed_s * rest:,.0f} s"

    def _is_time(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._told_s < LINE_EVERY_S:
            return False
        self._told_s = now_s
        return True
