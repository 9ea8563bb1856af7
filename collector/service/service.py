"""Run the live collector: follow every node of the settings at once and write into one dataset.

Each node has its own threads (one receives, one makes rows, some send requests) and its own journal, so that
a node that fails delays no other. The nodes share the dataset, to which each adds files with its own names,
and the set of stored blocks, so that each block is stored once.
"""

import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial

import structlog

from collector.blocks.stored import read_stored_blocks
from collector.compaction.daily import Compactor
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.errors import CollectorError, NodeRefused, NodeUnavailable
from collector.journal.segment import Segment, journal_folder, journal_folders
from collector.monitor.health import Health
from collector.monitor.live_rows import LiveRows
from collector.monitor.metrics import Metrics
from collector.monitor.systemd import Notifier
from collector.node.preflight import refuse_shared_publishers
from collector.service.memory import (
    collect_garbage_seldom,
    limit_freed_memory,
    load_compiled_loops,
)
from collector.service.node_watch import NodeWatch, PreparedNode, prepare_node
from collector.upload.follow import Uploader

log = structlog.get_logger(__name__)


def run(settings: Settings, stop: threading.Event) -> int:
    """Record all nodes until `stop`; return 0 when all that was received is in Parquet or in the journal.

    Raises CollectorError, with nothing written, when the dataset cannot be used or no node answers. When at
    least one node answers, the service starts and waits for the others. Raises the error of a node that
    failed.
    """
    limit_freed_memory()
    load_compiled_loops(stop)
    names = [node.name for node in settings.node]
    metrics = Metrics(names)
    journals = {name: journal_folder(settings.dataset, settings.chain, name) for name in names}
    health = Health(metrics, journals)
    live_rows = LiveRows()
    with ExitStack() as at_end:  # runs its callbacks from the last to the first
        prepared = _prepared(settings, at_end, stop)
        collect_garbage_seldom()
        if settings.metrics:
            from collector.monitor.http import MonitorServer  # noqa: PLC0415 - loads uvicorn, which is slow

            allow_remote = settings.allow_remote_metrics
            monitor = MonitorServer(settings.metrics, metrics, health, live_rows, allow_remote=allow_remote)
            at_end.callback(monitor.close)
        dataset = Dataset.open(settings.dataset, settings.chain, create=True)
        dataset.remove_unfinished_files()
        metrics.report_disk(dataset.root, journals)
        if settings.store is not None:
            uploader = Uploader(dataset, settings.store)
            at_end.callback(uploader.close)  # after the last seals
            metrics.report_store(uploader)
        notifier = Notifier(health)
        at_end.callback(notifier.close)
        _warn_of_orphans(settings, dataset)
        watches = []
        of_all = _publishers(prepared)
        watch_over = partial(NodeWatch, settings=settings, dataset=dataset, metrics=metrics, stop=stop)
        for node in settings.node:
            watch = watch_over(node, follower=live_rows, publishers=of_all)
            at_end.callback(watch.join)
            metrics.report_storage(node.name, watch)
            watches.append(watch)
        at_end.callback(stop.set)
        stored = read_stored_blocks(dataset)
        for watch, ready in zip(watches, prepared, strict=True):
            watch.start(ready, stored)
        at_end.callback(Compactor(dataset, keep_bodies_days=settings.keep_bodies_days).close)
        notifier.ready()
        stop.wait()
        notifier.stopping()
    return _exit_status(watches)


def _prepared(settings: Settings, at_end: ExitStack, stop: threading.Event) -> list[PreparedNode | None]:
    """Check every node and subscribe to it; the result has None for each node that does not answer yet.

    Raises the first node's error when no node answers, and SettingsError when two nodes publish a topic at
    one address: one node would send the messages of both. `at_end` is given the calls that stop receiving.
    """
    prepared: list[PreparedNode | None] = []
    missing: list[CollectorError] = []
    for node in settings.node:
        try:
            ready = prepare_node(node, settings, patience_s=settings.startup_patience_s, stop=stop)
        except (NodeUnavailable, NodeRefused) as error:
            missing.append(error)
            prepared.append(None)
        else:
            at_end.callback(ready.source.stop)
            prepared.append(ready)
    if len(missing) == len(prepared):
        raise missing[0]
    refuse_shared_publishers(_publishers(prepared))
    return prepared


def _publishers(prepared: Iterable[PreparedNode | None]) -> dict[str, Mapping[str, str]]:
    """Return the ZMQ address by topic of each node that answers, by its name."""
    return {ready.name: ready.source.endpoints for ready in prepared if ready}


def _warn_of_orphans(settings: Settings, dataset: Dataset) -> None:
    """Log a warning for each journal whose node is no longer in the settings; the journal stays as it is."""
    names = {node.name for node in settings.node}
    for folder in journal_folders(dataset.root, dataset.chain):
        if folder.name in names:
            continue
        for segment in Segment.all_in(folder):
            log.warning(
                "journal.left_alone", path=str(segment.path), advice="watch a node of that name to recover it"
            )


def _exit_status(watches: list[NodeWatch]) -> int:
    """Return 0 if all nodes were recorded without an error; else raise the first error and log the others."""
    errors = [watch.error for watch in watches if watch.error is not None]
    for error in errors[1:]:
        log.error("watch.failed", error=f"{type(error).__name__}: {error}")
    if errors:
        raise (
            errors[0] if isinstance(errors[0], CollectorError) else RuntimeError("a watch failed")
        ) from errors[0]
    return 0
