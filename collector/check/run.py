"""Run all checks of a dataset: first those of each file, then queries over the files that can be read."""

from collections.abc import Callable
from typing import Final

from collector.check.chain import check_arrivals, check_heights, check_parents, check_verdicts
from collector.check.cross_table import (
    check_block_fees,
    check_copies,
    check_fees,
    check_sessions,
    check_sources,
    check_templates,
    check_transactions,
)
from collector.check.dataset_view import DatasetView, list_files, open_dataset_view, retry_while_files_move
from collector.check.duplicate_rows import check_grain
from collector.check.events import check_moments, check_pulled, check_rawblocks, check_reasons, check_tips
from collector.check.files import FileChecks, check_files
from collector.check.hashes import check_bodies, check_hashes, check_subsidies
from collector.check.leftovers import check_leftovers
from collector.check.model import CheckResult
from collector.check.ranges import check_ranges
from collector.check.stream import check_first_seen, check_intervals, check_messages, check_numbers
from collector.dataset.open import Dataset
from collector.dataset.query import query_engine
from collector.dataset.temporary_folders import temporary_folder

SMALL_BYTES: Final = 2_000_000  # of the files of a table that a hundred queries need not open again
CHECKS: Final[tuple[Callable[[DatasetView], CheckResult], ...]] = (
    check_grain,
    check_ranges,
    check_transactions,
    check_heights,
    check_parents,
    check_verdicts,
    check_hashes,
    check_bodies,
    check_subsidies,
    check_arrivals,
    check_sessions,
    check_templates,
    check_copies,
    check_fees,
    check_block_fees,
    check_sources,
    check_intervals,
    check_messages,
    check_numbers,
    check_first_seen,
    check_moments,
    check_tips,
    check_reasons,
    check_rawblocks,
    check_pulled,
    check_leftovers,
)


def check(dataset: Dataset, progress: Callable[[str], None] = lambda _: None) -> list[CheckResult]:
    """Run every check on a dataset and return the results; nothing is changed.

    `progress` gets a line before each step. Raises DatasetError when the files change faster than they can be
    read.
    """
    return retry_while_files_move(dataset, lambda: _check_once(dataset, progress))


def _check_once(dataset: Dataset, progress: Callable[[str], None]) -> list[CheckResult]:
    progress("listing files")
    files = list_files(dataset)
    with (
        temporary_folder("pool-collector-check-") as spill,
        query_engine(spill) as connection,
    ):
        by_file = FileChecks(connection)
        readable = check_files(files, by_file, progress)
        view = open_dataset_view(dataset, files, readable, connection, SMALL_BYTES)
        results = by_file.results
        for number, each in enumerate(CHECKS, start=1):
            progress(f"tables, {number} of {len(CHECKS)}: {each.__name__.removeprefix('check_')}")
            results.append(each(view))
    return results
