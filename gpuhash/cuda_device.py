"""One CUDA device through CuPy: what it is, and how a kernel call is launched on it."""

import importlib
import logging
from functools import cache, cached_property
from typing import Any

from gpuhash.errors import BackendUnavailableError, InvalidInputError
from gpuhash.kernel_calls import MODULE_SOURCES, KernelCall, source
from gpuhash.variants import Variant, chosen

log = logging.getLogger("gpuhash")

# Threads per block as __launch_bounds__ in kernels/*.cu states them; 256 where it is not said here.
THREADS = {("keccak", "hash_batch"): 128}
MOST_BLOCKS = (1 << 31) - 1


def load_cupy() -> Any:
    """Import CuPy, or raise BackendUnavailableError saying what to install."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise BackendUnavailableError(
            f"the cuda backend needs CuPy ({error}); pip install 'cupy-cuda13x[ctk]', or use backend='cpu'"
        ) from error


@cache
def devices() -> tuple["CudaDevice", ...]:
    """Return every device CuPy sees; raises BackendUnavailableError, saying why, when there is none."""
    cupy = load_cupy()
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailableError(f"no CUDA device: {error}; use backend='cpu'") from error
    if count == 0:
        raise BackendUnavailableError("no CUDA device: the driver lists none; use backend='cpu'")
    return tuple(CudaDevice(cupy, number) for number in range(count))


def device(number: int) -> "CudaDevice":
    """Return one device by its number, or raise InvalidInputError with those there are."""
    found = devices()
    if number >= len(found):
        raise InvalidInputError(f"there is no GPU {number}; CuPy sees {len(found)}, numbered from 0")
    return found[number]


class CudaDevice:
    """A device, with the kernels compiled for it."""

    def __init__(self, cupy: Any, number: int, variants: dict[str, Variant] | None = None) -> None:
        self.cupy = cupy
        self.number = number
        self._variants = variants or {}
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], tuple[Any, int]] = {}

    @cached_property
    def properties(self) -> dict[str, Any]:
        """What the runtime says about the device."""
        return dict(self.cupy.cuda.runtime.getDeviceProperties(self.number))

    @property
    def name(self) -> str:
        """Product name."""
        return bytes(self.properties["name"]).split(b"\0")[0].decode()

    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors."""
        return int(self.properties["multiProcessorCount"])

    @property
    def clock_mhz(self) -> float:
        """Highest clock of the multiprocessors."""
        return float(self.cupy.cuda.Device(self.number).attributes["ClockRate"]) / 1e3

    @property
    def pci_bus_id(self) -> str:
        """Where the device is plugged in: by this NVML knows it too, which numbers devices otherwise."""
        return str(self.cupy.cuda.Device(self.number).pci_bus_id)

    @cached_property
    def capability(self) -> str:
        """Compute capability without the point, such as 90; a name such as gfx90a on AMD."""
        if self.cupy.cuda.runtime.is_hip:
            return bytes(self.properties.get("gcnArchName", b"amd")).split(b"\0")[0].decode()
        return str(self.cupy.cuda.Device(self.number).compute_capability)

    def variant(self, module: str) -> Variant:
        """Return how this device compiles a module."""
        return self._variants.get(module) or chosen(module, self.capability)

    def current(self) -> Any:
        """Context in which arrays and launches belong to this device."""
        return self.cupy.cuda.Device(self.number)

    def prepare(self) -> None:
        """Compile the kernels; raises BackendUnavailableError when that cannot be done."""
        with self.current():
            for module in MODULE_SOURCES:
                self._module(module)

    def launch(self, call: KernelCall) -> None:
        """Start a call on the current stream; the device must be current."""
        if call.items == 0:
            return
        function, blocks_per_sm = self._function(call.module, call.kernel)
        threads = THREADS.get((call.module, call.kernel), 256)
        blocks = -(-call.items // threads)
        if not call.every_item_a_thread:
            # One wave: every thread lives until the batch is done and takes its share of the messages.
            blocks = min(blocks, self.sm_count * blocks_per_sm)
        function((min(blocks, MOST_BLOCKS),), (threads,), call.arguments)

    def _function(self, module: str, kernel: str) -> tuple[Any, int]:
        """Return a kernel and how many of its blocks an SM holds."""
        key = (module, kernel)
        if key not in self._functions:
            function = self._module(module).get_function(kernel)
            threads = THREADS.get(key, 256)
            blocks = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
                function.kernel.ptr, threads, 0
            )
            log.info(
                "%s: kernel %s, variant %s, %s registers, %s blocks of %s threads per SM",
                self.name,
                kernel,
                self.variant(module).name,
                function.num_regs,
                blocks,
                threads,
            )
            self._functions[key] = (function, max(int(blocks), 1))
        return self._functions[key]

    def _module(self, module: str) -> Any:
        if module not in self._modules:
            defines = self.variant(module).defines
            options = ("-std=c++17", *(f"-D{name}={value}" for name, value in defines.items()))
            compiled = self.cupy.RawModule(code=source(module), options=options)
            try:
                compiled.compile()
            except Exception as error:
                # CuPy's error when NVRTC is missing has no type of its own.
                raise BackendUnavailableError(
                    f"{self.name}: the kernels do not compile: {error}; CuPy needs NVRTC, which "
                    "pip install 'cupy-cuda13x[ctk]' or the CUDA toolkit brings, or use backend='cpu'"
                ) from error
            self._modules[module] = compiled
        return self._modules[module]
