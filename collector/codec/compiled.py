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
    keep callers and callees in one module. Where this user may write to neither the folder of the module nor
    a cache of its own, it is compiled in each process.
    """
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba finds no folder; `gpuhash` has said so by now, of the same places
        return cast(Function, numba.njit(nogil=True)(function))
