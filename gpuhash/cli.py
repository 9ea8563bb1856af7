"""Define the gpuhash command, which hashes files, checks backends and measures speed and energy."""

import logging
import math
import os
import resource
import signal
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuhash.command_end import system_errors_in_one_line
from gpuhash.command_group import CommandGroup
from gpuhash.command_output import escape_unencodable_output
from gpuhash.errors import (
    BackendUnavailableError,
    GpuhashError,
    UnknownAlgorithmError,
    WrongHashError,
)
from gpuhash.measure import cli as cli_bench
from gpuhash.measure.cli import MOST_MESSAGES
from gpuhash.sharing import MOST_THREADS, THREADS_VARIABLE

if TYPE_CHECKING:
    from gpuhash import chain
    from gpuhash.packing import Bytes

MOST_SHOWN_FAULTS = 20  # of a file of headers
LEAST_ADDRESS_SPACE = 2 << 30  # bytes; with less the compiler of the cpu backend crashes

app = typer.Typer(
    cls=CommandGroup,
    help="Batch double SHA-256 and Keccak on a GPU or the CPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(cli_bench.bench)
app.command()(cli_bench.results)
app.command()(cli_bench.sweep)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        try:
            version = metadata.version("pool-measurement")
        except metadata.PackageNotFoundError:  # a folder copied to a bare machine
            version = "of unknown version: run from a folder, not installed"
        typer.echo(f"gpuhash {version}")
        raise typer.Exit


class ChainName(StrEnum):
    """Lists the chains whose rules for headers are known."""

    MAIN = "main"
    TESTNET = "testnet"
    TESTNET4 = "testnet4"
    SIGNET = "signet"
    REGTEST = "regtest"


BackendOption = Annotated[str, typer.Option(help="auto, cuda, cpu or reference.")]


@app.callback()
def configure(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say which backend is chosen, and why.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_THREADS, help="Threads of the cpu backend, as $GPUHASH_THREADS."),
    ] = None,
) -> None:
    """Set up the log and the number of threads before a command runs."""
    del version  # its callback has done what it asks for
    if threads is not None:
        os.environ[THREADS_VARIABLE] = str(threads)
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.INFO if verbose else logging.WARNING)


@app.command()
def info() -> None:
    """Print the CPU, memory, packages and GPUs of this machine, and the backend that `auto` takes here."""
    from gpuhash.backend import choose
    from gpuhash.measure import machine

    facts = asdict(machine.describe())
    gpus, memory_bytes = facts.pop("gpus"), facts.pop("memory_bytes")
    rows = [(name.replace("_", " "), _plain(value)) for name, value in facts.items()]
    rows.append(("memory", f"{memory_bytes / 2**30:.1f} GiB"))
    rows += [(f"gpu {number}", gpu) for number, gpu in enumerate(gpus)] or [("gpu", _missing_gpu())]
    rows.append(("backend auto", choose("auto").name))
    for name, fact in rows:
        typer.echo(f"{name:14}{fact}")


@app.command()
def verify(  # noqa: PLR0917 - typer passes every option by name
    file: Annotated[Path, typer.Argument(help="File to read, or - for standard input.")],
    algorithm: Annotated[str, typer.Option(help="sha256d, sha256, keccak256 or sha3-256.")] = "sha256d",
    headers: Annotated[
        bool, typer.Option("--headers", help="Read 80-byte block headers; check work and links.")
    ] = False,
    chain_name: Annotated[
        ChainName | None,
        typer.Option(
            "--chain",
            metavar="<chain>",
            help="With --headers: check limit, retargets, times and first block by the rules of this chain "
            f"({', '.join(ChainName)}).",
        ),
    ] = None,
    first_height: Annotated[int, typer.Option(min=0, help="With --chain: height of the first header.")] = 0,
    backend: BackendOption = "auto",
) -> None:
    """Print algorithm and digest of FILE, or check that its headers meet their targets and form a chain."""
    import numpy as np

    from gpuhash import chain, hashing
    from gpuhash.chain_rules import CHAINS

    if not headers and (chain_name is not None or first_height):
        raise typer.BadParameter("--chain and --first-height are about headers: add --headers")
    if first_height and chain_name is None:
        raise typer.BadParameter("--first-height is of use only with --chain")
    data = np.frombuffer(_read(file), np.uint8)
    if headers:
        at = chain.Position(rules=CHAINS[chain_name], first_height=first_height) if chain_name else None
        _verify_headers(data, at, backend)
        return
    limits_of_one = np.array([0, len(data)])
    digest = hashing.hash_batch(algorithm, (data, limits_of_one), backend=backend)[0].tobytes()
    if digest != hashing.hash_batch(algorithm, (data, limits_of_one), backend="reference")[0].tobytes():
        raise WrongHashError(f"backend {backend} gives {digest.hex()}, which is not what the reference gives")
    typer.echo(f"{algorithm}  {digest.hex()}  {file}")


