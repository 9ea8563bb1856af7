"""Define the types of the arrays that compiled functions take, and the number that means failure."""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Records: TypeAlias = npt.NDArray[np.void]
Record: TypeAlias = Any  # one of Records, whose fields are attributes in compiled code

# Compiled functions return this instead of a position or a number when the bytes are cut off or wrong.
FAIL: Final = -1
