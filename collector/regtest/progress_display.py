"""Show how far a scenario is: a bar in a terminal, else a few lines."""

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from collector.log import counted

PLAIN_STEPS: Final = 6  # lines printed where there is no terminal


class ScenarioProgress:
    """Shows the progress of one scenario on `console` during a `with` block, by calls of `report`."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("[progress.description]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("blocks"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task(f"scenario {name}", total=None)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        else:
            self._console.print("starting the node, its coins and the collector", highlight=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def report(self, done: int, total: int) -> None:
        """Show that `done` of `total` blocks are mined."""
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, total=total)
        elif done == total or done % max(1, total // PLAIN_STEPS) == 0:
            self._console.print(f"{done} of {counted(total, 'block')}", highlight=False)
