"""Define the verbs of `pool-analysis`: build the database, show its relations, write the report."""

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.command_options import (
    LOCAL,
    DatabaseArgument,
    DatabaseOption,
    EngineOption,
    MemoryOption,
    WorkersOption,
    chosen_database,
    memory_gb,
)
from analysis.errors import AnalysisError, DatabaseError, MomentError, UnknownNodeError, WrongUsageError
from analysis.relations import RAW_TABLES, check_relation, relation_names
from analysis.release.cli import release, verify
from collector.dataset.command_options import ChainOption, DatasetArgument, DatasetOption, chosen_dataset
from gpuhash.command_end import system_errors_in_one_line
from gpuhash.command_group import CommandGroup
from gpuhash.command_output import escape_unencodable_output

if TYPE_CHECKING:
    import duckdb

    from analysis import engine
    from analysis.checks import CheckResult
    from analysis.row_output import Row
    from analysis.tasks import Workers

TABLE_ROWS = 40
MOST_ROWS = 1 << 60  # of --limit
LISTED_LAYERS = ("marts", "staging", "checks")

app = typer.Typer(
    cls=CommandGroup,
    help="Answer questions about mining pools in SQL over the collector's dataset.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    """Names the forms in which `show` and other verbs write rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class Study(StrEnum):
    """Names the studies whose statements `replicate` checks."""

    PAPER = "paper"


class Engine(StrEnum):
    """Names the engines whose SQL `sql-for` writes."""

    SPARK = "spark"


FormatOption = Annotated[Format, typer.Option("--format", help="Form of the output.")]
REPORT = Path("data/reports/report.html")
SERVE_ADDRESS = "127.0.0.1:9744"


def _print_version(wanted: bool) -> None:
    """Print the version and exit when --version was given."""
    if wanted:
        from importlib import metadata

        typer.echo(f"pool-analysis {metadata.version('pool-measurement')}")
        raise typer.Exit


def _relations(begun: str) -> list[str]:
    """Return the names of the relations that start with the given text, for completion in a shell."""
    return [name for name in relation_names() if name.startswith(begun)]


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Handle the options of `pool-analysis` that stand before its verb."""


@app.command()
def build(  # noqa: PLR0917 - typer passes every option by name
    dataset: DatasetArgument = None,
    database: DatabaseArgument = None,
    dataset_option: DatasetOption = None,
    database_option: DatabaseOption = None,
    pools: Annotated[
        Path | None, typer.Option(help="Folder of pool rules. Default: the project's own.")
    ] = None,
    chain: ChainOption = None,
    memory: MemoryOption = None,
    engine_name: EngineOption = LOCAL,
    n_workers: WorkersOption = 1,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Only say which marts would be made, and why.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Build again after each seal, until Ctrl-C.")
    ] = False,
) -> None:
    """Make every mart that changed, and check. Exit 1 when a check fails; --watch goes on."""
    from analysis import engine
    from analysis.attribution.rules import default_rules_dir
    from analysis.processes import memory_of_each_gb
    from analysis.watch import changes

    source = chosen_dataset(dataset, dataset_option)
    target = chosen_database(database, database_option)
    rules, most_gb = pools or default_rules_dir(), memory_gb(memory)
    if only_plan and (watch or n_workers > 1 or engine_name != LOCAL):
        raise typer.BadParameter("--plan makes nothing, so leave --watch, --workers and --engine out")
    if only_plan:
        rows = [mart.row for mart in engine.plan(source, rules, target, chain)]
        _write(engine.PLAN_COLUMNS, rows, Format.TABLE, folding=("reason",))
        return
    if n_workers > 1:
        most_gb = memory_of_each_gb(most_gb, n_workers)
    with _workers(engine_name, n_workers) as workers:
        for _ in changes(source, chain) if watch else (None,):
            with _progress() as progress:
                result = engine.build(
                    source, rules, target, chain, memory_gb=most_gb, workers=workers, progress=progress
                )
            _print_build(result)
            if pools is None and result.is_without_rules:
                typer.echo(f"our rules are of the main chain, not {result.chain}: name others with --pools")
            if not watch:
                _stop_on_failure(result.checks)


@contextmanager
def _workers(engine_name: str, n_workers: int) -> Iterator["Workers | None"]:
    """Yield the workers that make marts: a Spark cluster, or processes; None where this process makes all."""
    if engine_name != LOCAL and n_workers > 1:
        raise typer.BadParameter("--workers is for processes here; a Spark cluster has workers of its own")
    if engine_name != LOCAL:
        from analysis.warehouse.workers import open_workers

        with open_workers(engine_name) as cluster:
            yield cluster
    elif n_workers > 1:
        from analysis.processes import open_processes

        with open_processes(n_workers) as processes:
            yield processes
    else:
        yield None


@app.command("list")
def list_models(format_: FormatOption = Format.TABLE) -> None:
    """List every mart, staging view and check: name, layer, grain and what it is."""
    from analysis.catalog import read_models

    columns = ("name", "layer", "grain", "summary")
    rows = [
        (model.name, model.layer, ", ".join(model.grain), model.summary)
        for layer in LISTED_LAYERS
        for model in sorted(read_models(), key=attrgetter("name"))
        if model.layer == layer
    ]
    _write(columns, rows, format_, folding=("summary",), spare=("grain", "layer"))
    typer.echo(f"raw tables, which describe explains: {', '.join(RAW_TABLES)}", err=True)


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(help="Name of a mart, staging view, check or raw table.", autocompletion=_relations),
    ],
    format_: FormatOption = Format.TABLE,
) -> None:
    """Say what a relation is: how it is made, its grain, what it reads, and its columns with units."""
    from analysis import descriptions

    found = descriptions.describe(name)
    if format_ is not Format.TABLE:
        _write(descriptions.COLUMNS, found.rows, format_)
        return
    typer.echo(found.text)
    if found.columns:
        typer.echo()
        _write(
            descriptions.COLUMNS[1:4], [row[1:4] for row in found.rows], format_, folding=("type", "meaning")
        )


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="Name of a relation; `list` shows them.", autocompletion=_relations)
    ],
    database: DatabaseArgument = None,
    database_option: DatabaseOption = None,
    format_: FormatOption = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST_ROWS, help=f"Largest number of rows. Default: {TABLE_ROWS} for a table, else all."
        ),
    ] = None,
) -> None:
    """Show the rows of one relation as a table, CSV or JSON."""
    check_relation(name)
    import duckdb

    from analysis.database import open_database
    from analysis.raw_views import raw_files_locked

    most = TABLE_ROWS if limit is None and format_ is Format.TABLE else limit
    with open_database(chosen_database(database, database_option)) as connection:
        try:
            with raw_files_locked(connection):
                complete = _write_rows(connection, name, format_, most)
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise DatabaseError(f"{name} cannot be read ({reason}); run pool-analysis build anew") from None
    if limit is None and not complete:
        typer.echo(f"more than {TABLE_ROWS} rows; see more with --limit", err=True)


@app.command()
def mempool(  # noqa: PLR0917 - typer passes every option by name
    database: DatabaseArgument = None,
    database_option: DatabaseOption = None,
    at: Annotated[
        str | None,
        typer.Option(help="Moment, as 2026-01-31T12:00:00Z. Default: the last one that was watched."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="Name of the node. Default: the first that was watched at that moment.")
    ] = None,
    format_: FormatOption = Format.TABLE,
    limit: Annotated[
        int, typer.Option(min=0, max=MOST_ROWS, help="Largest number of transactions.")
    ] = TABLE_ROWS,
) -> None:
    """Replay a mempool as of any moment: whether it was watched, and what waited, by chunk feerate."""
    from analysis import mempool_at, row_output
    from analysis.database import open_database

    try:
        moment = None if at is None else mempool_at.moment_of(at)
    except MomentError as error:
        raise typer.BadParameter(str(error), param_hint="'--at'") from None
    with open_database(chosen_database(database, database_option)) as connection:
        try:
            found = mempool_at.mempool_at(connection, moment, node, limit=limit)
        except UnknownNodeError as error:
            raise DatabaseError(f"{error}; those that were: {', '.join(error.nodes)}") from None
    if found.totals is None:
        raise DatabaseError(
            f"the mempool of {found.node} is not known at {mempool_at.written(found.at)}."
            f" {mempool_at.said(found.verdict)} Ask for another time or --node"
        )
    for line in mempool_at.summary(found):
        typer.echo(row_output.inert(line), err=format_ is not Format.TABLE)
    _write(mempool_at.LISTED_COLUMNS, [tuple(row.values()) for row in found.rows], format_)


@app.command()
def sql(
    query: Annotated[str | None, typer.Argument(help="One query. Without it the shell opens.")] = None,
    database: DatabaseArgument = None,
    database_option: DatabaseOption = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Answer one query, or open the duckdb shell on the marts, for reading.

    A query changes nothing, and the shell makes no file. But DuckDB cannot forbid COPY with USE_TMP_FILE
    false to write over a file that the shell reads: the database, or one of the folder beside it. The next
    build makes such a file again.

    The tables hold hashes in internal byte order: ask for one with hash_hex(block_hash) = '00ab...'.
    """
    import duckdb

    from analysis import duckdb_client
    from analysis.database import open_database, query_explained
    from analysis.raw_views import raw_files_locked

    path = chosen_database(database, database_option)
    with open_database(path) as connection:
        if query is not None:
            try:
                with raw_files_locked(connection):
                    _write_query(connection, query, format_)
            except duckdb.Error as error:
                raise DatabaseError(f"the query failed: {query_explained(error)}") from None
            return
    raise typer.Exit(duckdb_client.open_shell(path))


@app.command()
def check(
    database: DatabaseArgument = None,
    database_option: DatabaseOption = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Print what came of each check of the last build, and why. Exit 1 when one failed."""
    from analysis import checks
    from analysis.database import open_database

    with open_database(chosen_database(database, database_option)) as connection:
        results = checks.read_results(connection)
    _write(checks.COLUMNS, [result.row for result in results], format_, folding=("reason",))
    typer.echo(checks.counted(results), err=format_ is not Format.TABLE)
    _stop_on_failure(results)


@app.command()
def report(
    database: DatabaseArgument = None,
    database_option: DatabaseOption = None,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = REPORT,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for figures as SVG and PNG and tables as CSV.")
    ] = None,
) -> None:
    """Write the report, one HTML file that needs no network, and print its summary."""
    from rich.console import Console

    from analysis.checks import read_results
    from analysis.database import open_database
    from analysis.report.page import page, write_page
    from analysis.report.sections import read_marts
    from analysis.terminal_summary import print_summary

    source = chosen_database(database, database_option)
    with open_database(source) as connection:
        _stop_on_failure(read_results(connection))
    marts = read_marts(source)
    content = page(marts)
    path = write_page(content, out, figures=figures)
    print_summary(content, marts, Console())
    typer.echo(f"report: {path}")


TokenOption = Annotated[
    Path | None, typer.Option(help="File with the token. Default: POOL_ANALYSIS_TOKEN, else none.")
]
LivePoolsOption = Annotated[
    Path | None, typer.Option(help="Folder of pool rules for --collector. Default: the project's own.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Serve also before there is a first build, and wait for it.")
]


@app.command()
def serve(  # noqa: PLR0917 - typer passes every option by name
    database: DatabaseArgument = None,
    database_option: DatabaseOption = None,
    address: Annotated[str, typer.Option(help="Where to listen, as HOST:PORT.")] = SERVE_ADDRESS,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let other machines in; needs a token.")
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of the page, as behind a proxy; may be repeated."),
    ] = None,
    collector: Annotated[
        str | None, typer.Option(help="Show new blocks of this collector, as http://127.0.0.1:9733.")
    ] = None,
    pools: LivePoolsOption = None,
    webhooks: Annotated[
        Path | None, typer.Option(help="TOML file that names who is told about new events.")
    ] = None,
    token_file: TokenOption = None,
    wait: WaitOption = False,
) -> None:
    """Serve the results as web pages and as an HTTP API until Ctrl-C. Nothing can be changed."""
    from analysis.attribution.rules import default_rules_dir, load_rules
    from analysis.serve.address import bound, read_token
    from analysis.serve.app import application
    from analysis.serve.bounded_server import BoundedServer
    from analysis.serve.live_feed import LiveFeed
    from analysis.serve.prepared import Preparation
    from analysis.serve.results import Results
    from analysis.serve.webhooks import Alerts, Webhook, read_targets

    if pools and not collector:
        raise typer.BadParameter("--pools is for the blocks of --collector; name a collector, too")
    hooks = [Webhook(target) for target in read_targets(webhooks)] if webhooks else []
    token = read_token(token_file)
    listening = bound(address, allow_remote=allow_remote, token=token)
    with ExitStack() as until_the_end:
        opened = until_the_end.enter_context
        results = opened(closing(Results(chosen_database(database, database_option), waits=wait)))
        live = None
        if collector:
            live = opened(closing(LiveFeed(collector, load_rules(pools or default_rules_dir()))))
        pages = application(results, live, webhooks=hooks, hosts=host or (), token=token)
        server = BoundedServer(pages, listening)
        if hooks:
            opened(closing(Alerts(results, hooks)))
        opened(closing(Preparation(results)))
        typer.echo(f"serving {results.database} at http://{address} until Ctrl-C")
        server.run_here()


app.command()(release)
app.command()(verify)


@app.command()
def replicate(
    study: Annotated[Study, typer.Argument(help="Which study: `paper` is arXiv:1902.07549.")],
    data: Annotated[Path, typer.Option(help="Folder or clone with the files of its authors.")],
    arrivals: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of block arrivals (height, hash, ms) in the paper's window; may be repeated."
        ),
    ] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Check a paper's statements, one by one, on the data that its authors published."""
    from analysis.attribution.rules import default_rules_dir, load_rules
    from analysis.replication import paper, statement

    found = {Study.PAPER: paper.replicate}[study](data, load_rules(default_rules_dir()), arrivals or ())
    if format_ is Format.TABLE:
        statement.write_statements(found, sys.stdout, shutil.get_terminal_size().columns)
    else:
        _write(statement.COLUMNS, [checked.row for checked in found], format_)


@app.command("diff-rules")
def diff_rules(  # noqa: PLR0917 - typer passes every option by name
    before: Annotated[Path, typer.Argument(help="Folder of the older pool rules.")],
    after: Annotated[
        Path | None, typer.Argument(help="Folder of the newer pool rules. Default: the project's own.")
    ] = None,
    dataset: DatasetArgument = None,
    dataset_option: DatasetOption = None,
    chain: ChainOption = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Show which blocks change their pool when the rules change."""
    from analysis import rule_diff
    from analysis.attribution.rules import default_rules_dir, load_rules

    source = chosen_dataset(dataset, dataset_option)
    found = rule_diff.diff_rules(source, load_rules(before), load_rules(after or default_rules_dir()), chain)
    _write(rule_diff.COLUMNS, found.changes, format_)
    typer.echo(
        f"blocks that change: {found.n_changed:,} of {found.n_blocks:,}; rules {found.before_hash[:12]} to"
        f" {found.after_hash[:12]}: {len(found.added_rules)} added, {len(found.removed_rules)} removed",
        err=True,
    )


@app.command("sql-for")
def sql_for(
    engine: Annotated[Engine, typer.Argument(help="Whose SQL to write: `spark`.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write to; README.md in it says how to go on.")],
    mart: Annotated[
        list[str] | None, typer.Option(help="Only this mart and what it reads; may be repeated.")
    ] = None,
) -> None:
    """Write every model in the SQL of another engine, with its functions and a script that runs them."""
    from analysis.warehouse.export import write_folder

    n_files = {Engine.SPARK: write_folder}[engine](folder, mart)
    typer.echo(f"{folder}: {n_files} SQL files; README.md there says how to run them")


def _write(
    columns: Sequence[str],
    rows: "Iterable[Row]",
    format_: Format,
    *,
    folding: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Write rows to standard output as a table, CSV or JSON.

    On a narrow terminal a table wraps the columns `folding`, and leaves out those in `spare` if it must.
    """
    from analysis import row_output

    if format_ is Format.CSV:
        row_output.write_csv(columns, rows, sys.stdout)
    elif format_ is Format.JSON:
        row_output.write_json(columns, rows, sys.stdout)
    else:
        from rich.console import Console

        row_output.write_table(columns, rows, Console(), folding=folding, spare=spare)


@contextmanager
def _progress() -> Iterator["engine.Progress"]:
    """Return a callback that shows on a terminal which mart is being made; elsewhere it does nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _step: None
        return
    with console.status("starting") as status:
        yield lambda step: status.update(_step_in_words(step))


def _step_in_words(step: "engine.Step") -> str:
    """Return one line for a terminal: what a build makes now, and about how many seconds are left."""
    left = "" if step.left_s is None else f", about {step.left_s:.0f} s left"
    return f"building {step.name} ({step.number} of {step.n_steps}{left})"


def _print_build(result: "engine.BuildResult") -> None:
    """Print what a build made, how long it took, with which rules, and the outcomes of its checks."""
    from analysis import checks

    _print_checks(result.checks)
    typer.echo(
        f"{result.database}: chain {result.chain}, marts: {len(result.n_rows)}, made: {len(result.made)}, in"
        f" {result.wall_s:.1f} s, rules {result.rules_hash[:12]}"
    )
    typer.echo(checks.counted(result.checks))
    for line in checks.why_not_applicable(result.checks):
        typer.echo(line)


def _write_rows(
    connection: "duckdb.DuckDBPyConnection", name: str, format_: Format, most: int | None
) -> bool:
    """Write the first `most` rows of a relation, or all if None; return whether the relation has no more."""
    from analysis import row_output
    from analysis.catalog import reading_order

    query = f"SELECT * FROM {name}"  # noqa: S608 - one of our own file names
    if order := reading_order(name):
        query += order if most is None else f"{order} LIMIT {most + 1}"
    reader = connection.sql(query).to_arrow_reader()
    every_row = row_output.rows_of(reader)
    _write(reader.schema.names, islice(every_row, most), format_)
    return next(every_row, None) is None


def _write_query(connection: "duckdb.DuckDBPyConnection", query: str, format_: Format) -> None:
    """Run one query and write all its rows to standard output."""
    from analysis import row_output
    from analysis.database import ask

    reader = ask(connection, query).to_arrow_reader()
    _write(reader.schema.names, row_output.rows_of(reader), format_)


def _print_checks(results: "tuple[CheckResult, ...]") -> None:
    """Print to standard error each check that found offending rows."""
    for result in results:
        if result.n_offending:
            typer.echo(
                f"{result.severity}: {result.name}: offending rows: {result.n_offending:,}. {result.summary}",
                err=True,
            )


def _stop_on_failure(results: "tuple[CheckResult, ...]") -> None:
    """Raise DatabaseError where a check of severity `fail` found offending rows."""
    failed = [result.name for result in results if result.is_failure]
    if failed:
        raise DatabaseError(f"checks failed: {', '.join(failed)}; do not use these results")


def main() -> None:
    """Run the command line; exit with 1 and one line after a failure, with 2 for wrong usage."""
    escape_unencodable_output()
    try:
        with system_errors_in_one_line("pool-analysis: "):
            app(prog_name="pool-analysis")
    except AnalysisError as error:
        from analysis import row_output

        typer.echo(f"pool-analysis: {row_output.inert(str(error))}", err=True)
        sys.exit(2 if isinstance(error, WrongUsageError) else 1)
