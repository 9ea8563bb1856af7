"""Carry out what the command `gpuhash results` asks for: read, refuse, print tables, draw."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from gpuhash.errors import GpuhashError, InvalidInputError
from gpuhash.measure import plot, plot_machines, submissions, tables, whole_file

WIDTH = 240  # of tables, whatever the width of the terminal


def run(
    paths: Sequence[Path],
    *,
    algorithm: str | None,
    stage: str | None,
    price_texts: Sequence[str],
    plot_file: Path | None,
) -> None:
    """Print what benchmark files hold: tables of machines, figures and peers; draw them if asked.

    Raises GpuhashError if a file was refused, after the others have been shown.
    """
    if plot_file is not None:
        plot.require(plot_file)
        whole_file.require(plot_file)
    prices = submissions.prices_of(price_texts)
    accepted, refused = submissions.collect(submissions.files_of(paths), prices)
    for refusal in refused:
        typer.echo(f"refused: {refusal.reason}", err=True)
    if accepted:
        _show(accepted, algorithm=algorithm, stage=stage, plot_file=plot_file)
    if refused:
        raise GpuhashError(f"{len(refused)} of {len(refused) + len(accepted)} files were refused")


def _show(
    accepted: list[submissions.Submission],
    *,
    algorithm: str | None,
    stage: str | None,
    plot_file: Path | None,
) -> None:
    lines = submissions.lines_of(accepted, algorithm, stage)
    if not lines:
        raise InvalidInputError(
            f"no file has a figure of algorithm {algorithm or 'any'} and stage {stage or 'any'}"
        )
    console = Console(width=WIDTH)
    console.print(tables.of_machines(accepted))
    typer.echo("")
    console.print(tables.of_lines(lines))
    peers = submissions.peers_of(accepted, algorithm)
    if peers:
        typer.echo("")
        console.print(tables.of_peer_lines(peers))
        typer.echo("ratio: ours / the peer's, median of rounds in turn on that machine")
    if any(line.result.joules_per_hash is not None for line in lines):
        typer.echo(submissions.WALL_POWER_NOTE)
    else:
        typer.echo(f"energy per hash: {tables.UNKNOWN}, no file has any. {submissions.WALL_POWER_NOTE}")
    if any(line.cost is not None for line in lines):
        typer.echo(
            "cost of 10^12: price per hour / 3600 / hashes per second * 10^12, in the currency of the price"
        )
    if plot_file is not None:
        plot_machines.write_svg(lines, plot_file)
