"""Backfill from block files: take stock, cut into units, let workers do them, report."""

import time
from pathlib import Path

import numpy as np
import structlog

from collector.backfill.blockfiles import Debris, Folder
from collector.backfill.catalogue import Catalogue, take_stock
from collector.backfill.chunk import Bad
from collector.backfill.compiled import Integers
from collector.backfill.headertree import NO_PARENT, UNKNOWN_HEIGHT
from collector.backfill.pool import open_pool
from collector.backfill.progress import Watcher
from collector.backfill.report import Report, tip_fields
from collector.backfill.store import Present, Rejects, live_tip, locked
from collector.backfill.units import Wish, cut, debris_place, missing_heights
from collector.backfill.work import Done, FileWork
from collector.verify import backend_name
from collector.writer import Dataset

MAX_DEBRIS_BYTES = 4_000_000  # of bytes that are no record, so much is kept in `rejects`

log = structlog.get_logger(__name__)


def from_files(folder: Folder, dataset: Dataset, wish: Wish, *, workers: int, watcher: Watcher) -> Report:
    """Write the wanted blocks of a folder that the dataset lacks; returns what was done."""
    report = Report(chain=folder.chain, source=str(folder.path), workers=workers, verified_by=backend_name())
    with locked(dataset), open_pool(workers) as pool:
        begun_s = time.monotonic()
        catalogue = take_stock(folder, watcher.scanned)
        present = Present(dataset)
        present.refresh()
        wanted = _wanted(catalogue, dataset, wish, report)
        _describe(catalogue, wanted, wish, report)
        report.n_present_before = sum(catalogue.hashes[i].tobytes() in present for i in wanted)
        rejects = Rejects(dataset)
        _name_debris(folder, catalogue.debris, rejects, report.done)
        pool.wait_until_ready()
        report.scan_s = time.monotonic() - begun_s
        begun_s = time.monotonic()
        watcher.begin(int(catalogue.sizes_bytes[wanted].sum()))
        work = FileWork(folder.path, dataset.root, dataset.chain)
        for done in pool.run(work, cut(catalogue, folder, wanted, present, workers)):
            rejects.add(done.bad)
            report.done.add(done)
            watcher.worked(report.done)
        report.work_s = time.monotonic() - begun_s
    return report


def _wanted(catalogue: Catalogue, dataset: Dataset, wish: Wish, report: Report) -> Integers:
    """Positions of the blocks to write, less those that are left to a live collector."""
    wanted = wish.among(catalogue)
    tip_height = live_tip(dataset)
    if tip_height is None:
        return wanted
    ours = wanted[catalogue.heights[wanted] <= tip_height]
    report.n_left_to_live = len(wanted) - len(ours)
    return ours


def _describe(catalogue: Catalogue, wanted: Integers, wish: Wish, report: Report) -> None:
    tip = catalogue.tree.tip
    if tip != NO_PARENT:
        fields = tip_fields(catalogue.hashes[tip].tobytes(), int(catalogue.heights[tip]))
        report.tip_height, report.tip_hash = fields["tip_height"], fields["tip_hash"]
    report.n_found, report.n_repeated = len(catalogue.hashes), catalogue.n_repeated
    has_height = catalogue.heights != UNKNOWN_HEIGHT
    report.n_stale = int(np.sum(has_height & ~catalogue.tree.is_active))
    report.n_without_height = int(np.sum(~has_height))
    report.n_wanted = len(wanted)
    report.missing_heights = missing_heights(catalogue, wanted, wish)


def _name_debris(folder: Folder, debris: list[Debris], rejects: Rejects, done: Done) -> None:
    """Put bytes that are no record into `rejects`, but for a last record that a node is writing."""
    for each in debris:
        place = debris_place(folder, each)
        if each.is_last:
            done.unfinished.append(place.origin)
            continue
        body = folder.read(each.file, each.at, min(each.size_bytes, MAX_DEBRIS_BYTES))
        done.bad.append(Bad(place, f"{each.size_bytes} bytes that are no block", body))
    rejects.add(done.bad)


def default_report_path(dataset: Dataset) -> Path:
    """Where the report of the last run is put unless told otherwise."""
    return dataset.root / f"backfill-{dataset.chain}.json"
