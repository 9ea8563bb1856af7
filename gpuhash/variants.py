"""List the variants of each kernel, and choose the one for a device.

An NVIDIA SM has two integer pipes of 64 lanes, ALU and FMA (see kernels/prelude.cuh). In the plain variant
the compiler divides the work, and it puts nearly everything on ALU. The variant "adds" of SHA-256 moves
additions to FMA. Keccak has no additions. `gpuhash limits` prints the gain, computed from the machine code.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuhash.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Describes one way to compile a module of GPU kernels: its name and the macros to define."""

    name: str
    module: str  # sha256 or keccak
    defines: Mapping[str, int]


VARIANTS = (
    Variant(name="plain", module="sha256", defines={}),
    Variant(name="adds", module="sha256", defines={"ADD_ON_FMA": 1}),
    Variant(name="plain", module="keccak", defines={}),
)

CHOSEN = {"sha256": "adds", "keccak": "plain"}  # for devices with two pipes
FIRST_WITH_TWO_PIPES = 75  # Turing; on older devices a product of 32 bits takes several instructions


def variant(module: str, name: str) -> Variant:
    """Return the variant of a module of kernels with this name; InvalidInputError if there is none."""
    for candidate in VARIANTS:
        if candidate.module == module and candidate.name == name:
            return candidate
    names = ", ".join(candidate.name for candidate in VARIANTS if candidate.module == module)
    raise InvalidInputError(f"there is no variant {name!r} of {module}; choose one of {names}")


def chosen(module: str, compute_capability: str) -> Variant:
    """Return the variant of a module of kernels that a GPU should use.

    `compute_capability` is written as CuPy gives it: "90" for 9.0, or a name like "gfx90a" on AMD. AMD's
    pipes differ, so AMD devices use the plain variant.
    """
    two_pipes = compute_capability.isdigit() and int(compute_capability) >= FIRST_WITH_TWO_PIPES
    return variant(module, CHOSEN[module] if two_pipes else "plain")
