"""Wait until the collector has sealed more files into a dataset, so that a build follows each seal."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from analysis.raw_contents import file_stamps
from analysis.raw_views import open_dataset

LOOK_S: Final = 2.0


def changes(dataset: Path, chain: str | None, wait: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Yield once at the beginning, and then each time the files of the dataset have changed.

    While they have not, it calls `wait(LOOK_S)` (seconds) and looks again. Raises DatasetError where the
    folder is no dataset.
    """
    seen = None
    while True:
        opened = open_dataset(dataset, chain)
        with opened.read_lock():
            found = file_stamps(opened)
        if found != seen:
            seen = found
            yield
        else:
            wait(LOOK_S)
