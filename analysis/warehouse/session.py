"""Open a session of Spark in which the translated models mean what they mean in DuckDB."""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from analysis.errors import WarehouseError
from collector.dataset.extras import import_extra

# What the results depend on: days are days of UTC, a recursion has no most, and a stored time keeps its zone.
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.cteRecursionLevelLimit": "-1",
    "spark.sql.cteRecursionRowLimit": "-1",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def pyspark(module: str) -> Any:
    """Import a module of PySpark and return it. Raises WarehouseError where PySpark is not installed."""
    return import_extra(f"pyspark.{module}", "spark", "Spark needs PySpark", WarehouseError)


def open_session(settings: Mapping[str, str] | None = None) -> Any:
    """Return the running Spark session, or a new one, with the settings that translated models need.

    `settings` are added to these. Outside of spark-submit the session is one process on this machine. Raises
    WarehouseError where PySpark or Java is missing.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = pyspark("sql").SparkSession.builder.appName("pool-measurement")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except pyspark("errors").PySparkRuntimeError as error:
        raise WarehouseError(
            f"Spark does not start ({error}); it needs Java 17, with JAVA_HOME or on PATH"
        ) from None


def data_frame(spark: Any, table: pa.Table) -> Any:
    """Return an Arrow table, which may be empty, as a Spark DataFrame.

    Bytes of a fixed length, which Spark does not know, become bytes of any length.
    """
    fields = [
        field.with_type(pa.binary()) if pa.types.is_fixed_size_binary(field.type) else field
        for field in table.schema
    ]
    plain = table.cast(pa.schema(fields))
    return spark.createDataFrame(plain if len(plain) else plain.schema.empty_table())
