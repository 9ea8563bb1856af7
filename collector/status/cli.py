"""Define the command `pool-collector status`."""

import json
from dataclasses import asdict
from typing import Annotated, Final

import typer

from collector.dataset.command_options import (
    ChainOption,
    ConfigOption,
    DatasetArgument,
    DatasetOption,
    chosen_dataset,
)
from collector.log import counted, printable
from collector.status.model import DAY, HEIGHT, NodeStatus, Status, StoreStatus, TableStatus

NUMBERS: Final = ("files", "rows", "MB")
ENDS: Final = ("first (UTC)", "last (UTC)")
COLUMNS: Final = ("table", *NUMBERS, *ENDS)
MOST_GAPS: Final = 20  # printed for one node
IMPORTED: Final = "imported_at"  # the span of tables whose rows say no other time
TO_THE_DAY: Final = len("2024-10-04")
TO_THE_MINUTE: Final = len("2024-10-04 00:00")
UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"))


def show_status(
    dataset: DatasetArgument = None,
    dataset_option: DatasetOption = None,
    config: ConfigOption = None,
    chain: ChainOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show what a dataset holds, until when, its gaps and rates, and whether a collector runs."""
    from collector.dataset.open import open_to_read

    opened = open_to_read(
        chosen_dataset(dataset, dataset_option, config), chain
    )  # before large libraries load
    from collector.check.dataset_view import retry_while_files_move
    from collector.status.gather import gather

    status = retry_while_files_move(opened, lambda: gather(opened))
    if as_json:
        print(json.dumps(asdict(status), indent=1))
    else:
        _print(status)


def _print(status: Status) -> None:
    from rich.console import Console

    from collector.terminal import write_cells

    state = "a collector is running" if status.is_running else "no collector is running"
    print(f"{status.dataset}, chain {status.chain}: {state}\n")
    filled = [table for table in status.tables if table.n_files]
    write_cells(COLUMNS, [_cells(table) for table in filled], Console(), folding=ENDS, right=NUMBERS)
    undated = [table.name for table in filled if table.span_column == IMPORTED]
    if undated:
        print(f"first and last are the times of import: {', '.join(undated)}")
    for node in status.nodes:
        print()
        for line in _lines(node):
            print(line)
    if status.store is not None:
        print(f"\n{_store_line(status.store)}")
    for path in status.unreadable:
        print(f"\n{path} cannot be read; run `pool-collector check`, which says what to do")


def _store_line(store: StoreStatus) -> str:
    text = f"store {printable(store.address)}: "
    if store.n_waiting:
        text += (
            f"{counted(store.n_waiting, 'sealed file')} ({store.waiting_bytes / 1e6:.1f} MB) not there yet"
        )
    else:
        text += "has every sealed file"
    if store.is_blocked:
        text += "; it takes no files now, /readyz says why"
    return text if store.complete_at is None else f"{text}; complete at {_said(store.complete_at)} UTC"


def _cells(table: TableStatus) -> tuple[str, ...]:
    size = f"{table.n_bytes / 1e6:.1f}"
    span = (_end(end, table.span_column) for end in (table.first, table.last))
    return table.name, str(table.n_files), str(table.n_rows), size, *span


def _end(end: int | str | None, column: str) -> str:
    """Return the first or last value of a column as text: a block, a day, or a time to the minute."""
    if end is None:
        return ""
    if column == HEIGHT:
        return f"block {end}"
    return _said(str(end))[: TO_THE_DAY if column == DAY else TO_THE_MINUTE]


def _said(moment: str) -> str:
    """Return a moment in ISO 8601 as people write it: `2024-10-04 00:00:07`."""
    return moment.replace("T", " ").removesuffix("Z")


def _lines(node: NodeStatus) -> list[str]:
    running = "followed now" if node.is_running else "not followed now"
    lines = [
        f"node {printable(node.name)} {printable(node.software)}: {running}",
        f"  session {node.session}, the last of {node.n_sessions}, began {_said(node.started_at)} UTC",
    ]
    if node.observed_until is not None:
        lines.append(f"  recorded until {_said(node.observed_until)} UTC, {lasted(node.behind_s or 0)} ago")
    if node.n_intervals_ahead:
        n_ahead = counted(node.n_intervals_ahead, "interval")
        lines.append(f"  {n_ahead} in the future left out, with the session: a clock was ahead")
    stored = "none" if node.stored_height is None else node.stored_height
    lines.append(f"  node's tip {node.tip_height}, highest stored block {stored}")
    if node.rows_per_s is not None:
        lines.append(
            f"  last recorded hour: {node.rows_per_s:.1f} rows/s, {node.txs_per_s:.1f} transactions/s"
        )
    lines.append(
        f"  journal: {counted(node.n_segments, 'segment')}, {node.journal_bytes / 1e6:.1f} MB not sealed yet"
    )
    if node.metrics is not None:
        step = "in step with the mempool" if node.metrics.get("in_step") else "out of step with the mempool"
        away = ", its RPC does not answer" if node.metrics.get("rpc_away") else ""
        queued = int(node.metrics.get("queued_messages", 0))
        waiting = int(node.metrics.get("waiting_messages", 0))
        lines.append(
            f"  now: {step}{away}; {counted(queued, 'message')} queued, {waiting} waiting for their rows"
        )
    lines.append(f"  gaps in the last day (times in UTC): {len(node.gaps) or 'none'}")
    newest = sorted(node.gaps, key=lambda gap: gap.from_at)[-MOST_GAPS:]
    if len(newest) < len(node.gaps):
        lines.append(f"    the last {MOST_GAPS} of them; --json has all")
    for gap in newest:
        until = "now" if gap.to_at is None else _said(gap.to_at)
        span = f"{_said(gap.from_at)} to {until}, {lasted(gap.duration_s)}"
        is_left = gap.to_at is None and gap.reason == "sealed"  # by a kill, after the last seal
        reason = "no collector is running" if is_left else gap.reason
        lines.append(f"    {gap.topic}: {span} ({reason})")
    return lines


def lasted(duration_s: float) -> str:
    """Return a duration as text, in the largest unit of which it has at least two: `2.5 h`."""
    for unit_s, name in UNITS:
        if duration_s >= 2 * unit_s:
            return f"{duration_s / unit_s:.1f} {name}"
    return f"{duration_s:.1f} s"
