"""Define the command `pool-collector`."""

import json
import os
import queue
import shlex
import signal
import sys
import threading
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from collector.backfill.cli import backfill
from collector.catalog.cli import catalog_dataset
from collector.check.cli import check_dataset
from collector.compaction.cli import compact_dataset, mend_dataset
from collector.dataset.chains import Chain
from collector.dataset.command_options import CHAIN_NAMES, DatasetArgument, DatasetOption, chosen_path
from collector.errors import CollectorError, NodeUnavailable, Stopped, WrongUsage
from collector.external.cli import export_lists, import_external
from collector.fetch.cli import fetch
from collector.fleet.cli import merge_members
from collector.log import configure_logging, counted, excerpt, printable
from collector.status.cli import show_status
from collector.upload.cli import upload_dataset
from gpuhash.command_end import system_errors_in_one_line
from gpuhash.command_group import CommandGroup
from gpuhash.command_output import escape_unencodable_output

if TYPE_CHECKING:
    from collector.config import Settings
    from collector.dataset.schema import Table

app = typer.Typer(
    name="pool-collector",
    cls=CommandGroup,
    help="Record the mempool, blocks and block templates of Bitcoin nodes as Parquet files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class LogFormat(StrEnum):
    """Lists the forms in which the log can be written."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """Lists the severities below which nothing is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class SchemaFormat(StrEnum):
    """Lists the forms in which `pool-collector schema` prints the dataset contract."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"pool-collector {metadata.version('pool-measurement')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Record the mempool, blocks and block templates of Bitcoin nodes as Parquet files."""


@app.command()
def run(  # noqa: PLR0917 - typer passes every option by name
    dataset: DatasetArgument = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML).")] = None,
    chain: Annotated[
        Chain | None,
        typer.Option(metavar="<chain>", help=f"Chain of the node: {CHAIN_NAMES}; default: main."),
    ] = None,
    dataset_option: DatasetOption = None,
    datadir: Annotated[Path | None, typer.Option(help="The node's datadir; default: ~/.bitcoin.")] = None,
    conf: Annotated[Path | None, typer.Option(help="The node's bitcoin.conf.")] = None,
    rpc_url: Annotated[str | None, typer.Option(help="Address of the node's RPC.")] = None,
    cookie_file: Annotated[Path | None, typer.Option(help="The node's RPC cookie file.")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Serve /metrics, /healthz, /readyz and /events at ADDRESS:PORT.")
    ] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Form of the log.")] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(metavar="<level>", help=f"Lowest severity that is logged: {', '.join(LogLevel)}."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print what would be done, and do nothing.")
    ] = False,
) -> None:
    """Record until SIGTERM or Ctrl-C. The exit status is 0 after a clean stop and 1 after a failure."""
    from collector.config import load_settings
    from collector.dataset.local_part import with_local_part
    from collector.node.preflight import refuse_same_node_twice

    settings = load_settings(
        config,
        chain=chain,
        dataset=chosen_path(dataset, dataset_option, "dataset"),
        datadir=datadir,
        conf=conf,
        rpc_url=rpc_url,
        cookie_file=cookie_file,
        metrics=metrics,
        log_format=log_format,
        log_level=log_level,
    )
    settings = with_local_part(settings)
    configure_logging(settings.log_format, settings.log_level)
    refuse_same_node_twice(settings)
    if dry_run:
        _describe(settings)
    else:
        raise typer.Exit(_collect(settings))


def _collect(settings: "Settings") -> int:
    """Record until a signal comes; return the exit status of the process."""
    from collector.service import service

    stop = threading.Event()
    _stop_on_signals(stop)
    try:
        return service.run(settings, stop)
    except NodeUnavailable:
        if not stop.is_set():
            raise
        print("stopped before a node answered: nothing was received", file=sys.stderr)
        return 0


