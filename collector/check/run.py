"""Check a dataset: the files first, then what DuckDB finds over those that are sound."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from collector.check.chain import check_arrivals, check_heights, check_parents, check_verdicts
from collector.check.events import check_bodies, check_moments, check_pulled, check_reasons, check_tips
from collector.check.files import FileChecks, check_files
from collector.check.grain import check_grain
from collector.check.hashes import check_hashes, check_subsidies
from collector.check.leftovers import check_leftovers
from collector.check.links import (
    check_copies,
    check_sessions,
    check_sources,
    check_templates,
    check_transactions,
)
from collector.check.model import Outcome
from collector.check.ranges import check_ranges
from collector.check.stream import check_first_seen, check_intervals, check_messages, check_numbers
from collector.check.view import View, open_view, retrying, take_files
from collector.dataset.open import Dataset
from collector.dataset.query import query_engine

CHECKS: Final[tuple[Callable[[View], Outcome], ...]] = (
    check_grain,
    check_ranges,
    check_transactions,
    check_heights,
    check_parents,
    check_verdicts,
    check_hashes,
    check_subsidies,
    check_arrivals,
    check_sessions,
    check_templates,
    check_copies,
    check_sources,
    check_intervals,
    check_messages,
    check_numbers,
    check_first_seen,
    check_moments,
    check_tips,
    check_reasons,
    check_bodies,
    check_pulled,
    check_leftovers,
)


def check(dataset: Dataset, told: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """Check everything; `told` hears what is done. Changes nothing in the dataset.

    Raises DatasetError when the files change faster than they can be read.
    """
    return retrying(dataset, lambda: _check_once(dataset, told))


def _check_once(dataset: Dataset, told: Callable[[str], None]) -> list[Outcome]:
    told("files")
    files = take_files(dataset)
    with (
        tempfile.TemporaryDirectory(prefix="pool-collector-check-") as spill,
        query_engine(Path(spill)) as connection,
    ):
        by_file = FileChecks(connection)
        sound = check_files(files.by_table, by_file)
        view = open_view(dataset, files, sound, connection)
        outcomes = by_file.outcomes
        for each in CHECKS:
            told(each.__name__.removeprefix("check_"))
            outcomes.append(each(view))
    return outcomes
