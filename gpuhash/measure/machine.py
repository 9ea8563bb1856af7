"""Describe this machine, so that a measurement can say what it was made on."""

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from gpuhash.cuda_device import devices
from gpuhash.errors import BackendUnavailableError
from gpuhash.kernel_calls import MODULE_SOURCES
from gpuhash.sharing import usable_cpus, wanted_threads

PACKAGES = ("numpy", "numba", "llvmlite", "pycryptodome", "cupy-cuda13x", "cupy-cuda12x", "nvidia-ml-py")
# The CPU features that decide how fast the hashes here can be.
FEATURES = ("avx2", "avx512f", "avx512vl", "sha_ni")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts about the machine, as strings that the system reports."""

    cpu: str
    cpu_count: int  # logical CPUs this process may use
    cpu_threads: int  # threads of the cpu backend
    cpu_features: tuple[str, ...]
    memory_bytes: int
    system: str
    python: str
    packages: dict[str, str]  # installed version by package name
    gpus: tuple[str, ...]  # name, size and chosen variants of each, in CuPy's order


def describe() -> Machine:
    """Read the facts about the machine from the running system."""
    model, flags = _cpu_model_and_flags(Path("/proc/cpuinfo"))
    return Machine(
        cpu=model or platform.processor() or platform.machine(),
        cpu_count=usable_cpus(),
        cpu_threads=wanted_threads(),
        cpu_features=tuple(name for name in FEATURES if name in flags),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        packages=_installed(),
        gpus=_gpus(),
    )


def _cpu_model_and_flags(cpuinfo: Path) -> tuple[str, frozenset[str]]:
    if not cpuinfo.exists():
        return "", frozenset()
    fields: dict[str, str] = {}
    for line in cpuinfo.read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields.get("model name", ""), frozenset(fields.get("flags", "").split())


def _gpus() -> tuple[str, ...]:
    try:
        found = devices()
    except BackendUnavailableError:
        return ()
    return tuple(
        f"{device.name}, {device.sm_count} SMs, compute capability {device.capability}; variants "
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
