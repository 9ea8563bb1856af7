"""Have work of a build done by the workers of a Spark cluster: Spark hands it out, DuckDB computes.

Each piece of work is a job of one task. A worker that dies costs that alone: Spark gives it to another one.
Nothing is computed in Spark's own SQL, which takes more than ten times as long for our models.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from analysis.command_options import LOCAL
from analysis.errors import AnalysisError, UnknownEngineError, WarehouseError
from analysis.tasks import Result
from analysis.warehouse.session import open_session, pyspark

MASTER: Final = re.compile(r"(spark|k8s)://\S+|yarn|local(-cluster)?\[[\d*, ]+\]")
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.speculation": "false",  # nothing is done twice
    "spark.executorEnv.PYTHONSAFEPATH": "1",  # nothing of a current folder is imported
}


class SparkWorkers:
    """Does work in the Python processes of a Spark cluster; it implements `analysis.tasks.Workers`."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.n_at_once = max(1, context.defaultParallelism)
        java_error = importlib.import_module("py4j.protocol").Py4JError  # py4j comes with PySpark
        self._errors: tuple[type[Exception], ...] = (pyspark("errors").PySparkException, java_error)

    def call(self, what: str, work: Callable[[], Result]) -> Result:
        """Call `work` as a Spark job of its own, and return what it returns; `what` tells people what it is.

        Raises duckdb.Error where a query fails, and WarehouseError where Spark gives the work up.
        """
        try:
            (found,) = self._context.parallelize([work], 1).map(_attempt).collect()
        except self._errors as error:
            reason = str(error).strip().splitlines()[0]
            raise WarehouseError(f"Spark gives up {what} ({reason})") from None
        result: Result | AnalysisError | duckdb.Error = found
        if isinstance(result, (AnalysisError, duckdb.Error)):
            raise result
        return result


@contextmanager
def open_workers(master: str) -> Iterator[SparkWorkers]:
    """Connect to a Spark cluster, yield its workers, and leave it at the end.

    `master` is an address as Spark has it: spark://HOST:PORT, k8s://…, yarn, local[N] or local-cluster[…].
    Raises UnknownEngineError for another text, and WarehouseError where PySpark, Java or the cluster is
    missing.
    """
    if not MASTER.fullmatch(master):
        raise UnknownEngineError(
            f"{master!r} is no engine; write {LOCAL}, or the address of a Spark cluster as spark://HOST:7077"
        )
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = open_session({**SETTINGS, "spark.master": master})
    try:
        yield SparkWorkers(session.sparkContext)
    finally:
        session.stop()


def _attempt(work: Callable[[], Result]) -> Result | AnalysisError | duckdb.Error:
    """Call `work` in a Spark worker; return what it returns, or the error that would come again.

    An error that is returned instead of raised keeps Spark from another attempt.
    """
    try:
        return work()
    except (AnalysisError, duckdb.Error) as error:
        return error
