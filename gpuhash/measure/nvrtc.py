"""Compile kernels for any NVIDIA architecture with NVRTC alone: no GPU, no driver, no CUDA headers.

NVRTC comes with the CUDA toolkit or from PyPI (nvidia-cuda-nvrtc). The cuda backend does not need this
module: CuPy compiles for the device that it runs on. This module lets a test see what the compiler makes of a
kernel.
"""

import contextlib
import ctypes
import ctypes.util
import re
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuhash.errors import BackendUnavailableError, InvalidInputError
from gpuhash.kernel_calls import source
from gpuhash.variants import Variant

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Holds how many registers, and how many bytes of memory, one compiled kernel needs."""

    registers: int  # per thread
    spill_bytes: int  # per thread: stores and loads together
    stack_bytes: int  # per thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Holds the machine code of one module of kernels, and the resources of each kernel."""

    cubin: bytes
    kernels: dict[str, Resources]  # by name


def compile_variant(variant: Variant, architecture: str, *, unroll_all: bool = False) -> Compiled:
    """Compile a kernel variant for an architecture such as sm_90; return the machine code.

    With unroll_all the rounds that a kernel does in a loop stand one after the other, so that they can be
    counted; such code is slower, because it does not fit the instruction cache.
    Raises BackendUnavailableError if NVRTC is missing, and InvalidInputError with the compiler's message if
    it refuses the source or the architecture.
    """
    nvrtc = _library()
    program = ctypes.c_void_p()
    text = source(variant.module).encode()
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None))
    try:
        options = [
            f"--gpu-architecture={architecture}",
            "--std=c++17",
            "--ptxas-options=-v",
            *(f"--define-macro={name}={value}" for name, value in variant.defines.items()),
            *(["--define-macro=UNROLL_ALL"] if unroll_all else []),
        ]
        pointers = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), pointers)
        log = _read(nvrtc, program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if status:
            raise InvalidInputError(f"{variant.module} does not compile for {architecture}: {log.strip()}")
        return Compiled(cubin=_read(nvrtc, program, "CUBIN"), kernels=_resources(log))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def wheel_files(pattern: str) -> list[Path]:
    """Return the files of NVIDIA's PyPI packages that match a glob pattern, the newest version last."""
    return sorted(Path(sysconfig.get_paths()["purelib"]).glob(f"nvidia/*/{pattern}"))


@cache
def _library() -> ctypes.CDLL:
    names = [str(path) for path in reversed(wheel_files("lib/libnvrtc.so.*")) if "alt" not in path.name]
    for name in (*names, ctypes.util.find_library("nvrtc") or "libnvrtc.so"):
        with contextlib.suppress(OSError):  # try the next library
            return ctypes.CDLL(name)
    raise BackendUnavailableError(
        "NVRTC is not installed; pip install nvidia-cuda-nvrtc, or the CUDA toolkit"
    )


def _read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(nvrtc: ctypes.CDLL, status: int) -> None:
    if status:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise BackendUnavailableError(f"NVRTC failed: {nvrtc.nvrtcGetErrorString(status).decode()}")


def _resources(log: str) -> dict[str, Resources]:
    """Return by kernel name the registers and memory that each kernel needs, from the log of ptxas."""
    found = {}
    for name, stack, stores, loads, registers in re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers",
        log,
        re.DOTALL,
    ):
        found[name] = Resources(
            registers=int(registers), spill_bytes=int(stores) + int(loads), stack_bytes=int(stack)
        )
    return found
