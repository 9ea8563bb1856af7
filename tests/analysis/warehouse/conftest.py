"""One session of Spark for the tests of this folder; they skip where PySpark or Java is missing."""

import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from analysis.warehouse.functions import register
from analysis.warehouse.session import open_session

# Tables of a few rows: planning costs more than the rows, and compiled code is never worth its compilation.
SMALL = {
    "spark.master": "local[2]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "2g",
    "spark.log.level": "OFF",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Open a session with our functions registered."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install 'pool-measurement[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17, and there is no java on PATH")
    session = open_session(SMALL)
    register(session)
    yield session
    session.stop()
