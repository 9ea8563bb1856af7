"""Register Python functions of whole columns as SQL functions of DuckDB.

Each module of this package lists its functions in a tuple FUNCTIONS. The functions depend on nothing but
their arguments, so two builds of the same dataset give the same numbers.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

Numbers = npt.NDArray[np.float64]
SHORT: Final = 500  # numbers of a row by which it is known again


class SqlFunction(NamedTuple):
    """Describes an SQL function: its name, the Python function, and the SQL types of parameters and result.

    The Python function takes one Arrow column per parameter and returns one Arrow column.
    """

    name: str
    function: Callable[..., Any]
    parameters: list[Any]
    result: str


def create_functions(connection: duckdb.DuckDBPyConnection, functions: Iterable[SqlFunction]) -> None:
    """Register Python functions as SQL functions of one connection; they are called for nulls as well."""
    for name, function, parameters, result in functions:
        connection.create_function(
            name,
            function,
            parameters,
            result,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )


def struct_sql(type_: pa.StructType) -> str:
    """Return DuckDB's name of the type of a struct whose fields are all DOUBLE."""
    return f"STRUCT({', '.join(f'{name} DOUBLE' for name in type_.names)})"


def by_row(
    statistic: Callable[..., tuple[float, ...] | None], type_: pa.StructType, *columns: pa.ChunkedArray
) -> pa.Array:
    """Return an Arrow column of structs: a statistic of each row, whose lists become array arguments.

    Nulls inside a list are left out. A result of None becomes a struct of nulls, and NaN becomes null. Equal
    rows of short lists are computed once: without owners, pools and owners have the same blocks.
    """
    nothing = (np.nan,) * type_.num_fields
    known: dict[tuple[bytes, ...], dict[str, float | None]] = {}
    results = []
    for row in zip(*columns, strict=True):
        lists = [numbers_of(scalar) for scalar in row]
        is_short = sum(map(len, lists)) <= SHORT
        key = tuple(numbers.tobytes() for numbers in lists) if is_short else ()
        found = known.get(key) if is_short else None
        if found is None:
            values = statistic(*lists) or nothing
            numbers = [None if np.isnan(value) else value for value in values]
            found = dict(zip(type_.names, numbers, strict=True))
            if is_short:
                known[key] = found
        results.append(found)
    return pa.array(results, type_)


def numbers_of(scalar: Any) -> Numbers:
    """Return the numbers of one list cell as an array, without nulls; a null cell gives an empty array."""
    if scalar.values is None:
        return np.empty(0)
    numbers: Numbers = scalar.values.drop_null().to_numpy(zero_copy_only=False)
    return numbers
