"""Remove the raw bytes of transactions that are older than the user wants to keep.

With `keep_bodies = "all"` they are most of a dataset. Only the table `mempool_bodies` loses days; no other
table refers to its rows.
"""

import datetime as dt
import shutil
from collections.abc import Iterator
from typing import Final

from collector.compaction.replacement import open_replacements
from collector.compaction.run import closed_folders
from collector.dataset.files import sync_folder
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_BODIES
from collector.errors import DatasetError

# A clock that is wrong for a while, as after a boot without a network, has few days of records before it.
RECENT: Final = dt.timedelta(days=4)
LEAST_DAYS: Final = 3


def doubt_of_clock(dataset: Dataset, today: dt.date) -> str:
    """Return why `today` may be wrong, so that nothing should be removed by age; empty if nothing says so.

    A collector that runs records each day. Days that lie long before `today` say that the collector was off,
    or that the clock is ahead; in that case every day would count as old.
    """
    first, last = f"date={today - RECENT}", f"date={today}"
    recent = {path.name for path in dataset.folder.glob("*/date=*") if first <= path.name <= last}
    if len(recent) >= LEAST_DAYS:
        return ""
    return (
        f"no raw bytes were removed: the clock says {today}, and the dataset records fewer than {LEAST_DAYS} "
        f"of this day and the {RECENT.days} before; set the clock if it is wrong. If it is right, they go "
        f"once a collector has recorded {LEAST_DAYS} days"
    )


def remove_bodies(dataset: Dataset, first_day: dt.date) -> Iterator[str]:
    """Remove the days of `mempool_bodies` before `first_day`; yield the name of each removed partition.

    A reader sees a day whole or not at all. Raises DatasetError while another `compact` or `mend` runs, and
    for a day that cannot be removed.
    """
    with open_replacements(dataset) as replacements:
        for folder in closed_folders(dataset, MEMPOOL_BODIES, first_day):
            removed = replacements.work / f"{MEMPOOL_BODIES.name}-{folder.name}"
            try:
                with dataset.replace_lock():
                    # The last day takes the table's folder with it, in one step: an upload takes an empty one
                    # for a disk that is not mounted.
                    table = folder.parent
                    is_last = not table.is_symlink() and list(table.iterdir()) == [folder]
                    gone = table if is_last else folder
                    gone.rename(removed)
                    sync_folder(gone.parent)
                shutil.rmtree(removed)
            except OSError as error:
                raise DatasetError(
                    f"cannot remove {folder}: {error.strerror or error}; it must be on the disk of "
                    f"{replacements.work}, and this user must be able to write both"
                ) from None
            yield f"{MEMPOOL_BODIES.name}/{folder.name}"
