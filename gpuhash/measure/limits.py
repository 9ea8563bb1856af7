"""Model the most hashes that a GPU can do, from the machine code and the width of the GPU's units.

A streaming multiprocessor (SM) of compute capability 7.5 and later starts, per clock, 64 lanes on the ALU
pipe, 64 on the FMA pipe, and 128 instructions altogether. It reads one register of 128 threads per clock from
each of two banks. A hash therefore takes at least

  cycles = max(ALU / 64, FMA / 64, all / 128, reads of the busier bank / 128)    per SM
  hashes/s = SMs * clock / cycles

The widths were measured on an H200 (tests/gpuhash/bench_pipes.py). kernels/instructions.csv holds the
instruction counts of the code that NVRTC makes of kernels/*.cu with all loops of rounds unrolled;
tests/gpuhash/measure/test_machine_code.py counts them again. The result is a model, never a measured speed.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from gpuhash.errors import InvalidInputError
from gpuhash.measure.sass import Instructions

FORMULA = "SMs * clock / max(ALU / 64, FMA / 64, all / 128, reads of the busier register bank / 128)"
LANES_PER_PIPE = 64
ISSUES_PER_CLOCK = 128
READS_PER_CLOCK = 128  # from one bank of registers


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Holds the instruction counts of one kernel variant on one GPU architecture.

    From them it computes the most hashes/s that the variant can do, and which resource of the GPU limits it.
    """

    architecture: str
    module: str
    variant: str
    kernel: str
    instructions: Instructions

    @property
    def busy_cycles(self) -> dict[str, float]:
        """The clocks per hash in which each resource of a multiprocessor is busy, by the resource's name."""
        return {
            "ALU": self.instructions.alu / LANES_PER_PIPE,
            "FMA": self.instructions.fma / LANES_PER_PIPE,
            "issue": self.instructions.total / ISSUES_PER_CLOCK,
            "registers": self.instructions.reads / READS_PER_CLOCK,
        }

    @property
    def cycles_per_hash(self) -> float:
        """The clocks that one multiprocessor needs per hash: those of its busiest resource."""
        return max(self.busy_cycles.values())

    @property
    def bound_by(self) -> str:
        """Return the name of the busiest resource: ALU, FMA, issue or registers."""
        return max(self.busy_cycles, key=lambda name: self.busy_cycles[name])

    def hashes_per_s(self, sm_count: int, clock_mhz: float) -> float:
        """Return the most hashes per second of a GPU with `sm_count` multiprocessors at a clock in MHz."""
        return sm_count * clock_mhz * 1e6 / self.cycles_per_hash


def for_architecture(architecture: str) -> list[Limit]:
    """Return the limits of every kernel and variant on a GPU architecture such as sm_90.

    Raises InvalidInputError if the instructions were never counted for this architecture.
    """
    limits = [limit for limit in counted() if limit.architecture == architecture]
    if not limits:
        known = ", ".join(dict.fromkeys(limit.architecture for limit in counted()))
        raise InvalidInputError(f"no instruction counts for {architecture}; there are {known}")
    return limits


def nearest(compute_capability: int) -> str:
    """Return the architecture whose instruction counts apply to a GPU: the newest that is not newer.

    `compute_capability` is without the point, 90 for 9.0. A GPU older than all counted ones gets the oldest.
    """
    known = sorted({int(limit.architecture.removeprefix("sm_")) for limit in counted()})
    return f"sm_{max((number for number in known if number <= compute_capability), default=known[0])}"


@cache
def counted() -> tuple[Limit, ...]:
    """Return the rows of kernels/instructions.csv (instruction counts of each kernel) as Limits."""
    text = (resources.files("gpuhash") / "kernels" / "instructions.csv").read_text()
    return tuple(
        Limit(
            architecture=row["architecture"],
            module=row["module"],
            variant=row["variant"],
            kernel=row["kernel"],
            instructions=Instructions(
                **{name: int(row[name]) for name in ("alu", "fma", "total", "local", "reads")}
            ),
        )
        for row in csv.DictReader(text.splitlines())
    )
