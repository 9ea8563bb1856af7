"""Define options of `pool-analysis`: those that name dataset and database, and how a build is done.

A dataset or database can stand as an argument or behind an option. This module imports nothing large, because
the help of every verb reads it.
"""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from analysis.errors import DatabaseError
from collector.dataset.command_options import chosen_path
from collector.dataset.open import is_utf8

DEFAULT_DATABASE: Final = Path("data/build/analysis.duckdb")

DatabaseArgument = Annotated[
    Path | None, typer.Argument(help=f"DuckDB file of the results; default: {DEFAULT_DATABASE}.")
]
DatabaseOption = Annotated[
    Path | None, typer.Option("--database", help="DuckDB file, instead of the argument.")
]

MemoryOption = Annotated[
    str | None, typer.Option("--memory", help="Most memory to take, as 2GB; default: 4/5 of the machine's.")
]
EngineOption = Annotated[
    str, typer.Option("--engine", help="Who makes the marts: local, or a Spark cluster (spark://…).")
]
WorkersOption = Annotated[
    int,
    typer.Option(
        "--workers", min=1, max=256, help="Processes here that make marts at one time and share --memory."
    ),
]

LOCAL: Final = "local"  # the engine that is no cluster
MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|MB)", re.IGNORECASE)


def memory_gb(text: str | None) -> float | None:
    """Convert a size such as `2GB` or `500MB` to a number of GB (10^9 bytes) and return it; None stays None.

    Raises typer.BadParameter for another text.
    """
    if text is None:
        return None
    found = MEMORY.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"{text!r} is no size; write it as 2GB or 500MB")
    return float(found[1]) / (1 if found[2].upper() == "GB" else 1000)


def chosen_database(argument: Path | None, option: Path | None) -> Path:
    """Return the path of the database: the positional argument or the option, else the default path.

    Raises typer.BadParameter when both are given and differ, or name a folder; DatabaseError for a path that
    DuckDB cannot open.
    """
    path = chosen_path(argument, option, "database") or DEFAULT_DATABASE
    if not path.name:
        raise typer.BadParameter(f"{path} is a folder; name the file of the database")
    if not is_utf8(path.absolute()):
        raise DatabaseError(f"the path {path} is not UTF-8, which DuckDB needs; choose another name")
    return path
