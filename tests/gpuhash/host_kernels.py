"""Compile kernels with the C++ compiler, and run them one thread at a time."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuhash.kernel_calls import KernelCall, source

COMPILERS = ("c++", "g++", "clang++")
THREADS = 32


def compile_for_host(module: str, defines: Mapping[str, int], folder: Path) -> ctypes.CDLL:
    """Compile a module with GPUHASH_HOST; what has been compiled before is taken from folder."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        pytest.skip("no C++ compiler: the kernels cannot be compiled for the host")
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"]
    flags += ["-DGPUHASH_HOST", *(f"-D{name}={value}" for name, value in defines.items())]
    text = source(module)
    digest = hashlib.sha256("\n".join([compiler, *flags, text]).encode()).hexdigest()[:16]
    library = folder / f"{module}-{digest}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Of its own: two threads, and two processes of a test run, compile the same module at once.
        partial = folder / f"{library.name}.{os.getpid()}-{threading.get_ident()}"
        subprocess.run([compiler, *flags, "-x", "c++", "-", "-o", partial], input=text, text=True, check=True)
        partial.replace(library)
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, call: KernelCall) -> None:
    """Run every thread of a launch, in order."""
    launch(library, call.kernel, -(-call.items // THREADS), THREADS, call.arguments)


def launch(library: ctypes.CDLL, kernel: str, blocks: int, threads: int, arguments: Iterable[Any]) -> None:
    """Call a kernel as the GPU would, with arguments as CuPy takes them."""
    values = [_as_c(argument) for argument in arguments]
    function = getattr(library, kernel)
    for block in range(blocks):
        for thread in range(threads):
            library.set_place(block, thread, threads)
            function(*values)


def _as_c(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):  # a struct by value
        fields = [("bytes", ctypes.c_ubyte * argument.nbytes)]
        kind = type("Struct", (ctypes.Structure,), {"_fields_": fields})
        return kind.from_buffer_copy(argument.tobytes())
    kinds = {np.uint32: ctypes.c_uint32, np.int64: ctypes.c_int64, np.uint64: ctypes.c_uint64}
    return kinds[type(argument)](int(argument))
