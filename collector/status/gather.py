"""Gather the status of a dataset from the footers of its files, queries, its journals and /metrics."""

import datetime as dt
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import duckdb

from collector.check.cross_table import OF_A_NODE
from collector.check.dataset_view import DatasetFiles, DatasetView, list_files, open_dataset_view
from collector.dataset.files import FOLDER_LOCK, is_lock_held
from collector.dataset.footer import ColumnChunk, read_footer, read_footers
from collector.dataset.open import Dataset
from collector.dataset.query import query_engine
from collector.dataset.schema import TABLES, Table
from collector.dataset.temporary_folders import temporary_folder
from collector.errors import DatasetError
from collector.journal.segment import journal_folder
from collector.status.model import DAY, HEIGHT, Gap, NodeStatus, Status, StoreStatus, TableStatus
from collector.status.running import PROCESS, ask_metrics

DAY_US: Final = 86_400_000_000
SHOWN: Final = "%Y-%m-%dT%H:%M:%SZ"
SECONDS_CHARACTERS: Final = 19  # of a moment, up to its seconds
RATE_US: Final = 3_600_000_000
AHEAD_US: Final = 60_000_000  # by which the clock of the machine that recorded may be ahead of ours


def gather(dataset: Dataset) -> Status:
    """Return the status of a dataset: its tables, its nodes with their gaps, and unreadable files.

    Raises FileNotFoundError or duckdb.IOException if compaction removed a file meanwhile; then call it again.
    """
    files = list_files(dataset)
    sound: dict[str, list[Path]] = {name: [] for name in files.by_table}
    unreadable = [str(path) for path in files.strange]
    with (
        temporary_folder("pool-collector-status-") as spill,
        query_engine(spill) as connection,
    ):
        tables = [
            _table(connection, TABLES[name], paths, sound[name], unreadable)
            for name, paths in files.by_table.items()
        ]
        view = open_dataset_view(dataset, files, sound, connection)
        nodes, store = _nodes(view, time.time_ns() // 1000)
    return Status(
        dataset=str(dataset.root),
        chain=dataset.chain,
        is_running=bool(files.journals.running),
        tables=tables,
        nodes=nodes,
        store=store,
        unreadable=unreadable,
    )


def _table(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    paths: Iterable[Path],
    sound: list[Path],
    unreadable: list[str],
) -> TableStatus:
    status = TableStatus(table.name, _span_column(table))
    span: list[int | str] = []
    footers = _footers(connection, paths)
    key = status.span_column
    for path in paths:
        try:
            footer = footers[path] if footers is not None else read_footer(connection, path)
            span += [
                int(bound) if key == HEIGHT else _iso(bound)
                for chunk in footer
                if chunk.column == key
                for bound in (chunk.least, chunk.greatest)
                if bound is not None
            ]
        except (FileNotFoundError, PermissionError):
            raise
        except (DatasetError, OSError, ValueError):
            unreadable.append(str(path))
            continue
        sound.append(path)
        status.n_files += 1
        status.n_rows += sum({chunk.group: chunk.n_rows for chunk in footer}.values())
        status.n_bytes += path.stat().st_size
    if span:
        status.first, status.last = min(span), max(span)
    return status


def _span_column(table: Table) -> str:
    """Return the column that says what the rows are about: their day, else time or height of their folder."""
    if any(column.name == DAY for column in table.columns):
        return DAY
    return table.day_column or HEIGHT


def _iso(text: str) -> str:
    """Return a time in UTC, as DuckDB writes it in a footer, in ISO 8601 and to the second."""
    return f"{text[:SECONDS_CHARACTERS].replace(' ', 'T')}Z"


def _footers(
    connection: duckdb.DuckDBPyConnection, paths: Iterable[Path]
) -> dict[Path, list[ColumnChunk]] | None:
    """Return the footers of all files of a table at once; None if one cannot be read."""
    try:
        return read_footers(connection, paths)
    except DatasetError:
        return None


def _nodes(view: DatasetView, now_us: int) -> tuple[list[NodeStatus], StoreStatus | None]:
    """Return the status of each node, and of the object store to which a running collector copies files.

    Sessions that begin in the future tell nothing, unless a node has no other.
    """
    rows = view.rows(f"""
        SELECT node, max_by(session, started_at), count(DISTINCT session), epoch_us(max(started_at)),
            max_by(subversion, started_at), max_by(settings, started_at), max(tip_height)
        FROM (
            FROM all_nodes QUALIFY epoch_us(started_at) <= {now_us + AHEAD_US}
                OR epoch_us(min(started_at) OVER (PARTITION BY node)) > {now_us + AHEAD_US}
        ) GROUP BY node ORDER BY node
    """)  # noqa: S608 - numbers of ours
    stored = view.rows("SELECT max(height) FROM all_blocks")[0][0]
    tips = dict(
        view.rows("SELECT node, max(height) FROM all_block_arrivals WHERE event = 'connected' GROUP BY node")
    )
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    nodes, store = [], None
    for name, session, n_sessions, started_us, software, settings, tip_height in rows:
        status = NodeStatus(name, session, n_sessions, _moment(started_us), software, is_running=False)
        status.is_running = is_lock_held(_journal(view.dataset, name) / FOLDER_LOCK)
        status.tip_height = max(tips.get(name) or 0, tip_height)
        status.stored_height = stored
        _add_gaps(view, status, now_us)
        _add_rates(view, status, now_us)
        _add_backlog(view.files, status)
        address = _metrics_address(settings)
        if status.is_running and address:
            if address not in metrics:
                metrics[address] = ask_metrics(address)
            status.metrics = metrics[address].get(name)
            store = store or _store(settings, metrics[address].get(PROCESS, {}))
        nodes.append(status)
    return nodes, store


def _store(settings: str, metrics: dict[str, float]) -> StoreStatus | None:
    """Return the status of the object store that a running collector's settings (JSON) name, or None."""
    address = json.loads(settings).get("store")
    if address is None or "store_blocked" not in metrics:
        return None
    complete_s = metrics["store_complete_timestamp_seconds"]
    return StoreStatus(
        address=str(address),
        is_blocked=bool(metrics["store_blocked"]),
        n_waiting=int(metrics["store_waiting_files"]),
        waiting_bytes=int(metrics["store_waiting_bytes"]),
        complete_at=_moment(int(complete_s * 1e6)) if complete_s else None,
    )


def _journal(dataset: Dataset, node: str) -> Path:
    return journal_folder(dataset.root, dataset.chain, node)


def _add_gaps(view: DatasetView, status: NodeStatus, now_us: int) -> None:
    """Set in `status` until when the node was observed, and the gaps in the 24 hours before `now_us`.

    Intervals that begin in the future are counted, and left out.
    """
    found = view.connection.execute(
        """
        SELECT topic, epoch_us(from_at), least(epoch_us(to_at), ?), end_reason FROM all_coverage
        WHERE node = ? ORDER BY topic, from_at, to_at
        """,
        [now_us, status.name],
    ).fetchall()
    intervals = [each for each in found if each[1] <= now_us + AHEAD_US]
    status.n_intervals_ahead = len(found) - len(intervals)
    if not intervals:
        return
    until_us = max(to_us for _, _, to_us, _ in intervals)
    status.observed_until = _moment(until_us)
    status.behind_s = round(max(0, now_us - until_us) / 1e6, 1)
    following = [*intervals[1:], (None, None, None, None)]
    for (topic, _, to_us, reason), (next_topic, next_us, _, _) in zip(intervals, following, strict=True):
        goes_on = next_topic == topic
        end_us = next_us if goes_on else now_us
        is_open = not goes_on and (status.is_running and reason == "sealed")
        if is_open or end_us <= to_us or end_us < now_us - DAY_US:
            continue
        status.gaps.append(
            Gap(
                topic,
                _moment(to_us),
                _moment(end_us) if goes_on else None,
                round((end_us - to_us) / 1e6, 3),
                reason,
            )
        )


def _add_rates(view: DatasetView, status: NodeStatus, now_us: int) -> None:
    """Set in `status` the rows and transactions per second of the last recorded hour before `now_us`."""
    first_us, last_us = view.connection.execute(
        "SELECT epoch_us(min(from_at)), least(epoch_us(max(to_at)), ?) FROM all_coverage "
        "WHERE node = ? AND epoch_us(from_at) <= ?",
        [now_us, status.name, now_us + AHEAD_US],
    ).fetchall()[0]
    if last_us is None or last_us <= first_us:
        return
    since_us = max(first_us, last_us - RATE_US)
    counts = {}
    for name in OF_A_NODE:
        column = TABLES[name].day_column
        counts[name] = view.connection.execute(
            f"SELECT count(*) FROM {name} WHERE node = ? AND {column} > make_timestamptz(?) "  # noqa: S608 - names are the contract's
            f"AND {column} <= make_timestamptz(?)",
            [status.name, since_us, now_us + AHEAD_US],
        ).fetchall()[0][0]
    duration_s = (last_us - since_us) / 1e6
    status.rows_per_s = round(sum(counts.values()) / duration_s, 3)
    status.txs_per_s = round(counts["mempool_txs"] / duration_s, 3)


def _add_backlog(files: DatasetFiles, status: NodeStatus) -> None:
    for segment in files.journals.segments:
        if segment.parent.name == status.name:
            status.n_segments += 1
            status.journal_bytes += segment.stat().st_size if segment.exists() else 0


def _metrics_address(settings: str) -> str | None:
    """Return the address of /metrics in a session's settings (JSON); None if they set none."""
    try:
        address = json.loads(settings).get("metrics")
    except (ValueError, AttributeError):
        return None
    return address if isinstance(address, str) else None


def _moment(at_us: int) -> str:
    return dt.datetime.fromtimestamp(at_us / 1e6, dt.UTC).strftime(SHOWN)
