"""Make what the web pages draw once per build: the charts of the report and its findings.

Drawing takes seconds. A thread does it after the start and after each new build, so that a client finds it
done, and waits for no more than the one thing that it asks for.
"""

import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import typer

from analysis.errors import AnalysisError
from analysis.report.model import Figure, Section, Unanswered
from analysis.report.sections import TOPICS
from analysis.report.share_windows import stack_figure
from analysis.report.topic import Topic
from analysis.row_output import inert
from analysis.serve.build_findings import found_answers, report_marts
from analysis.serve.events import events
from analysis.serve.results import BusyError, NotBuiltError, Reader, Results

LOOK_S: Final = 1.0
PREPARE_S: Final = 120.0  # the longest time of what is drawn ahead, in which nobody waits


def stack(reader: Reader, database: Path) -> Figure | None:
    """Return the chart of pools' shares over time, drawn once per build; None if the dataset is too short."""
    return reader.cached("stack", lambda each: stack_figure(report_marts(each, database)))


def section(reader: Reader, database: Path, topic: Topic) -> tuple[Section, Sequence[Unanswered]]:
    """Return the report's section on a topic, and the questions that lack data; made once per build."""
    return reader.cached(
        f"topic {topic.section_id}", lambda each: topic.section(report_marts(each, database))
    )


def steps(database: Path) -> list[Callable[[Reader], object]]:
    """Return the functions that make what the pages draw for one build, each called with a Reader.

    They are separate, so that clients' questions get a turn between two of them.
    """

    def drawn(topic: Topic) -> Callable[[Reader], object]:
        return lambda reader: section(reader, database, topic)

    return [
        events,
        lambda reader: report_marts(reader, database),
        lambda reader: stack(reader, database),
        lambda reader: found_answers(reader, database),
        *(drawn(topic) for topic in TOPICS),
    ]


class Preparation:
    """Makes, in a thread of its own, what the web pages draw, for each build that comes."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prepare", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread that draws for the pages, after the drawing that it is at, and wait for it."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        prepared = ""
        while not self._stopping.is_set():
            version = self._results.version
            if version != prepared:
                self._prepare()
                prepared = version
            self._stopping.wait(LOOK_S)

    def _prepare(self) -> None:
        for step in steps(self._results.database):
            if self._stopping.is_set():
                return
            try:
                self._results.read(step, question_s=PREPARE_S)
            except BusyError:
                continue  # it is made when a client asks for it
            except NotBuiltError:
                return
            except AnalysisError as error:
                typer.echo(f"pool-analysis: pages are not prepared: {inert(str(error))}", err=True)
                return
            except Exception as error:  # noqa: BLE001 - one page that cannot be drawn leaves the others alone
                traceback.print_exception(error, file=sys.stderr)
