"""Run units of work of a backfill in the Python processes of a Spark cluster.

A unit says where blocks are, not what they hold, so little travels. Workers read the block files, or ask the
node, and write into the dataset themselves: its folder, and that of the block files, must have the same path
on every machine. A worker that dies costs its unit alone: Spark gives it to another one, which finds a file
that is already written by its name.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

import pyarrow as pa

from collector.backfill.store import WorkResult
from collector.backfill.workers import BoundedPool, load_compiled_functions
from collector.child_processes import SAFE_PATH
from collector.dataset.extras import import_extra
from collector.errors import CollectorError, SettingsError, WrongUsage

MASTER: Final = re.compile(r"(spark|k8s)://\S+|yarn|local(-cluster)?\[[\d*, ]+\]")
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.speculation": "false",  # no unit is done twice
    "spark.executorEnv.PYTHONSAFEPATH": "1",  # nothing of a current folder is imported
    "spark.executorEnv.GPUHASH_THREADS": "1",  # the other cores belong to the other workers
}
Work = Callable[[Any], WorkResult]


class SparkPool(BoundedPool):
    """Runs units of work on a Spark cluster, each as a job of its own."""

    def __init__(self, master: str) -> None:
        """Connect to the Spark cluster at `master`; raise SettingsError where that is not possible.

        Raises WrongUsage where `master` is no address of one.
        """
        if not MASTER.fullmatch(master):
            raise WrongUsage(
                f"{master!r} is no engine; write local, or the address of a Spark cluster as spark://HOST:7077"
            )
        os.environ[SAFE_PATH] = "1"
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        spark = import_extra("pyspark", "spark", "Spark needs PySpark")
        errors = importlib.import_module("pyspark.errors")
        java_error = importlib.import_module("py4j.protocol").Py4JError  # py4j comes with PySpark
        self._errors: tuple[type[Exception], ...] = (errors.PySparkException, java_error)
        conf = spark.SparkConf().setMaster(master).setAppName("pool-collector backfill")
        try:
            self._context = spark.SparkContext(conf=conf.setAll(list(SETTINGS.items())))
        except self._errors as error:
            reason = str(error).strip().splitlines()[0]
            raise SettingsError(
                f"Spark does not start ({reason}); it needs Java 17, and a cluster that answers at {master}"
            ) from None
        super().__init__(max(1, self._context.defaultParallelism))
        self._threads = ThreadPoolExecutor(self.count * 2, thread_name_prefix="spark-job")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        with suppress(*self._errors):
            self._context.stop()

    def submit(self, work: Work, unit: Any) -> "Future[WorkResult]":
        """Start one unit of work as a Spark job; return the Future of the result."""
        return self._threads.submit(self._done, work, unit)

    def wait_until_ready(self) -> None:
        """Do nothing: a Spark job itself waits until the cluster has a worker for it."""

    def _done(self, work: Work, unit: Any) -> WorkResult:
        """Run one unit of work as a Spark job and return its result.

        Raises the error of the unit, or CollectorError where Spark gives the job up.
        """
        try:
            (found,) = self._context.parallelize([unit], 1).map(partial(_attempt, work)).collect()
        except self._errors as error:
            reason = str(error).strip().splitlines()[0]
            raise CollectorError(
                f"Spark gives up a unit of the backfill ({reason}); what is written stays: run it again"
            ) from None
        if isinstance(found, CollectorError):
            raise found
        result: WorkResult = found
        return result


def _attempt(work: Work, unit: Any) -> WorkResult | CollectorError:
    """Run one unit of work in a Spark worker and return its result.

    A CollectorError is returned, not raised, because Spark would try again, in vain.
    """
    pa.set_cpu_count(1)
    load_compiled_functions()
    try:
        return work(unit)
    except CollectorError as error:
        return error
