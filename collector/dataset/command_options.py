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
CHAIN_NAMES: Final = f"{', '.join(CHAINS[:-1])} or {CHAINS[-1]}"
DEFAULT_DATASET: Final = Path("data/dataset")

FOLDER_HELP: Final = f"Folder of the dataset; default: ${VARIABLE}, or else {DEFAULT_DATASET}."
DatasetArgument = Annotated[Path | None, typer.Argument(help=FOLDER_HELP)]
DatasetOption = Annotated[Path | None, typer.Option("--dataset", help="Folder, instead of the argument.")]
OnlyDatasetOption = Annotated[Path | None, typer.Option("--dataset", help=FOLDER_HELP)]  # without an argument
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings file (TOML) that names the dataset.")
]


def known_chain(chain: str | None) -> str | None:
    """Return the name of a chain that was given as an option; raise typer.BadParameter if no chain has it."""
    if chain is not None and chain not in CHAINS:
        raise typer.BadParameter(f"there is no chain {chain!r}; choose one of {', '.join(CHAINS)}")
    return chain


ChainOption = Annotated[
    str | None,
    typer.Option(
        metavar="<chain>",
        help=f"Chain to read: {CHAIN_NAMES}; needed only where the dataset has several.",
        callback=known_chain,
    ),
]


def chosen_path(argument: Path | None, option: Path | None, name: str) -> Path | None:
    """Return the path that was given as an argument or as the option `--<name>`; None if it was not given.

    Raises typer.BadParameter when both are given and differ.
    """
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"{argument} and --{name} {option} are two paths; give one {name}")
    return option if argument is None else argument


def chosen_dataset(argument: Path | None, option: Path | None, config: Path | None = None) -> Path:
    """Return the dataset's folder: the one given, of the environment, of a settings file, or by default.

    Raises typer.BadParameter when argument and option are given and differ, and SettingsError for a settings
    file that cannot be used, also where another folder is given.
    """
    given = chosen_path(argument, option, "dataset")
    if config is not None:
        from collector.config import load_settings  # noqa: PLC0415 - loads pydantic, which no help needs

        named = load_settings(config).dataset
        return given or named
    return given or Path(os.environ.get(VARIABLE) or DEFAULT_DATASET)
