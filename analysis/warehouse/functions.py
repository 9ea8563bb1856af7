"""Register the functions of analysis.stats on Spark: the same Python code, with types named Spark's way.

Two functions more are in DuckDB, but not in Spark: lgamma(), and the text of bytes.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import scipy.special
from sqlglot import exp

from analysis.stats import FUNCTIONS
from analysis.stats.sql_functions import SqlFunction

PRINTABLE: Final = {byte for byte in range(32, 127) if chr(byte) not in "\"'\\"}


def _lgamma(numbers: pa.ChunkedArray) -> pa.Array:
    """Return the logarithm of the gamma function of each number of a column; null gives null."""
    found = scipy.special.gammaln(numbers.to_numpy().astype(float))
    return pa.array(found, pa.float64(), from_pandas=True)


def _printable(texts: pa.ChunkedArray) -> pa.Array:
    """Return bytes as text in the form of DuckDB's cast to VARCHAR; null gives null."""
    return pa.array([None if text is None else _escaped(text) for text in texts.to_pylist()], pa.string())


def _escaped(text: bytes) -> str:
    return "".join(chr(byte) if byte in PRINTABLE else f"\\x{byte:02X}" for byte in text)


SPARK_FUNCTIONS: Final = (
    *FUNCTIONS,
    SqlFunction("lgamma", _lgamma, ["DOUBLE"], "DOUBLE"),
    SqlFunction("printable_bytes", _printable, ["BLOB"], "VARCHAR"),
)
BY_NAME: Final = {function.name: function for function in SPARK_FUNCTIONS}


def spark_type(type_: str) -> str:
    """Return Spark's name of one of DuckDB's types."""
    written: str = exp.DataType.build(type_, dialect="duckdb").sql("spark")
    return written


def register(spark: Any) -> None:
    """Register all functions of analysis.stats with a Spark session, whose workers must have this package."""
    from analysis.warehouse.session import pyspark  # noqa: PLC0415 - the functions' types are read without Spark

    functions = pyspark("sql.functions")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # the number of columns differs, so no type hint can say them
        for function in SPARK_FUNCTIONS:
            computed = functions.arrow_udf(
                _of_arrays(function), spark_type(function.result), functions.ArrowUDFType.SCALAR
            )
            spark.udf.register(function.name, computed)


def _of_arrays(function: SqlFunction) -> Callable[..., pa.Array]:
    """Return a SQL function in the form that Spark calls: with Arrow arrays, not chunked ones, in and out."""

    def computed(*columns: pa.Array) -> pa.Array:
        found = function.function(*(pa.chunked_array([column]) for column in columns))
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    return computed


def guarded(node: exp.Expr) -> exp.Expr:
    """Rewrite our Python functions in a branch of `case when` to get nulls where its condition does not hold.

    Spark computes a Python function for every row, even where it does not use the result. The changed node of
    the syntax tree is returned; other nodes stay as they are.
    """
    if not isinstance(node, exp.If) or not isinstance(node.parent, exp.Case) or node.parent.this:
        return node
    for function in node.args["true"].find_all(exp.Anonymous):
        if function.name.lower() in BY_NAME:
            arguments = [
                exp.Case(ifs=[exp.If(this=node.this.copy(), true=given)]) for given in function.expressions
            ]
            function.set("expressions", arguments)
    return node


def with_typed_arguments(node: exp.Expr) -> exp.Expr:
    """Cast the arguments of our SQL functions to the types of their parameters: Spark casts none by itself.

    The changed node of the syntax tree is returned; other nodes stay as they are.
    """
    function = BY_NAME.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
    if function is None:
        return node
    types = [exp.DataType.build(type_, dialect="duckdb") for type_ in function.parameters]
    typed = [exp.cast(given, type_) for given, type_ in zip(node.expressions, types, strict=True)]
    node.set("expressions", typed)
    return node
