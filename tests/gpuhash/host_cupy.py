"""The part of CuPy that the cuda backend uses, over NumPy arrays and kernels compiled for the host.

No GPU is needed, and what is left to a GPU is as small as can be: CuPy itself and the hardware. Streams are
lazy on purpose: copies and launches wait in a stream until it is synchronised, so a backend that uses a
buffer too early, or frees or refills one too soon, gets wrong digests here.
"""

import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from gpuhash.kernel_calls import MODULE_SOURCES, source
from tests.gpuhash import host_kernels

SM_COUNT = 2


class Array(np.ndarray):
    """Stands in for a device array: a NumPy array with CuPy's names for address, device and copies."""

    device_id = 0

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Return the memory pointer as CuPy names it."""
        return types.SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self) -> Any:  # type: ignore[override]
        """Return the device that holds the array."""
        return types.SimpleNamespace(id=self.device_id)

    def set(self, source_array: np.ndarray, stream: "Stream | None" = None) -> None:
        """Copy from the host; the stream does it when its turn comes."""
        enqueue(stream, lambda: np.copyto(self, source_array))

    def get(
        self, stream: "Stream | None" = None, out: np.ndarray | None = None, *, blocking: bool = True
    ) -> Any:
        """Copy to the host; with blocking=False the stream does it when its turn comes."""
        target = np.full(self.shape, 0xEE, self.dtype) if out is None else out
        enqueue(stream, lambda: np.copyto(target, self))
        if blocking:
            (stream or current_streams()[-1]).synchronize()
        return target


Array.__module__ = "cupy"


class OfThread(threading.local):
    """Holds what CUDA keeps for each thread: the streams that it entered and its current device."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.device_number = 0


OF_THREAD = OfThread()


def current_streams() -> "list[Stream]":
    """Return the streams that this thread entered; the first is its default stream."""
    if not OF_THREAD.streams:
        OF_THREAD.streams.append(Stream())
    return OF_THREAD.streams


class Stream:
    """Holds work in order; it is done at the latest when somebody waits for it."""

    def __init__(self, *, non_blocking: bool = False) -> None:
        self.non_blocking = non_blocking
        self.work: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        current_streams().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        current_streams().remove(self)

    def synchronize(self) -> None:
        """Do the work that waits."""
        while self.work:
            self.work.pop(0)()


def enqueue(stream: Stream | None, work: Callable[[], None]) -> None:
    """Put work on a stream, the current one when none is named; the default stream works at once."""
    chosen = stream or current_streams()[-1]
    chosen.work.append(work)
    if chosen is current_streams()[0]:
        chosen.synchronize()


class HostCupy(types.ModuleType):
    """Stands in for the module CuPy in `sys.modules`."""

    def __init__(
        self,
        folder: Path,
        *,
        device_count: int = 1,
        largest_bytes: int = 1 << 40,
        memory_bytes: int = 1 << 40,
    ) -> None:
        super().__init__("cupy")
        self.folder = folder
        self.largest_bytes = largest_bytes  # a larger allocation fails
        self.free_bytes = memory_bytes  # of all devices together
        self.counting = threading.RLock()  # an array may be freed while its thread holds this
        self.launches: list[tuple[int, str, int]] = []  # device, kernel, blocks
        OF_THREAD.streams.clear()
        OF_THREAD.device_number = 0
        self.ndarray = Array
        self.ascontiguousarray = self.asarray
        self.concatenate = lambda arrays, axis: np.concatenate(arrays, axis=axis).view(Array)
        self.where = lambda *arguments: np.where(*arguments).view(Array)
        self.cuda = types.SimpleNamespace(
            Device=lambda number=0: Device(self, number),
            Stream=Stream,
            get_current_stream=lambda: current_streams()[-1],
            alloc_pinned_memory=bytearray,
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            runtime=types.SimpleNamespace(
                CUDARuntimeError=RuntimeError,
                is_hip=False,
                getDeviceCount=lambda: device_count,
                getDeviceProperties=lambda number: {
                    "name": f"Host {number}".encode() + bytes(9),
                    "multiProcessorCount": SM_COUNT,
                },
            ),
        )

    def empty(self, shape: Any, dtype: Any) -> Array:
        """Allocate an array that holds arbitrary bytes, as fresh memory does."""
        array = np.empty(shape, dtype)
        self._count(array.nbytes)
        # Device memory begins at multiples of 256 bytes.
        raw = np.full(array.nbytes + 256, 0xEE, np.uint8)
        weakref.finalize(raw, self._count, -array.nbytes)
        start = -raw.ctypes.data % 256
        result = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape).view(Array)
        result.device_id = OF_THREAD.device_number
        return result

    def _count(self, n_bytes: int) -> None:
        """Take memory, or give it back if n_bytes is negative; raise OutOfMemoryError if it is not there."""
        with self.counting:
            if n_bytes > min(self.largest_bytes, self.free_bytes):
                raise OutOfMemoryError(f"{n_bytes} bytes")
            self.free_bytes -= n_bytes

    def zeros(self, shape: Any, dtype: Any) -> Array:
        """Allocate zeros."""
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def asarray(self, array: Any) -> Array:
        """Copy to the device unless it is there."""
        if isinstance(array, Array) and array.flags.c_contiguous:
            return array
        result = self.empty(np.shape(array), np.asarray(array).dtype)
        result[...] = array
        return result

    def get_default_memory_pool(self) -> Any:
        """Return a pool that keeps nothing."""
        return types.SimpleNamespace(free_all_blocks=lambda: None)

    def RawModule(self, *, code: str, options: tuple[str, ...]) -> Any:  # noqa: N802 - CuPy's name
        """Compile for the host what CuPy would compile for the device."""
        module = next(name for name in MODULE_SOURCES if source(name) == code)
        pairs = [option[2:].split("=") for option in options if option.startswith("-D")]
        library = host_kernels.compile_for_host(
            module, {name: int(value) for name, value in pairs}, self.folder
        )
        return types.SimpleNamespace(
            compile=self.compile, get_function=lambda kernel: HostKernel(self, library, kernel)
        )

    def compile(self) -> None:
        """Do nothing, because the module is compiled already; a test may replace this by a failure."""


class Device:
    """Stands in for a device; a `with` block makes it the current one."""

    compute_capability = "90"
    attributes: ClassVar = {"ClockRate": 1_980_000}

    def __init__(self, cupy: HostCupy, number: int) -> None:
        self.cupy = cupy
        self.id = number
        self.pci_bus_id = f"0000:{9 - number:02X}:00.0"  # in another order than the numbers
        self.before = 0

    def __enter__(self) -> Self:
        self.before, OF_THREAD.device_number = OF_THREAD.device_number, self.id
        return self

    def __exit__(self, *_: object) -> None:
        OF_THREAD.device_number = self.before


class OutOfMemoryError(MemoryError):
    """Stands in for cupy.cuda.memory.OutOfMemoryError."""


class HostKernel:
    """Stands in for a kernel; each launch is put on the current stream."""

    num_regs = 0

    def __init__(self, cupy: HostCupy, library: Any, name: str) -> None:
        self.cupy = cupy
        self.library = library
        self.name = name

    def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
        """Put a launch of the kernel on the current stream."""
        self.cupy.launches.append((OF_THREAD.device_number, self.name, grid[0]))
        enqueue(None, lambda: host_kernels.launch(self.library, self.name, grid[0], block[0], arguments))
