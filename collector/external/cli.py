"""The command `pool-collector import`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from collector.config import load_settings
from collector.dataset.open import Dataset
from collector.external.store import Origin, read_import, store_import


class Kind(StrEnum):
    """Lists what an imported file can hold."""

    ARRIVALS = "arrivals"
    BLOCKS = "blocks"
    LABELS = "labels"
    PRICES = "prices"


def import_external(  # noqa: PLR0917 - typer passes every option by name
    kind: Annotated[Kind, typer.Argument(help="What the file holds.")],
    file: Annotated[Path, typer.Argument(help="CSV, TSV or Parquet with named columns; prices also JSON.")],
    source: Annotated[str, typer.Option(help="Short name of who says so, e.g. blockchair.")],
    licence: Annotated[str, typer.Option(help="Terms under which the file is given.")],
    url: Annotated[str, typer.Option(help="Where the file was taken from.")],
    dataset: Annotated[
        Path | None, typer.Option(help="Folder of the dataset; data/dataset unless set.")
    ] = None,
    chain: Annotated[str | None, typer.Option(help="Chain of the blocks; main unless set.")] = None,
    currency: Annotated[str, typer.Option(help="What prices are in.")] = "USD",
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML).")] = None,
) -> None:
    """Import arrival times, blocks, pool labels or prices from a file that somebody else published."""
    settings = load_settings(config, dataset=dataset, chain=chain)
    read = read_import(kind.value, file, Origin(source, licence, url), currency=currency)
    # Only now: a file that is refused leaves nothing behind.
    result = store_import(Dataset.open(settings.dataset, settings.chain, create=True), read)
    print(f"{result.table}: {result.n_rows:,} rows in the file, {result.n_new:,} of them new")
