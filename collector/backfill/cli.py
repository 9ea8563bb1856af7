"""Define the command `pool-collector backfill`."""

import os
import re
import signal
import sys
import time
from calendar import timegm
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from collector.dataset.command_options import (
    CHAIN_NAMES,
    DatasetArgument,
    DatasetOption,
    chosen_path,
    known_chain,
)
from collector.errors import SettingsError, Stopped
from collector.log import configure_logging

if TYPE_CHECKING:
    from collector.backfill.blockfiles import BlockFolder
    from collector.backfill.report import Report
    from collector.backfill.selection import BlockSelection
    from collector.config import Settings
    from collector.node.access import Access

DAY_S: Final = 86_400
LOCAL: Final = "local"
MAX_WORKERS: Final = 16  # each worker takes one place in the node's work queue, which has 16 by default

ConfigOption = Annotated[Path | None, typer.Option(help="Settings file (TOML).")]
DatadirOption = Annotated[Path | None, typer.Option(help="The node's datadir; by default ~/.bitcoin.")]
ConfOption = Annotated[Path | None, typer.Option(help="The node's bitcoin.conf.")]
RpcUrlOption = Annotated[str | None, typer.Option(help="Address of the node's RPC.")]
FileChainOption = Annotated[
    str | None,
    typer.Option(
        metavar="<chain>",
        help=f"Chain of the blocks: {CHAIN_NAMES}; by default that of the files.",
        callback=known_chain,
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option(help="File for the JSON report; by default in the dataset.")
]
CookieFileOption = Annotated[Path | None, typer.Option(help="The node's RPC cookie file.")]

WorkersOption = Annotated[
    int | None, typer.Option(min=1, max=MAX_WORKERS, help="Worker processes; by default one per core.")
]
EngineOption = Annotated[
    str, typer.Option(help="`local`, or the Spark cluster that does the work: spark://HOST:PORT.")
]


def backfill(  # noqa: PLR0917 - typer passes every option by name
    dataset: DatasetArgument = None,
    blocks_dir: Annotated[
        Path | None, typer.Option(help="The folder `blocks` in a node's datadir; the node may be running.")
    ] = None,
    node: Annotated[
        bool,
        typer.Option(
            "--node", help="Ask a node for the blocks; with --blocks-dir, ask it to check them and for fees."
        ),
    ] = False,
    first: Annotated[str | None, typer.Option("--from", help="First height or date (YYYY-MM-DD).")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last height or date, which is included.")] = None,
    workers: WorkersOption = None,
    engine: EngineOption = LOCAL,
    dataset_option: DatasetOption = None,
    chain: FileChainOption = None,
    report: ReportOption = None,
    config: ConfigOption = None,
    datadir: DatadirOption = None,
    conf: ConfOption = None,
    rpc_url: RpcUrlOption = None,
    cookie_file: CookieFileOption = None,
) -> None:
    """Fill `blocks` and `transactions` from block files or a node. It can be stopped and run again."""
    from collector.backfill.blockfiles import BlockFolder
    from collector.backfill.run import default_report_path
    from collector.config import load_settings
    from collector.dataset.local_part import with_local_part

    if blocks_dir is None and not node:
        raise typer.BadParameter("say where the blocks are: --blocks-dir FOLDER, or --node")
    _refuse_report(report)
    selection = parse_selection(first, last)
    folder = BlockFolder(blocks_dir.absolute(), chain) if blocks_dir is not None else None
    settings = load_settings(
        config,
        chain=folder.chain if folder else chain,
        dataset=chosen_path(dataset, dataset_option, "dataset"),
        datadir=datadir,
        conf=conf,
        rpc_url=rpc_url,
        cookie_file=cookie_file,
    )
    settings = with_local_part(settings)
    configure_logging(settings.log_format, settings.log_level)
    n_workers = workers or min(_cores(), MAX_WORKERS)
    result = _run(settings, folder, selection, n_workers, engine, is_node_asked=node)
    _tell(result, report or default_report_path(settings.dataset, settings.chain))


def _tell(result: "Report", target: Path) -> None:
    """Print what a backfill did, and write the report as JSON into the file `target`."""
    for line in [*result.lines(), f"report: {target}"]:
        print(line)
    result.write(target)


def _refuse_report(report: Path | None) -> None:
    """Raise typer.BadParameter when a backfill's report cannot be written at the path that was given."""
    if report is not None and (report.is_dir() or not report.parent.is_dir()):
        raise typer.BadParameter(f"--report {report} is a folder, or its folder does not exist")


@contextmanager
def _ctrl_c_in_one_line() -> Iterator[None]:
    """Turn Ctrl-C inside the `with` block into the error Stopped, which says that written blocks stay."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped("stopped; the blocks written so far stay: run the same command to go on") from None


@_ctrl_c_in_one_line()
def _run(
    settings: "Settings",
    folder: "BlockFolder | None",
    selection: "BlockSelection",
    workers: int,
    engine: str,
    *,
    is_node_asked: bool,
) -> "Report":
    from rich.console import Console

    from collector.backfill.node_work import check_chain, connect
    from collector.backfill.progress import ProgressView
    from collector.backfill.run import from_files, from_node
    from collector.dataset.open import Dataset
    from collector.upload.follow import sealing_into

    access = _access(settings) if is_node_asked else None
    if access is not None:  # a node that refuses leaves no dataset behind
        check_chain(connect(access), settings.chain)
        if engine != LOCAL and access.password is not None:
            raise SettingsError("a password does not travel to a cluster; name a --cookie-file that all have")
    into = Dataset.open(settings.dataset.absolute(), settings.chain, create=True)
    _end_in_order_on_sigterm()
    with sealing_into(into, settings.store), ProgressView(Console(stderr=True), workers) as progress:
        if folder is not None:
            return from_files(
                folder, into, selection, workers=workers, progress=progress, access=access, engine=engine
            )
        assert access is not None  # noqa: S101 - the command demands one of the two
        return from_node(access, into, selection, workers=workers, progress=progress, engine=engine)


def parse_selection(first: str | None, last: str | None) -> "BlockSelection":
    """Return the blocks that --from and --to select, each a height or a date.

    Raises typer.BadParameter for another text.
    """
    from collector.backfill.selection import BlockSelection

    first_height, from_time_s = _height_or_time(first, "--from")
    last_height, to_time_s = _height_or_time(last, "--to")
    for low, high in ((first_height, last_height), (from_time_s, to_time_s)):
        if low is not None and high is not None and low > high:
            raise typer.BadParameter(f"--from {first} is after --to {last}")
    if to_time_s is not None:
        to_time_s += DAY_S  # the last day is included
    return BlockSelection(
        first_height=first_height, last_height=last_height, from_time_s=from_time_s, to_time_s=to_time_s
    )


def _height_or_time(text: str | None, option: str) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        return int(text), None
    try:
        return None, timegm(time.strptime(text, "%Y-%m-%d"))
    except ValueError:
        raise typer.BadParameter(
            f"{option} {text!r} is neither a height nor a date like 2018-02-25"
        ) from None


def _access(settings: "Settings") -> "Access":
    """Return the RPC address and the credentials of the first node in the settings."""
    from collector.node.access import find_access
    from collector.node.rpc import checked_url

    access = find_access(settings.node[0], settings.chain)
    checked_url(access.rpc_url, allow_remote=settings.node[0].allow_remote_rpc)
    return access


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_in_order_on_sigterm() -> None:
    """Make SIGTERM end the command as Ctrl-C does: blocks in work are finished, and no more are started."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)
