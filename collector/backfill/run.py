"""Backfill from block files or from a node: take stock, cut into units, let workers do them, report."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from collector.backfill.blockfiles import Debris, Folder
from collector.backfill.catalogue import Catalogue, take_stock
from collector.backfill.headertree import NO_PARENT, UNKNOWN_HEIGHT
from collector.backfill.node import NodeWork, cut_tasks, wanted_tasks
from collector.backfill.node_fees import MOST_LISTED, check_chain, connect, foreign_blocks
from collector.backfill.progress import Watcher
from collector.backfill.report import Report
from collector.backfill.store import Rejects
from collector.backfill.units import Wish, cut, cut_copies, debris_place, missing_heights
from collector.backfill.work import Done, FileWork
from collector.backfill.worker_pool import open_pool
from collector.codec.arrays import Integers
from collector.codec.chunk import Bad
from collector.codec.verify import backend_name
from collector.dataset.open import Dataset
from collector.dataset.schema import hash_hex
from collector.journal.present_blocks import (
    PresentBlocks,
    remove_orphaned_transactions,
    running_collector_tip,
)
from collector.node.access import Access

MAX_DEBRIS_BYTES: Final = 4_000_000  # of bytes that are no record, so much is kept in `rejects`


def from_files(
    folder: Folder,
    dataset: Dataset,
    wish: Wish,
    *,
    workers: int,
    watcher: Watcher,
    access: Access | None = None,
) -> Report:
    """Write the wanted blocks of a folder that the dataset lacks; returns what was done.

    A node, where one is given, is asked whether it has the same chain, and for the fees of blocks without
    undo data.
    """
    report = Report(chain=folder.chain, source=str(folder.path), workers=workers, verified_by=backend_name())
    with dataset.backfill_lock(), open_pool(workers) as pool:
        remove_orphaned_transactions(dataset)
        begun_s = time.monotonic()
        catalogue = take_stock(folder, watcher.scanned)
        present = PresentBlocks(dataset)
        present.refresh()
        wanted = _wanted(catalogue, dataset, wish, report)
        _describe(catalogue, wanted, wish, report)
        missing = [int(i) for i in wanted if catalogue.hashes[i].tobytes() not in present]
        report.n_present_before = len(wanted) - len(missing)
        if access is not None:
            _check(catalogue, access, report)
        rejects = Rejects(dataset)
        _name_debris(folder, catalogue.debris, rejects, report.done)
        pool.wait_until_ready()
        report.scan_s = time.monotonic() - begun_s
        begun_s = time.monotonic()
        watcher.begin(int(catalogue.sizes_bytes[missing].sum()))
        work = FileWork(folder.path, dataset.root, dataset.chain, time.time_ns(), access)
        _take_in(pool.run(work, cut(catalogue, folder, missing, workers)), rejects, report, watcher)
        # Of a block that is broken there may be a sound copy.
        broken = {bad.place.block_hash for bad in report.done.bad}
        again = [i for i in missing if catalogue.hashes[i].tobytes() in broken and i in catalogue.copies]
        _take_in(pool.run(work, cut_copies(catalogue, folder, again)), rejects, report, watcher)
        report.work_s = time.monotonic() - begun_s
    return report


def from_node(access: Access, dataset: Dataset, wish: Wish, *, workers: int, watcher: Watcher) -> Report:
    """Write the wanted blocks of a node's chain that the dataset lacks; returns what was done."""
    client = connect(access)
    report = Report(chain=dataset.chain, source=client.url, workers=workers, verified_by=backend_name())
    report.tip_height, tip_hash = check_chain(client, dataset.chain)
    report.tip_hash = hash_hex(tip_hash)
    with dataset.backfill_lock(), open_pool(workers) as pool:
        remove_orphaned_transactions(dataset)
        begun_s = time.monotonic()
        present = PresentBlocks(dataset)
        present.refresh()
        tasks = list(wanted_tasks(client, wish, report.tip_height))
        report.n_found, report.n_wanted = report.tip_height + 1, len(tasks)
        if wish.last_height is not None and wish.last_height > report.tip_height:
            above = max(report.tip_height + 1, wish.first_height or 0)
            report.missing_heights = [(above, wish.last_height)]
        live_height = running_collector_tip(dataset)
        ours = [task for task in tasks if live_height is None or task.height <= live_height]
        report.n_left_to_live = len(tasks) - len(ours)
        todo = [task for task in ours if task.block_hash not in present]
        report.n_present_before = len(ours) - len(todo)
        rejects = Rejects(dataset)
        pool.wait_until_ready()
        report.scan_s = time.monotonic() - begun_s
        begun_s = time.monotonic()
        watcher.begin(len(todo), unit="blocks")
        work = NodeWork(access, dataset.root, dataset.chain)
        _take_in(pool.run(work, cut_tasks(todo)), rejects, report, watcher)
        report.work_s = time.monotonic() - begun_s
    return report


def _take_in(results: Iterable[Done], rejects: Rejects, report: Report, watcher: Watcher) -> None:
    """Add what came of units to the report, and what is bad to `rejects`."""
    for done in results:
        rejects.add(done.bad)
        done.bad = [bad._replace(body=b"") for bad in done.bad]  # they are stored, and may be large
        report.done.add(done)
        watcher.worked(report.done)


def _check(catalogue: Catalogue, access: Access, report: Report) -> None:
    """Compare our active branch with the node's chain."""
    client = connect(access)
    check_chain(client, report.chain)
    is_ours = catalogue.tree.is_active & (catalogue.heights != UNKNOWN_HEIGHT)
    active = {int(catalogue.heights[i]): catalogue.hashes[i].tobytes() for i in np.flatnonzero(is_ours)}
    report.unknown_to_node = foreign_blocks(client, active)


def _wanted(catalogue: Catalogue, dataset: Dataset, wish: Wish, report: Report) -> Integers:
    """Positions of the blocks to write, less those that are left to a live collector."""
    wanted = wish.among(catalogue)
    tip_height = running_collector_tip(dataset)
    if tip_height is None:
        return wanted
    ours = wanted[catalogue.heights[wanted] <= tip_height]
    report.n_left_to_live = len(wanted) - len(ours)
    return ours


def _describe(catalogue: Catalogue, wanted: Integers, wish: Wish, report: Report) -> None:
    tip = catalogue.tree.tip
    if tip != NO_PARENT:
        report.tip_height = int(catalogue.heights[tip])
        report.tip_hash = hash_hex(catalogue.hashes[tip].tobytes())
    report.n_found, report.n_repeated = len(catalogue.hashes), sum(map(len, catalogue.copies.values()))
    has_height = catalogue.heights != UNKNOWN_HEIGHT
    report.n_stale = int(np.sum(has_height & ~catalogue.tree.is_active))
    report.n_without_height = int(np.sum(~has_height))
    first = np.flatnonzero(~has_height)[:MOST_LISTED]
    report.without_height = [hash_hex(catalogue.hashes[i].tobytes()) for i in first]
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
    done.bad = [bad._replace(body=b"") for bad in done.bad]


def default_report_path(root: Path, chain: str) -> Path:
    """Where the report of the last run is put unless told otherwise: beside the tables."""
    return root / f"backfill-{chain}.json"
