"""Show the progress of downloads."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn


class DownloadView:
    """Shows a bar for each file in a terminal; elsewhere a line per file, or nothing for very many."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def begin(self, name: str, number: int, total: int) -> None:
        """Show that the download of file `number` of `total` begins."""
        shown = f"{name} ({number} of {total})" if total > 1 else name
        if not self._console.is_terminal:
            self._console.print(f"fetching {shown}", highlight=False, markup=False, soft_wrap=True)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(shown, total=None)

    def arrived(self, n_bytes: int, total: int | None) -> None:
        """Show how many bytes of the present file have arrived."""
        if self._task is not None:
            self._bar.update(self._task, completed=n_bytes, total=total)
