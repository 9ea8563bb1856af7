"""Have the parts of marts made by the workers of a Spark cluster: Spark hands them out, DuckDB computes.

Each part is a job of one task, so a worker that dies costs its part alone: Spark gives it to another one.
Nothing is computed in Spark's own SQL, which takes more than ten times as long for our models.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import duckdb

from analysis.command_options import LOCAL
from analysis.errors import AnalysisError, WarehouseError
from analysis.schedule import Made, Task
from analysis.tasks import Workplace, make_part
from analysis.warehouse.session import open_session, pyspark

MASTER: Final = re.compile(r"(spark|k8s)://\S+|yarn|local(-cluster)?\[[\d*, ]+\]")
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.speculation": "false",  # no part is made twice
    "spark.executorEnv.PYTHONSAFEPATH": "1",  # nothing of a current folder is imported
}


class SparkWorkers:
    """Makes parts of marts in the Python processes of a Spark cluster."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.n_at_once = max(1, context.defaultParallelism)
        java_error = importlib.import_module("py4j.protocol").Py4JError  # py4j comes with PySpark
        self._errors: tuple[type[Exception], ...] = (pyspark("errors").PySparkException, java_error)

    def make(self, workplace: Workplace, task: Task) -> Made:
        """Make one part of a mart as a Spark job of its own, and return the part when it is made.

        Raises duckdb.Error where a query fails, and WarehouseError where Spark gives the part up.
        """
        work: Callable[[Task], Made | AnalysisError | duckdb.Error] = partial(_attempt, workplace)
        found: Made | AnalysisError | duckdb.Error
        try:
            (found,) = self._context.parallelize([task], 1).map(work).collect()
        except self._errors as error:
            reason = str(error).strip().splitlines()[0]
            raise WarehouseError(f"Spark gives up a part of {task.mart} ({reason})") from None
        if isinstance(found, Exception):
            raise found
        return found


@contextmanager
def open_workers(master: str) -> Iterator[SparkWorkers]:
    """Connect to a Spark cluster, yield its workers, and leave it at the end.

    `master` is an address as Spark has it: spark://HOST:PORT, k8s://…, yarn, local[N] or local-cluster[…].
    Raises WarehouseError for another text, and where PySpark, Java or the cluster is missing.
    """
    if not MASTER.fullmatch(master):
        raise WarehouseError(
            f"{master!r} is no engine; write {LOCAL}, or the address of a Spark cluster as spark://HOST:7077"
        )
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = open_session({**SETTINGS, "spark.master": master})
    try:
        yield SparkWorkers(session.sparkContext)
    finally:
        session.stop()


def _attempt(workplace: Workplace, task: Task) -> Made | AnalysisError | duckdb.Error:
    """Make one part of a mart in a Spark worker; return the part, or the error that would come again.

    An error that is returned instead of raised keeps Spark from another attempt.
    """
    try:
        return make_part(workplace, task)
    except (AnalysisError, duckdb.Error) as error:
        return error
