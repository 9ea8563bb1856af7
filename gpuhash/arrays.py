"""Distinguish arrays of NumPy and CuPy without importing CuPy."""

import importlib
from typing import Any

import numpy as np


def is_device_array(array: object) -> bool:
    """Return whether an array belongs to CuPy, that is, lies in GPU memory."""
    return type(array).__module__.split(".")[0] == "cupy"


def array_module(array: object) -> Any:
    """Return the library that an array belongs to, as a module: numpy or cupy."""
    return importlib.import_module("cupy") if is_device_array(array) else np


def to_host(array: Any) -> Any:
    """Return an array in host memory: a CuPy array is copied, every other array is returned as it is."""
    return array.get() if is_device_array(array) else array
