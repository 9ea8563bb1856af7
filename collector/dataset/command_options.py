"""Define the options by which every command names a dataset and a chain.

A dataset can stand as an argument or behind `--dataset`; a command takes both and asks `chosen_dataset`.
This module imports nothing large, because the help of every command reads it.
"""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from collector.dataset.chains import CHAINS

VARIABLE: Final = "POOL_COLLECTOR_DATASET"
DEFAULT_DATASET: Final = Path("data/dataset")

DatasetArgument = Annotated[
    Path | None,
    typer.Argument(help=f"Folder of the dataset; default: ${VARIABLE}, or else {DEFAULT_DATASET}."),
]
DatasetOption = Annotated[Path | None, typer.Option("--dataset", help="The same, as an option.")]
ChainOption = Annotated[
    str | None,
    typer.Option(
        metavar=f"<{'|'.join(CHAINS)}>", help="Chain to read; needed only where the dataset has several."
    ),
]


def chosen_path(argument: Path | None, option: Path | None, name: str) -> Path | None:
    """Return the path that was given as an argument or as the option `--<name>`; None if it was not given.

    Raises typer.BadParameter when both are given and differ.
    """
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"{argument} and --{name} {option} are two paths; give one {name}")
    return option if argument is None else argument


def chosen_dataset(argument: Path | None, option: Path | None) -> Path:
    """Return the dataset's folder: the one given, else the one in the environment, else the default.

    Raises typer.BadParameter when argument and option are given and differ.
    """
    given = chosen_path(argument, option, "dataset")
    return given or Path(os.environ.get(VARIABLE) or DEFAULT_DATASET)
