"""Describe this machine, so that a measurement can say what it was made on."""

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from gpuhash.cuda_device import devices
from gpuhash.errors import BackendUnavailableError
from gpuhash.kernel_calls import MODULE_SOURCES
from gpuhash.lanes import VECTOR_BITS
from gpuhash.sharing import usable_cpus, wanted_threads

PACKAGES = ("numpy", "numba", "llvmlite", "pycryptodome", "cupy-cuda13x", "cupy-cuda12x", "nvidia-ml-py")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
# The CPU features that decide how fast the hashes here can be.
FEATURES = ("avx2", "avx512f", "avx512vl", "sha_ni")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Holds facts about the machine as the system reports them: CPU, memory, packages, GPUs, driver."""

    cpu: str
    cpu_count: int  # logical CPUs this process may use
    cpu_threads: int  # threads of the cpu backend
    cpu_features: tuple[str, ...]
    cpu_mhz: float | None  # as the system reports it; a virtual machine may report the nominal clock
    vector_bits: int  # width of the registers that the cpu backend uses
    memory_bytes: int
    system: str
    python: str
    packages: dict[str, str]  # installed version by package name
    gpus: tuple[str, ...]  # name, size, clock and chosen variants of each, in CuPy's order
    gpu_driver: str  # version of NVIDIA's driver; empty without one


def describe() -> Machine:
    """Return the facts about the machine, read from the running system."""
    fields = _cpu_fields(Path("/proc/cpuinfo"))
    flags = fields.get("flags", "").split()
    return Machine(
        cpu=fields.get("model name") or platform.processor() or platform.machine(),
        cpu_count=usable_cpus(),
        cpu_threads=wanted_threads(),
        cpu_features=tuple(name for name in FEATURES if name in flags),
        cpu_mhz=float(fields["cpu MHz"]) if "cpu MHz" in fields else None,
        vector_bits=VECTOR_BITS,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        packages=_installed(),
        gpus=_gpus(),
        gpu_driver=_driver_version(NVIDIA_DRIVER),
    )


def _cpu_fields(cpuinfo: Path) -> dict[str, str]:
    """Return what /proc/cpuinfo says of the first CPU, by field.

    The result is an empty dict where there is no such file.
    """
    if not cpuinfo.exists():
        return {}
    fields: dict[str, str] = {}
    for line in cpuinfo.read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields


def _driver_version(file: Path) -> str:
    """Return the version in the first line of the GPU driver's own file; empty if there is no such file."""
    try:
        first = file.read_text().partition("\n")[0]
    except OSError:
        return ""
    found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", first)
    return found[0] if found else ""


def _gpus() -> tuple[str, ...]:
    try:
        found = devices()
    except BackendUnavailableError:
        return ()
    return tuple(
        f"{device.name}, {device.sm_count} SMs, up to {device.clock_mhz:.0f} MHz, "
        f"compute capability {device.capability}; variants "
        + ", ".join(device.variant(module).name for module in MODULE_SOURCES)
        for device in found
    )


def _installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
