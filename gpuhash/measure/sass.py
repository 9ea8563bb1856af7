"""Count the machine instructions of a kernel by the GPU pipe that they occupy.

nvdisasm (from the CUDA toolkit, or nvidia-cuda-nvdisasm from PyPI) turns a cubin into text. The instructions
of the kernel's longest loop are those of one hash, if the kernel was compiled with all inner loops unrolled.
"""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpuhash.errors import BackendUnavailableError
from gpuhash.measure.nvrtc import wheel_files

ALU = frozenset(
    # Arithmetic, shifts and moves, then logic, comparisons and predicates.
    ["IADD", "IADD3", "VIADD", "LEA", "SHF", "SHL", "SHR", "PRMT", "SGXT", "BMSK", "FLO", "POPC", "MOV"]
) | {"LOP3", "PLOP3", "ISETP", "SEL", "IABS", "IMNMX", "VIMNMX", "VIADDMNMX", "P2R", "R2P", "CS2R"}
FMA = frozenset(("IMAD", "FFMA", "FADD", "FMUL", "IDP", "HFMA2"))
LOCAL = frozenset(("LDL", "STL"))
# The high half of a product holds FMA for two clocks (tests/gpuhash/bench_pipes.py). It also keeps ALU from
# starting for one, which is not counted: a hash has at most a few of them.
WIDE_SLOTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """Holds how many instructions one GPU thread executes per hash, by the pipe that they occupy."""

    alu: int  # on the ALU pipe
    fma: int  # slots on the FMA pipe; a wide or high product takes two
    total: int  # all that are issued, except on the uniform pipe, which runs in parallel
    local: int  # loads and stores of spilled registers
    reads: int  # registers read from the busier of the two banks, those of even or of odd number


def count(cubin: bytes, kernel: str) -> Instructions:
    """Return how many instructions the longest loop of a kernel has, by pipe; without a loop, the kernel.

    `cubin` is the machine code of the module that holds the kernel. The counts are of one thread and one turn
    of the loop. Raises BackendUnavailableError if nvdisasm is not installed or fails, KeyError if the module
    has no such kernel.
    """
    lines = [line for line in _longest_loop(_listing(cubin)[kernel]) if line[0] == "instruction"]
    names = [name for _kind, name, _operands in lines]
    opcodes = Counter(name.split(".")[0] for name in names)
    wide = sum(1 for name in names if name.startswith("IMAD.") and re.search(r"\.(HI|WIDE)\b", name))
    return Instructions(
        alu=sum(number for opcode, number in opcodes.items() if opcode in ALU),
        fma=sum(number for opcode, number in opcodes.items() if opcode in FMA) + wide * (WIDE_SLOTS - 1),
        total=sum(number for opcode, number in opcodes.items() if not _uniform(opcode)),
        local=sum(opcodes[opcode] for opcode in LOCAL),
        reads=max(
            _bank_reads(operands for _kind, name, operands in lines if not _uniform(name.split(".")[0]))
        ),
    )


def _bank_reads(instructions: Iterable[str]) -> tuple[int, int]:
    """Return how many registers the instructions read from the even and from the odd bank.

    An instruction is given by its operands, of which the first, the result, is left out, also where it is the
    address of a store. A register named twice is read once, and of a pair only the first counts. The operand
    cache (.reuse) is left out: it holds a register only until another warp issues.
    """
    banks = Counter[int]()
    for operands in instructions:
        sources = operands.partition(",")[2]
        banks.update(int(number) % 2 for number in set(re.findall(r"\bR(\d+)", sources)))
    return banks[0], banks[1]


def tables(cubin: bytes, kernel: str) -> Counter[int]:
    """Return how often each truth table occurs among a kernel's LOP3 (three-input logic) instructions."""
    found: Counter[int] = Counter()
    for kind, name, rest in _listing(cubin)[kernel]:
        match = re.search(r"0x([0-9a-f]+), !PT", rest)
        if kind == "instruction" and name.startswith("LOP3") and match:
            found[int(match[1], 16)] += 1
    return found


def _uniform(opcode: str) -> bool:
    return opcode.startswith("U") or opcode == "R2UR"


@lru_cache(maxsize=4)
def _listing(cubin: bytes) -> dict[str, list[tuple[str, str, str]]]:
    """Disassemble a module; map each kernel to (kind, name, operands) of its labels and instructions."""
    kernels: dict[str, list[tuple[str, str, str]]] = {}
    current: list[tuple[str, str, str]] = []
    for line in _disassemble(cubin).splitlines():
        if match := re.match(r"\.text\.(\S+):", line):
            current = kernels.setdefault(match[1], [])
        elif match := re.match(r"(\.L_\S+):", line):
            current.append(("label", match[1], ""))
        elif match := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(\S+?)(?:\s+(.*?))?\s*;", line):
            current.append(("instruction", match[1], match[2] or ""))
    return kernels


def _longest_loop(lines: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return the lines of the longest loop: from its label to the branch that jumps back to it.

    Without a loop, all lines up to the last exit are returned. Behind it the compiler puts an instruction
    that jumps to itself, which no thread reaches; it is no loop.
    """
    labels: dict[str, int] = {}
    exits = [index for index, (_kind, name, _rest) in enumerate(lines) if name == "EXIT"]
    best = (0, max(exits, default=len(lines) - 1))
    longest = 1
    for index, (kind, name, rest) in enumerate(lines):
        if kind == "label":
            labels[name] = index
        elif name.startswith("BRA") and (match := re.search(r"`\((\.L_\S+?)\)", rest)) and match[1] in labels:
            first = labels[match[1]]
            if index - first > longest:
                best, longest = (first, index), index - first
    return lines[best[0] : best[1] + 1]


def _disassemble(cubin: bytes) -> str:
    """Return what nvdisasm prints for a cubin; raise BackendUnavailableError if it is missing or fails."""
    tool = shutil.which("nvdisasm") or next(map(str, reversed(wheel_files("bin/nvdisasm"))), None)
    if tool is None:
        raise BackendUnavailableError("nvdisasm is not installed; pip install nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.cubin"
        file.write_bytes(cubin)
        command = [tool, "-c", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the tool found above
    if done.returncode:
        raise BackendUnavailableError(f"nvdisasm failed: {done.stderr.strip()}")
    return done.stdout
