"""Run a backfill from block files or from a node: find the blocks, cut them into units, and store them."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from collector.backfill.blockfiles import BlockFolder, Debris
from collector.backfill.catalogue import Catalogue, read_catalogue
from collector.backfill.file_work import FileWork, copy_units, cut_units, debris_ref
from collector.backfill.headertree import NO_PARENT, UNKNOWN_HEIGHT
from collector.backfill.late_fees import Store, fill_fees
from collector.backfill.node_work import (
    MOST_LISTED,
    NodeWork,
    blocks_unknown_to_node,
    check_chain,
    connect,
    cut_node_units,
    select_tasks,
)
from collector.backfill.progress import ProgressView
from collector.backfill.report import Report
from collector.backfill.selection import BlockSelection, missing_heights
from collector.backfill.store import Rejects, WorkResult
from collector.backfill.workers import LOCAL, Workers, open_pool
from collector.codec.arrays import Integers
from collector.codec.chunk import RejectedBlock
from collector.codec.verify import backend_name
from collector.compaction.mend import blocks_without_fees
from collector.dataset.open import Dataset
from collector.dataset.schema import hash_hex
from collector.errors import DatasetError
from collector.journal.present_blocks import (
    PresentBlocks,
    blocks_without_transactions,
    remove_orphaned_transactions,
    running_collector_tip,
)
from collector.node.access import Access

MAX_DEBRIS_BYTES: Final = 4_000_000  # `rejects` keeps so much of bytes that are not a block
MAX_HELD_BYTES: Final = 32_000_000  # of such bytes in memory at a time


def from_files(
    folder: BlockFolder,
    dataset: Dataset,
    selection: BlockSelection,
    *,
    workers: int,
    progress: ProgressView,
    access: Access | None = None,
    engine: str = LOCAL,
) -> Report:
    """Write those selected blocks of a folder of block files that the dataset lacks; return a Report.

    With `access`, a node is asked whether it has the same chain, and for fees where undo data lack.
    The work is done by `workers` processes here, or by the Spark cluster that `engine` names.
    """
    report = Report(chain=folder.chain, source=str(folder.path), workers=workers, verified_by=backend_name())
    with dataset.backfill_lock(), open_pool(workers, engine) as pool:
        report.workers = pool.count
        _remove_leftovers(dataset)
        begun_s = time.monotonic()
        catalogue = read_catalogue(folder, progress.scanned)
        present = PresentBlocks(dataset)
        present.refresh()
        wanted = _select(catalogue, dataset, selection, report)
        _describe(catalogue, wanted, selection, report)
        bare = blocks_without_transactions(dataset)
        missing = [int(i) for i in wanted if (of_i := _hash(catalogue, i)) not in present or of_i in bare]
        report.n_present_before = len(wanted) - len(missing)
        late = _positions_without_fees(catalogue, folder, dataset, wanted, is_node_asked=access is not None)
        if access is not None:
            _compare_with_node(catalogue, access, report)
        rejects = Rejects(dataset)
        _reject_debris(folder, catalogue.debris, rejects, report.result)
        pool.wait_until_ready()
        report.scan_s = time.monotonic() - begun_s
        begun_s = time.monotonic()
        progress.begin(int(catalogue.sizes_bytes[missing].sum()))
        work = FileWork(folder.path, dataset.root, dataset.chain, time.time_ns(), access)
        units = cut_units(catalogue, folder, missing, pool.count, bare=bare)
        _collect_results(pool.run(work, units), rejects, report, progress)
        # The files may hold a sound copy of a block that was rejected.
        broken = {each.ref.block_hash for each in report.result.rejected}
        again = [i for i in missing if _hash(catalogue, i) in broken and i in catalogue.copies]
        units = copy_units(catalogue, folder, again, bare=bare)
        _collect_results(pool.run(work, units), rejects, report, progress)
        units = cut_units(catalogue, folder, late, pool.count)
        into = partial(_work_into, pool, work, units)
        _fill_late_fees(dataset, len(late), into, report)
        report.work_s = time.monotonic() - begun_s
    return report


def from_node(
    access: Access,
    dataset: Dataset,
    selection: BlockSelection,
    *,
    workers: int,
    progress: ProgressView,
    engine: str = LOCAL,
) -> Report:
    """Write those selected blocks of a node's chain that the dataset lacks; return a Report.

    The work is done by `workers` processes here, or by the Spark cluster that `engine` names.
    """
    client = connect(access)
    report = Report(chain=dataset.chain, source=client.url, workers=workers, verified_by=backend_name())
    report.tip_height, tip_hash = check_chain(client, dataset.chain)
    report.tip_hash = hash_hex(tip_hash)
    with dataset.backfill_lock(), open_pool(workers, engine) as pool:
        report.workers = pool.count
        _remove_leftovers(dataset)
        begun_s = time.monotonic()
        present = PresentBlocks(dataset)
        present.refresh()
        tasks = list(select_tasks(client, selection, report.tip_height))
        report.n_found, report.n_wanted = report.tip_height + 1, len(tasks)
        if selection.last_height is not None and selection.last_height > report.tip_height:
            above = max(report.tip_height + 1, selection.first_height or 0)
            report.missing_heights = [(above, selection.last_height)]
        collector_height = running_collector_tip(dataset)
        ours = [task for task in tasks if collector_height is None or task.height <= collector_height]
        report.n_left_to_collector = len(tasks) - len(ours)
        bare = blocks_without_transactions(dataset)
        todo = [task for task in ours if task.block_hash not in present]
        todo += [task._replace(is_row_stored=True) for task in ours if task.block_hash in bare]
        todo.sort()
        lacking = blocks_without_fees(dataset)
        late = [task for task in ours if task.block_hash in lacking]
        report.n_present_before = len(ours) - len(todo)
        rejects = Rejects(dataset)
        pool.wait_until_ready()
        report.scan_s = time.monotonic() - begun_s
        begun_s = time.monotonic()
        progress.begin(len(todo), unit="blocks")
        work = NodeWork(access, dataset.root, dataset.chain)
        _collect_results(pool.run(work, cut_node_units(todo)), rejects, report, progress)
        into = partial(_work_into, pool, work, cut_node_units(late))
        _fill_late_fees(dataset, len(late), into, report)
        report.work_s = time.monotonic() - begun_s
    return report


def _work_into(
    pool: Workers, work: FileWork | NodeWork, units: Iterable[Any], target: Dataset
) -> Iterator[WorkResult]:
    """Run `work` on each unit, but let it write into the dataset `target`; yield the results."""
    return pool.run(replace(work, dataset_root=target.root), units)


def _hash(catalogue: Catalogue, position: Any) -> bytes:
    """Return the hash of the block at a position in the catalogue."""
    return bytes(catalogue.hashes[position])


def _remove_leftovers(dataset: Dataset) -> None:
    """Remove what killed runs left: unfinished files, and transactions of blocks that are not stored."""
    dataset.remove_unfinished_files()
    remove_orphaned_transactions(dataset, is_backfill=True)


def _positions_without_fees(
    catalogue: Catalogue, folder: BlockFolder, dataset: Dataset, wanted: Integers, *, is_node_asked: bool
) -> list[int]:
    """Return the positions of the wanted blocks that are stored without fees, where fees can be had now.

    Fees come from an undo file, or from a node if one is asked.
    """
    lacking = blocks_without_fees(dataset)
    return [
        int(i)
        for i in wanted
        if _hash(catalogue, i) in lacking
        and (is_node_asked or not folder.numbers["rev"].isdisjoint(catalogue.files_of(int(i))))
    ]


def _fill_late_fees(dataset: Dataset, n_lacking: int, store: Store, report: Report) -> None:
    """Fill the fees of stored blocks that lack them; write into the report how many, or why it failed."""
    report.n_lacked_fees = n_lacking
    if n_lacking:
        try:
            report.n_fees_filled = fill_fees(dataset, store)
        except DatasetError as error:
            report.fees_problem = str(error)


def _collect_results(
    results: Iterable[WorkResult], rejects: Rejects, report: Report, progress: ProgressView
) -> None:
    """Add the results of all units of work to the report, and rejected blocks to the table `rejects`."""
    for result in results:
        rejects.add(result.rejected)
        result.rejected = _without_bytes(result.rejected)
        report.result.add(result)
        progress.worked(report.result)


def _compare_with_node(catalogue: Catalogue, access: Access, report: Report) -> None:
    """Write into the report which blocks of our active chain are not in the node's chain."""
    client = connect(access)
    check_chain(client, report.chain)
    is_ours = catalogue.tree.is_active & (catalogue.heights != UNKNOWN_HEIGHT)
    active = {int(catalogue.heights[i]): catalogue.hashes[i].tobytes() for i in np.flatnonzero(is_ours)}
    report.unknown_to_node = blocks_unknown_to_node(client, active)


