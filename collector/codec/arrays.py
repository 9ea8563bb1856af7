"""Types of the arrays that compiled functions take."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Records: TypeAlias = npt.NDArray[np.void]
Record: TypeAlias = Any  # one of Records, whose fields are attributes in compiled code
