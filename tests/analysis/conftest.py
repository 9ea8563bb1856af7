"""What several tests share: the database in which they build many small worlds, and a session of Spark."""

import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from analysis.warehouse.functions import register
from analysis.warehouse.session import open_session
from tests.analysis.shared_build import SharedBuild, shared_build

# Tables of a few rows: planning costs more than the rows, and compiled code is never worth its compilation.
SMALL = {
    # Else each sort and each hash table takes, and clears, 64 MB of the heap, which holds on to them.
    "spark.buffer.pageSize": "1m",
    # Each broadcast, one per stage at least, takes and clears a block of this size.
    "spark.broadcast.blockSize": "64k",
    "spark.master": "local[1]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # In the usual 48 MB, compiled code is full after some dozen queries, and is swept again and again.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=300m -XX:+UseSerialGC -Xms800m -Xmn400m"
        " -XX:MetaspaceSize=300m"
    ),
    "spark.driver.memory": "2g",
    "spark.log.level": "OFF",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def shared() -> Iterator[SharedBuild]:
    """Open a database in memory with the pool rules of the cases."""
    with shared_build() as opened:
        yield opened


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Open a session of Spark with our functions; skip where PySpark or Java is missing."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install '.[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17, and there is no java on PATH")
    session = open_session(SMALL)
    register(session)
    yield session
    session.stop()
