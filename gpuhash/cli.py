"""The gpuhash command: say what the machine is, hash, check headers."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from gpuhash import chain, hashing, machine
from gpuhash import check as checks
from gpuhash.backend import choose
from gpuhash.errors import GpuhashError, WrongHashError
from gpuhash.packing import Bytes

app = typer.Typer(
    help="Batch double SHA-256 and Keccak on a GPU or the CPU.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

BackendOption = Annotated[str, typer.Option(help="auto, cuda, cpu or reference.")]


@app.command()
def info() -> None:
    """Say what this machine is and what hashes on it."""
    facts = Table(show_header=False, box=None)
    for name, value in asdict(machine.describe()).items():
        facts.add_row(name.replace("_", " "), _plain(value))
    Console().print(facts)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="File to read, or - for standard input.")],
    algorithm: Annotated[str, typer.Option(help="sha256d, sha256, keccak256 or sha3-256.")] = "sha256d",
    headers: Annotated[
        bool, typer.Option("--headers", help="Read 80-byte block headers; check work and links.")
    ] = False,
    backend: BackendOption = "auto",
) -> None:
    """Print the digest of FILE, or check that its block headers carry their work and form a chain."""
    data = np.frombuffer(_read(file), np.uint8)
    if headers:
        _verify_headers(data, backend)
        return
    limits = np.array([0, len(data)])
    digest = hashing.hash_batch(algorithm, (data, limits), backend=backend)[0].tobytes()
    if digest != hashing.hash_batch(algorithm, (data, limits), backend="reference")[0].tobytes():
        raise WrongHashError(f"backend {backend} gives {digest.hex()}, which is not what the reference gives")
    typer.echo(f"{digest.hex()}  {file}")


@app.command()
def check(
    backend: BackendOption = "auto",
    messages: Annotated[int, typer.Option(min=1, help="Random messages per algorithm.")] = 10_000,
) -> None:
    """Compare a backend with the reference on this machine; on a GPU every variant of every kernel."""
    name = choose(backend).name
    faults = 0
    for result in checks.run_cuda(messages) if name == "cuda" else checks.run(choose(name), messages):
        typer.echo(f"{'ok   ' if result.passed else 'WRONG'}  {result.name}  {result.fault}".rstrip())
        faults += not result.passed
    if faults:
        raise WrongHashError(
            f"{faults} comparisons with the reference failed; do not use backend {name} here"
        )


def _verify_headers(data: Bytes, backend: str) -> None:
    matrix = chain.split_headers(data)
    faults = chain.header_faults(matrix, backend=backend)
    for fault in faults:
        typer.echo(f"header {fault.index}: {fault.reason}", err=True)
    if faults:
        raise GpuhashError(f"{len(faults)} faults in {len(matrix)} headers")
    typer.echo(f"{len(matrix)} headers: every hash is at most its target, every link holds")


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise GpuhashError(f"cannot read {file}: {error.strerror}") from error


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {version}" for key, version in value.items())
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def main() -> None:
    """Run the command line; exit 1 with one line on failure, 2 for wrong usage."""
    try:
        app()
    except GpuhashError as error:
        typer.echo(f"gpuhash: {error}", err=True)
        sys.exit(1)