def _select(catalogue: Catalogue, dataset: Dataset, selection: BlockSelection, report: Report) -> Integers:
    """Return the positions in the catalogue of the selected blocks that no running collector writes.

    A running collector writes the blocks above the height at which it began. The report gets the number of
    selected blocks that are left to it.
    """
    wanted = selection.among(catalogue)
    tip_height = running_collector_tip(dataset)
    if tip_height is None:
        return wanted
    ours = wanted[catalogue.heights[wanted] <= tip_height]
    report.n_left_to_collector = len(wanted) - len(ours)
    return ours


def _describe(catalogue: Catalogue, wanted: Integers, selection: BlockSelection, report: Report) -> None:
    """Write into the report what the block files hold: the tip, stale blocks and missing heights."""
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
    report.missing_heights = missing_heights(catalogue, wanted, selection)


def _reject_debris(folder: BlockFolder, debris: list[Debris], rejects: Rejects, result: WorkResult) -> None:
    """Write bytes of block files that hold no block into the table `rejects`.

    The last record of a file to which a node may be adding is left out.
    """
    held: list[RejectedBlock] = []
    for each in debris:
        ref = debris_ref(folder, each)
        if each.is_last:
            result.unfinished.append(ref.origin)
            continue
        if not folder.is_there(each.file):  # pruned since it was listed
            continue
        body = folder.read(each.file, each.at, min(each.size_bytes, MAX_DEBRIS_BYTES))
        held.append(RejectedBlock(ref, f"{each.size_bytes} bytes that are not a block", body))
        if sum(len(rejected.body) for rejected in held) >= MAX_HELD_BYTES:
            rejects.add(held)
            result.rejected += _without_bytes(held)
            held = []
    rejects.add(held)
    result.rejected += _without_bytes(held)


def _without_bytes(rejected: list[RejectedBlock]) -> list[RejectedBlock]:
    """Return rejected blocks without their bytes, to free memory: the table `rejects` has them by now."""
    return [each._replace(body=b"") for each in rejected]


def default_report_path(root: Path, chain: str) -> Path:
    """Return the path of the report when the user names none: a file beside the tables."""
    return root / f"backfill-{chain}.json"
