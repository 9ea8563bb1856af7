"""Which dataset and chain a command is about: its argument and option, and how they are resolved."""

from pathlib import Path
from typing import Annotated, Final

import typer

from collector.dataset.schema import CHAINS
from collector.dataset.writer import Dataset
from collector.errors import DatasetError

CHAIN_PREFIX: Final = "chain="

DatasetArgument = Annotated[
    Path, typer.Argument(envvar="POOL_COLLECTOR_DATASET", help="Folder of the dataset.", show_default=True)
]
ChainOption = Annotated[
    str | None, typer.Option(help=f"One of {', '.join(CHAINS)}; the one that is there unless set.")
]


def open_existing(root: Path, chain: str | None) -> Dataset:
    """Open a dataset that is there. Raises DatasetError when it is not, or must be told the chain."""
    found = [name for name in CHAINS if (root / f"{CHAIN_PREFIX}{name}").is_dir()]
    if chain is None and len(found) > 1:
        raise DatasetError(f"{root} has the chains {', '.join(found)}; choose one with --chain")
    if chain is not None and found and chain not in found:
        raise DatasetError(f"{root} has no chain {chain!r}, only {', '.join(found)}")
    return Dataset.open(root, chain or (found[0] if found else CHAINS[0]))