@app.command()
def schema(
    output: Annotated[
        SchemaFormat, typer.Option("--format", help="Form of the output.")
    ] = SchemaFormat.TABLE,
) -> None:
    """Print the dataset contract: its tables and columns, with types and meaning."""
    from collector.dataset import dictionary
    from collector.dataset.schema import TABLES

    if output is SchemaFormat.MARKDOWN:
        print(dictionary.markdown(), end="")
    elif output is SchemaFormat.JSON:
        print(json.dumps([_table_as_data(table) for table in TABLES.values()], indent=2))
    else:
        for table in TABLES.values():
            _print_table(table)


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the results; an earlier demo in it is replaced.")
    ] = Path("data/demo"),
    scenario: Annotated[
        str, typer.Option(help="Name of a shipped scenario, or path of a TOML file.")
    ] = "demo",
    bitcoind: Annotated[
        Path | None, typer.Option(help="The bitcoind to start; default: $BITCOIND, PATH, or a download.")
    ] = None,
) -> None:
    """Play a scenario on private nodes while the collector records them."""
    from rich.console import Console

    from collector.regtest import find_bitcoind, load_scenario
    from collector.regtest.demo import DATASET, claim_folder, run_demo
    from collector.regtest.progress_display import ScenarioProgress
    from collector.regtest.run import RULES_FOLDER

    configure_logging("auto", "warning")
    plan = load_scenario(scenario)
    claim_folder(out)  # before the search for a node, which may end in a download
    console = Console(stderr=True)
    with console.status("looking for a bitcoind"):
        found = find_bitcoind(bitcoind)
    for line in (f"node: {found.version}", f"  path: {found.path}", f"  from: {found.source}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    with ScenarioProgress(console, plan.name) as progress:
        truth = run_demo(plan, out, found, progress=progress.report)
    n_tx = counted(len(truth.transactions), "transaction")
    print(f"scenario {plan.name}: {counted(len(truth.blocks), 'block')}, {n_tx}")
    print(f"dataset: {out / DATASET}")
    places = {"--dataset": DATASET, "--pools": RULES_FOLDER, "--database": "demo.duckdb"}
    words = [word for option, name in places.items() for word in (option, str(out / name))]
    print(f"next: {shlex.join(['pool-analysis', 'build', *words])}")


app.command()(backfill)
app.command("import")(import_external)
app.command("export")(export_lists)
app.command()(fetch)
app.command("compact")(compact_dataset)
app.command("mend")(mend_dataset)
app.command("merge")(merge_members)
app.command("catalog")(catalog_dataset)
app.command("upload")(upload_dataset)
app.command("check")(check_dataset)
app.command("status")(show_status)


def main() -> None:
    """Run the command `pool-collector`; print errors raised on purpose without a traceback.

    Raises Stopped after Ctrl-C in a command that has more to say than that it was stopped.
    """
    escape_unencodable_output()
    try:
        with system_errors_in_one_line("error: "):
            app(prog_name="pool-collector")
    except Stopped:
        raise  # the caller, which also stops what still loads, prints the only line
    except CollectorError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, WrongUsage) else 1)


def _stop_on_signals(stop: threading.Event) -> None:
    """Make the first SIGTERM, SIGINT or SIGHUP set `stop`, and a second one end the process at once.

    A terminal that closes sends SIGHUP. Under nohup the process ignores SIGHUP, and goes on ignoring it.

    A thread sets `stop`, not the handler. The handler interrupts the main thread, which may just hold the
    lock of `stop` because it waits for it; a handler that wanted this lock would wait for ever.
    """
    received: queue.SimpleQueue[int] = queue.SimpleQueue()  # its `put` may interrupt anything
    is_stopping = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal is_stopping
        if is_stopping or stop.is_set():
            os._exit(1)
        is_stopping = True
        received.put(number)

    def pass_on() -> None:
        received.get()
        stop.set()

    threading.Thread(target=pass_on, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


def _describe(settings: "Settings") -> None:
    from collector.dataset.marker import check_place
    from collector.dataset.open import Dataset
    from collector.journal.segment import journal_folder
    from collector.node.preflight import client_for, examine, refuse_shared_publishers

    is_there = settings.dataset.is_dir() and any(settings.dataset.iterdir())
    if is_there:
        Dataset.open(settings.dataset, settings.chain)  # raises an error if it is not a dataset
    else:
        check_place(settings.dataset)
    endpoints: dict[str, dict[str, str]] = {}
    for node in settings.node:
        client = client_for(node, settings.chain)
        facts = examine(client, node, settings)
        row = facts.row
        print(f"node {node.name}: {excerpt(row['subversion'])} at {client.url}")
        print(
            f"  chain {row['chain']}, height {row['tip_height']}, {row['n_mempool_at_start']} in the mempool"
        )
        for topic, endpoint in facts.endpoints.items():
            print(f"  would subscribe to {topic} at {printable(endpoint)}")
        endpoints[node.name] = facts.endpoints
    refuse_shared_publishers(endpoints)
    print(f"would {'add to' if is_there else 'create'} the dataset {settings.dataset}")
    for node in settings.node:
        journal = journal_folder(settings.dataset, settings.chain, node.name)
        if any(journal.glob("*.journal")):
            print(f"would first seal what an earlier run left in {journal}")
    print(f"would seal Parquet files every {settings.seal_interval_s:g} s")
    if settings.store is not None:
        print(f"would upload each of them to {settings.store}")
    if settings.metrics:
        from collector.monitor.http import try_address

        try_address(settings.metrics, allow_remote=settings.allow_remote_metrics)
        print(f"would serve /metrics, /healthz, /readyz and /events at {settings.metrics}")
    else:
        print("no metrics")


def _table_as_data(table: "Table") -> dict[str, object]:
    return {
        "name": table.name,
        "version": table.version,
        "doc": table.doc,
        "grain": table.grain,
        "sort": table.sort,
        "partitioned_by": "heights" if table.day_column is None else f"day of {table.day_column}",
        "columns": [
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.nullable,
                "doc": column.doc,
                **({"values": column.values} if column.values else {}),
            }
            for column in table.columns
        ],
    }


def _print_table(table: "Table") -> None:
    from collector.terminal import text_width, wrapped

    longest = max(len(column.name) for column in table.columns)
    lines = [
        f"{table.name}: {table.doc}",
        f"  one row per {', '.join(table.grain)}; sorted by {', '.join(table.sort)}",
    ]
    for column in table.columns:
        type_ = str(column.type) + (" or null" if column.nullable else "")
        lines.append(f"  {column.name:<{longest}}  {type_}: {column.doc}")
    width = text_width()
    for line in lines:
        print(wrapped(line, "    ", width))
    print()
