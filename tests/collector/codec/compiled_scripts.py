"""Ask the compiled code for the types of scripts, for tests."""

from collections.abc import Sequence
from itertools import pairwise

import gpuhash
from collector.codec.scripts import output_type
from collector.dataset.schema import OUTPUT_TYPES


def output_types_of(scripts: Sequence[bytes]) -> list[str]:
    """Return the type of each script, as a row has it."""
    data, limits = gpuhash.join(scripts)
    return [OUTPUT_TYPES[output_type(data, *ends)] for ends in pairwise(limits.tolist())]
