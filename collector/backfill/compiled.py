"""Compile functions over byte arrays to machine code, once per machine."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])
Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer[Any]]
Records = npt.NDArray[np.void]
Record = Any  # one of Records, whose fields are attributes in compiled code


def compiled(function: Function) -> Function:
    """Compile with numba at the first call; the code is kept on disk for the next process.

    What it keeps is renewed when the file of the function changes, not when that of a function it calls does:
    keep callers and callees in one module.
    """
    return cast(Function, numba.njit(cache=True, nogil=True)(function))
