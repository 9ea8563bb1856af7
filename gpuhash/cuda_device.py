"""Describe one CUDA device and launch kernels on it, through CuPy."""

import importlib
import logging
import threading
from functools import cache, cached_property
from typing import Any

from gpuhash.errors import BackendUnavailableError, InvalidInputError
from gpuhash.kernel_calls import MODULE_SOURCES, KernelCall, source
from gpuhash.variants import Variant, chosen

log = logging.getLogger("gpuhash")

THREADS = {"sha256": 256, "keccak": 128}  # per block, as __launch_bounds__ in kernels/*.cu states them


def load_cupy() -> Any:
    """Import CuPy and return it; raise BackendUnavailableError with what to install if that fails."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise BackendUnavailableError(
            f"the cuda backend needs CuPy ({error}); pip install 'cupy-cuda13x[ctk]', or use backend='cpu'"
        ) from error


@cache
def devices() -> tuple["CudaDevice", ...]:
    """Return every device that CuPy sees; raise BackendUnavailableError with the reason if there is none."""
    cupy = load_cupy()
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailableError(f"no CUDA device: {error}; use backend='cpu'") from error
    if count == 0:
        raise BackendUnavailableError("no CUDA device: the driver lists none; use backend='cpu'")
    return tuple(CudaDevice(cupy, number) for number in range(count))


def device(number: int) -> "CudaDevice":
    """Return the device with this number; raise InvalidInputError if there is no such device."""
    found = devices()
    if number >= len(found):
        raise InvalidInputError(f"there is no GPU {number}; CuPy sees {len(found)} GPUs, numbered from 0")
    return found[number]


class CudaDevice:
    """Represents one CUDA device and holds the kernels that were compiled for it.

    `variants` names the kernel variant of a module; a module that is not in it gets the chosen variant.
    """

    def __init__(self, cupy: Any, number: int, variants: dict[str, Variant] | None = None) -> None:
        self.cupy = cupy
        self.number = number
        self._variants = variants or {}
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._compiling = threading.RLock()  # several threads launch kernels

    @cached_property
    def properties(self) -> dict[str, Any]:
        """The properties of the device as the CUDA runtime returns them, by name."""
        return dict(self.cupy.cuda.runtime.getDeviceProperties(self.number))

    @property
    def name(self) -> str:
        """The product name of the device."""
        return bytes(self.properties["name"]).split(b"\0")[0].decode()

    @property
    def sm_count(self) -> int:
        """The number of streaming multiprocessors of the device."""
        return int(self.properties["multiProcessorCount"])

    @property
    def clock_mhz(self) -> float:
        """The highest clock of the device's multiprocessors, in MHz."""
        return float(self.cupy.cuda.Device(self.number).attributes["ClockRate"]) / 1e3

    @property
    def pci_bus_id(self) -> str:
        """The PCI address of the device, by which NVML finds it too; NVML may number devices otherwise."""
        return str(self.cupy.cuda.Device(self.number).pci_bus_id)

    @cached_property
    def capability(self) -> str:
        """The compute capability without the point, such as "90" for 9.0; on AMD a name such as "gfx90a"."""
        if self.cupy.cuda.runtime.is_hip:
            return bytes(self.properties.get("gcnArchName", b"amd")).split(b"\0")[0].decode()
        return str(self.cupy.cuda.Device(self.number).compute_capability)

    def variant(self, module: str) -> Variant:
        """Return the variant of a kernel module (sha256 or keccak) that is compiled for this device."""
        return self._variants.get(module) or chosen(module, self.capability)

    def current(self) -> Any:
        """Return a context manager in which new arrays and launches belong to this device."""
        return self.cupy.cuda.Device(self.number)

    def prepare(self) -> None:
        """Compile all kernels for this device; raise BackendUnavailableError if that fails."""
        with self.current():
            for module in MODULE_SOURCES:
                self._module(module)

    def launch(self, call: KernelCall) -> None:
        """Launch a kernel call on the current stream, without waiting for it; the device must be current."""
        if call.items == 0:
            return
        threads = THREADS[call.module]
        self._function(call.module, call.kernel)((-(-call.items // threads),), (threads,), call.arguments)

    def _function(self, module: str, kernel: str) -> Any:
        """Return a compiled kernel."""
        key = (module, kernel)
        with self._compiling:
            if key not in self._functions:
                function = self._module(module).get_function(kernel)
                log.info(
                    "%s: kernel %s, variant %s, %s registers",
                    self.name,
                    kernel,
                    self.variant(module).name,
                    function.num_regs,
                )
                self._functions[key] = function
            return self._functions[key]

    def _module(self, module: str) -> Any:
        if module not in self._modules:
            defines = self.variant(module).defines
            options = ("-std=c++17", *(f"-D{name}={value}" for name, value in defines.items()))
            compiled = self.cupy.RawModule(code=source(module), options=options)
            try:
                compiled.compile()
            except Exception as error:
                # CuPy raises no exception type of its own when NVRTC is missing.
                raise BackendUnavailableError(
                    f"{self.name}: the kernels do not compile: {error}; CuPy needs NVRTC, which "
                    "pip install 'cupy-cuda13x[ctk]' or the CUDA toolkit brings, or use backend='cpu'"
                ) from error
            self._modules[module] = compiled
        return self._modules[module]
