"""Define the command `pool-collector catalog`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from collector.dataset.command_options import (
    ChainOption,
    ConfigOption,
    DatasetArgument,
    DatasetOption,
    chosen_dataset,
)
from collector.log import counted

if TYPE_CHECKING:
    from collector.catalog.iceberg import CatalogedTable


def catalog_dataset(  # noqa: PLR0917 - typer passes every option by name
    dataset: DatasetArgument = None,
    dataset_option: DatasetOption = None,
    config: ConfigOption = None,
    chain: ChainOption = None,
    catalog: Annotated[
        str | None,
        typer.Option(
            help="Name of a catalogue in pyiceberg's settings; default: SQLite in the dataset's folder."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per table, and nothing else.")
    ] = False,
) -> None:
    """List the files of the dataset in an Apache Iceberg catalogue, or bring that list up to date.

    Engines such as Spark, Trino, Polars and DuckDB then read every table, with its columns of today also from
    older files. No row is copied. Safe while a collector writes; call it again after a seal or a compaction.
    """
    from collector.dataset.open import open_existing

    opened = open_existing(
        chosen_dataset(dataset, dataset_option, config), chain
    )  # before large libraries load
    from collector.catalog.iceberg import bring_up_to_date, named_catalog, own_catalog

    chosen = own_catalog(opened) if catalog is None else named_catalog(catalog)
    for table in bring_up_to_date(opened, chosen):
        print(json.dumps(table.as_json()) if as_json else _as_text(table), flush=True)


def _as_text(table: "CatalogedTable") -> str:
    text = f"{table.name}: {counted(table.n_rows, 'row')} in {counted(table.n_files, 'file')}"
    changes = [f"{n} {word}" for n, word in ((table.n_added, "added"), (table.n_removed, "removed")) if n]
    return f"{text}; {', '.join(changes)}" if changes else text
