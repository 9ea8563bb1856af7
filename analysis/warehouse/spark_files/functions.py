"""Register the functions that the SQL files call: `register(spark)`.

They are Arrow functions in Python. Every worker needs the package pool-measurement.
"""

from analysis.warehouse.functions import register

__all__ = ["register"]
