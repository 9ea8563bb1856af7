"""List the variants of each kernel, and choose the one for a device.

An NVIDIA SM has two integer pipes of 64 lanes, ALU and FMA (see kernels/prelude.cuh). The plain variant
leaves the division of work to the compiler, which puts nearly everything on ALU; the others move
additions, shifts or rotations to FMA. How much each gains is in limits.py, from the machine code.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuhash.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to compile a module of kernels."""

    name: str
    module: str  # sha256 or keccak
    defines: Mapping[str, int]


VARIANTS = (
    Variant(name="plain", module="sha256", defines={}),
    Variant(name="adds", module="sha256", defines={"ADD_ON_FMA": 1}),
    Variant(name="adds-shifts", module="sha256", defines={"ADD_ON_FMA": 1, "SHIFT_ON_FMA": 1}),
    Variant(name="plain", module="keccak", defines={}),
    # The five rotations of theta, then nine of rho besides. Nine keep FMA below ALU even where the high
    # half of a product takes four slots.
    Variant(name="theta", module="keccak", defines={"FMA_ROTATIONS": 0x3E000000}),
    Variant(name="theta-rho", module="keccak", defines={"FMA_ROTATIONS": 0x3E0003FF}),
)

# For devices with two pipes. "adds" and "theta-rho" win in the model whatever the high
# half of a product costs, which no vendor document says; "adds-shifts" would need it in two slots.
CHOSEN = {"sha256": "adds", "keccak": "theta-rho"}
FIRST_WITH_TWO_PIPES = 75  # Turing; before it a product of 32 bits is not one instruction


def variant(module: str, name: str) -> Variant:
    """Return a variant by name, or raise InvalidInputError with those there are."""
    for candidate in VARIANTS:
        if candidate.module == module and candidate.name == name:
            return candidate
    names = ", ".join(candidate.name for candidate in VARIANTS if candidate.module == module)
    raise InvalidInputError(f"there is no variant {name!r} of {module}; choose one of {names}")


def chosen(module: str, compute_capability: str) -> Variant:
    """Return the variant for a device.

    compute_capability is as CuPy gives it: "90" for 9.0, or a name like "gfx90a" on AMD, where the pipes
    differ and the compiler decides.
    """
    two_pipes = compute_capability.isdigit() and int(compute_capability) >= FIRST_WITH_TWO_PIPES
    return variant(module, CHOSEN[module] if two_pipes else "plain")