@app.command()
def check(
    backend: BackendOption = "auto",
    messages: Annotated[
        int, typer.Option(min=1, max=MOST_MESSAGES, help="Random messages per algorithm.")
    ] = 10_000,
) -> None:
    """Compare a backend with the reference on this machine; on a GPU every variant of every kernel."""
    from gpuhash import check as checks
    from gpuhash.backend import choose

    name = choose(backend).name
    faults = 0
    for result in checks.run_cuda(messages) if name == "cuda" else checks.run(choose(name), messages):
        typer.echo(f"{'ok   ' if result.passed else 'WRONG'}  {result.name}  {result.fault}".rstrip())
        faults += not result.passed
    if faults:
        raise WrongHashError(f"{faults} comparisons failed; do not use backend {name} on this machine")


@app.command(name="limits")
def show_limits(
    arch: Annotated[str, typer.Option(help="Architecture, such as sm_90.")] = "sm_90",
    sm: Annotated[int, typer.Option(min=1, help="Streaming multiprocessors of the device.")] = 132,
    mhz: Annotated[float, typer.Option(min=1, max=1_000_000, help="Clock of the device.")] = 1980,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Measure the limits of this CPU instead: units, shifts, waiting.")
    ] = False,
    recount: Annotated[
        bool, typer.Option("--recount", help="Compile for every architecture and print the counts as CSV.")
    ] = False,
) -> None:
    """Print the most hashes a GPU can do, from the machine code of the kernels: a model, not a speed."""
    from rich.console import Console

    from gpuhash.measure import ceiling, limits, machine_code, tables

    if cpu:
        Console(width=160).print(tables.of_cpu_bounds(ceiling.of_cpu()))
        return
    if recount:
        typer.echo(machine_code.HEADER)
        for limit in machine_code.recount():
            typer.echo(machine_code.csv_line(limit))
        return
    rows = limits.for_architecture(arch)
    typer.echo(f"{arch}, {sm} SMs at {mhz:g} MHz; hashes/s = {limits.FORMULA}")
    Console(width=160).print(tables.of_limits(rows, sm, mhz))


def _verify_headers(data: "Bytes", at: "chain.Position | None", backend: str) -> None:
    from gpuhash import chain
    from gpuhash.chain_rules import PERIOD

    matrix = chain.split_headers(data)
    if len(matrix) == 0:
        raise GpuhashError("there is no header: the input is empty")
    faults = chain.header_faults(matrix, at=at, backend=backend)
    for fault in faults[:MOST_SHOWN_FAULTS]:
        name = f"header {fault.index}" if at is None else f"height {at.first_height + fault.index}"
        typer.echo(f"{name}: {fault.reason}", err=True)
    if len(faults) > MOST_SHOWN_FAULTS:
        typer.echo(f"and {len(faults) - MOST_SHOWN_FAULTS} faults more", err=True)
    if faults:
        raise GpuhashError(f"headers: {len(matrix)}, faults: {len(faults)}")
    said = f"headers: {len(matrix)}; every hash is at most its target, every link holds"
    if at is not None:
        last = at.first_height + len(matrix) - 1
        n_retargets = max(0, last // PERIOD - math.ceil(at.first_height / PERIOD))
        said += f", every target and time follows the rules of {at.rules.name} (retargets: {n_retargets})"
    typer.echo(said)


def _read(file: Path) -> bytes:
    if str(file) == "-" and sys.stdin is None:
        raise GpuhashError("cannot read standard input: it is closed")
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise GpuhashError(f"cannot read {file}: {error.strerror}") from error


def _missing_gpu() -> str:
    from gpuhash.cuda_device import devices

    try:
        devices()
    except BackendUnavailableError as missing:
        return str(missing)
    return ""


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {version}" for key, version in value.items())
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def main() -> None:
    """Run the command line; exit 1 with one line of text on failure, and 2 for wrong usage."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        sys.exit(
            f"gpuhash: this process may use {limit >> 20} MiB of address space (ulimit -v), and needs "
            f"{LEAST_ADDRESS_SPACE >> 20} MiB; raise the limit"
        )
    escape_unencodable_output()
    try:
        with system_errors_in_one_line("gpuhash: "):
            app(prog_name="gpuhash")
    except GpuhashError as error:
        typer.echo(f"gpuhash: {error}", err=True)
        sys.exit(2 if isinstance(error, UnknownAlgorithmError) else 1)  # a name on the command line
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            typer.echo("gpuhash: stopped by Ctrl-C", err=True)
        raise
    except MemoryError as error:
        typer.echo(f"gpuhash: out of memory: {error}; take fewer or shorter messages", err=True)
        sys.exit(1)
