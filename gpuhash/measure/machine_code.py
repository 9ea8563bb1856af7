"""Compile every kernel variant for every GPU architecture and count its instructions."""

from collections.abc import Iterable, Iterator
from dataclasses import astuple

from gpuhash.measure import nvrtc, sass
from gpuhash.measure.limits import Limit
from gpuhash.variants import VARIANTS, Variant

# Kernels of which one hash is the longest loop, or all of the kernel if no loop is left after unroll_all.
ONE_HASH = {"sha256": ("search", "merkle_nodes"), "keccak": ("hash_64_bytes",)}
HEADER = "architecture,module,variant,kernel,alu,fma,total,local,reads"


def recount(
    architectures: Iterable[str] = nvrtc.ARCHITECTURES, variants: Iterable[Variant] = VARIANTS
) -> Iterator[Limit]:
    """Compile each kernel variant for each GPU architecture; yield the instruction counts of each kernel.

    A Limit holds the counts and computes from them how many clocks a hash takes. This needs NVRTC and
    nvdisasm but no GPU. Raises BackendUnavailableError if one of them is missing.
    """
    chosen = tuple(variants)
    for architecture in architectures:
        for variant in chosen:
            compiled = nvrtc.compile_variant(variant, architecture, unroll_all=True)
            for kernel in ONE_HASH[variant.module]:
                yield Limit(
                    architecture=architecture,
                    module=variant.module,
                    variant=variant.name,
                    kernel=kernel,
                    instructions=sass.count(compiled.cubin, kernel),
                )


def csv_line(limit: Limit) -> str:
    """Return a kernel's instruction counts as a line of kernels/instructions.csv."""
    names = (limit.architecture, limit.module, limit.variant, limit.kernel)
    return ",".join([*names, *map(str, astuple(limit.instructions))])
