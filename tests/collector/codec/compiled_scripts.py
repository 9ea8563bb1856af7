"""Ask the compiled code for the types of scripts, for tests."""

from collections.abc import Sequence

import numpy as np

import gpuhash
from collector.codec.scripts import output_types
from collector.dataset.schema import OUTPUT_TYPES


def output_types_of(scripts: Sequence[bytes]) -> list[str]:
    """Return the type of each script, as a row has it."""
    data, limits = gpuhash.join(scripts)
    numbers = output_types(data, np.column_stack((limits[:-1], limits[1:])))
    return [OUTPUT_TYPES[number] for number in numbers]
