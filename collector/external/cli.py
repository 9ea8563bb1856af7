"""Define the commands `pool-collector import` and `pool-collector export`."""

import difflib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.dataset import command_options
from collector.external.names import KIND_NAMES, PROVIDER_NAMES
from collector.log import counted, printable

if TYPE_CHECKING:
    from collector.config import Settings
    from collector.dataset.open import Dataset
    from collector.external.imported_rows import ImportFile

ProviderOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        help=f"Publisher: {', '.join(PROVIDER_NAMES)}. Sets the form of the files, source, licence and url.",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(help="Names of columns in the files, e.g. height=block_height,hash=id."),
]
FirstHeightOption = Annotated[
    int | None, typer.Option(min=0, help="Height of the first header of a file of headers.")
]
ChainOption = Annotated[
    str | None,
    typer.Option(
        metavar="<chain>",
        help=f"Chain of the blocks: {command_options.CHAIN_NAMES}; default: the dataset's only one, or main "
        "where it has none.",
        callback=command_options.known_chain,
    ),
]


class ExportKind(StrEnum):
    """Lists what the command `export` can write for others: block arrivals or stale blocks."""

    ARRIVALS = "arrivals"
    STALE_BLOCKS = "stale-blocks"


def import_external(  # noqa: PLR0917 - typer passes every option by name
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND] FILE",
            help="What the files hold, which --from finds by itself, and the files. "
            f"KIND is one of {', '.join(KIND_NAMES)}.",
        ),
    ] = None,
    provider: ProviderOption = None,
    source: Annotated[str | None, typer.Option(help="Short name of who says so, e.g. my-node.")] = None,
    licence: Annotated[str | None, typer.Option(help="Terms under which the files are given.")] = None,
    url: Annotated[str | None, typer.Option(help="Where the files were taken from.")] = None,
    columns: ColumnsOption = None,
    first_height: FirstHeightOption = None,
    dataset: command_options.OnlyDatasetOption = None,
    chain: ChainOption = None,
    currency: Annotated[str, typer.Option(help="What prices are in.")] = "USD",
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML).")] = None,
) -> None:
    """Import files that others published: arrival times, blocks, pool labels, prices and more."""
    from collector.config import load_settings
    from collector.dataset.open import Dataset
    from collector.external.header_files import reader_for
    from collector.external.imported_rows import Origin, read_import
    from collector.external.kinds import column_names
    from collector.external.providers import read_files

    words = words or []
    kind = next((word for word in words[:1] if word in KIND_NAMES), None)
    paths = [Path(word) for word in words[kind is not None :]]
    _refuse_missing(kind, paths, provider, {"--source": source, "--licence": licence, "--url": url})
    settings = load_settings(config, dataset=dataset, chain=chain)
    chain = _chosen_chain(settings)
    if provider is not None:
        if columns is not None:
            raise typer.BadParameter("--columns and --from exclude each other: --from knows the columns")
        files = read_files(paths, provider, chain=chain, kind=kind, source=source, licence=licence, url=url)
    else:
        origin = Origin(source or "", licence or "", url or "")
        theirs = column_names(kind or "", columns) if columns else {}
        read = reader_for(kind or "", settings.dataset, chain, first_height)
        files = [
            read_import(kind or "", path, origin, currency=currency, theirs=theirs, read=read)
            for path in paths
        ]
    # Only now: if a file is refused, none leaves anything behind.
    _store(Dataset.open(settings.dataset, chain, create=True), paths, files)


def export_lists(  # noqa: PLR0917 - typer passes every option by name
    kind: Annotated[ExportKind, typer.Argument(help="What to write.")],
    node: Annotated[str, typer.Option(help="Name of the node that saw it.")],
    out: Annotated[Path, typer.Option(help="File to write; an earlier one is replaced.")],
    dataset: command_options.DatasetArgument = None,
    dataset_option: command_options.DatasetOption = None,
    chain: ChainOption = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML).")] = None,
) -> None:
    """Write block arrivals or stale blocks of a node as bitcoin-data publishes them (CSV)."""
    from collector.config import load_settings
    from collector.dataset.open import Dataset
    from collector.external.exports import arrival_lines, stale_lines, write_lines

    dataset = command_options.chosen_path(dataset, dataset_option, "dataset")
    settings = load_settings(config, dataset=dataset, chain=chain)
    found = Dataset.open(settings.dataset, _chosen_chain(settings))
    is_stale = kind is ExportKind.STALE_BLOCKS
    lines = stale_lines(found, node) if is_stale else arrival_lines(found, node)
    write_lines(out, lines)
    n_rows = len(lines) - is_stale
    print(f"{out}: {n_rows:,} {'stale blocks' if is_stale else 'arrivals'} of {node}")


def _refuse_missing(
    kind: str | None, paths: list[Path], provider: str | None, origin: Mapping[str, str | None]
) -> None:
    """Raise typer.BadParameter that names each option of `import` that is missing and cannot be inferred.

    A first word that is neither a kind nor a file is named too.
    """
    if provider is not None and provider not in PROVIDER_NAMES:
        raise typer.BadParameter(
            f"no publisher {provider!r} is known; --from takes {', '.join(PROVIDER_NAMES)}"
        )
    if provider is None and kind is None and paths and not (paths[0].suffix or paths[0].exists()):
        word = str(paths[0])
        close = difflib.get_close_matches(word, KIND_NAMES, n=1)
        hint = f" do you mean {close[0]}?" if close else ""
        raise typer.BadParameter(
            f"there is no kind {printable(word)!r};{hint} KIND is one of {', '.join(KIND_NAMES)}"
        )
    missing = [] if paths else ["FILE"]
    if provider is None:
        missing += [] if kind else [f"KIND (one of {', '.join(KIND_NAMES)})"]
        missing += [option for option, value in origin.items() if value is None]
    if missing:
        hint = "" if provider else f"; or name the publisher instead: --from {', '.join(PROVIDER_NAMES)}"
        raise typer.BadParameter(f"missing: {', '.join(missing)}{hint}")


def _chosen_chain(settings: "Settings") -> str:
    """Return the chain that the settings name, else the dataset's only one, or main where it has none yet.

    Raises DatasetError when the dataset has several and none is named.
    """
    from collector.dataset.open import only_chain

    is_named = "chain" in settings.model_fields_set
    return settings.chain if is_named else only_chain(settings.dataset) or settings.chain


def _store(dataset: "Dataset", paths: list[Path], files: "list[ImportFile]") -> None:
    from collector.external.imported_rows import store_import

    for path, file in zip(paths, files, strict=True):
        result = store_import(dataset, file)
        name = f"{printable(path.name)}: " if len(paths) > 1 else ""
        print(
            f"{name}{result.table}: {counted(result.n_rows, 'row')} in the file, {result.n_new:,} of them new"
        )
