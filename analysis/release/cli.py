"""Define the commands `pool-analysis release` and `pool-analysis verify`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from analysis.command_options import DatabaseArgument, DatabaseOption, chosen_database
from analysis.errors import ReleaseError
from analysis.row_output import inert


def known_licence(text: str | None) -> str | None:
    """Return a licence as the list of SPDX writes its name; None stays None.

    Raises typer.BadParameter for a text that is no name in the list, also for several joined by OR or AND,
    which CITATION.cff cannot hold.
    """
    if text is None:
        return None
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        name = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        name = ""
    if not name or " " in name or name.startswith("LicenseRef-"):
        raise typer.BadParameter(
            f"{text!r} is no licence in the list of https://spdx.org/licenses; write one such as CC-BY-4.0"
        )
    return name


def encodable(text: str | Sequence[str] | None) -> str | Sequence[str] | None:
    """Return what was given for an option. Raises typer.BadParameter for bytes that are not UTF-8."""
    from collector.dataset.open import is_utf8

    for each in [text] if isinstance(text, str) else text or ():
        if not is_utf8(each):
            raise typer.BadParameter(f"{inert(each)} is not UTF-8; write it in that encoding")
    return text


def release(  # noqa: PLR0917 - typer passes every option by name
    out: Annotated[Path, typer.Option(help="New folder for the release.")],
    database: DatabaseArgument = None,
    database_option: DatabaseOption = None,
    pools: Annotated[
        Path | None, typer.Option(help="Folder of the pool rules of the build. Default: the project's own.")
    ] = None,
    with_dataset: Annotated[
        bool, typer.Option("--with-dataset", help="Put the dataset in as well, so that anybody can rebuild.")
    ] = False,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Leave out names of nodes and addresses.")
    ] = False,
    title: Annotated[str | None, typer.Option(help="Title to cite.", callback=encodable)] = None,
    author: Annotated[
        list[str] | None, typer.Option(help="Author to cite; may be repeated.", callback=encodable)
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option(
            help="Licence of the data, as SPDX names it, such as CC-BY-4.0.", callback=known_licence
        ),
    ] = None,
) -> None:
    """Write the results as files to publish: Parquet, checksums, data package, methods, citation."""
    from analysis.attribution.rules import default_rules_dir
    from analysis.release.documents import About
    from analysis.release.write import Choices, write_release

    done = write_release(
        chosen_database(database, database_option),
        pools or default_rules_dir(),
        out,
        Choices(
            with_dataset=with_dataset,
            anonymous=anonymous,
            about=About(title=title, authors=author or (), licence=licence),
        ),
    )
    typer.echo(f"release: {done.folder}, {done.n_files} files, {done.n_bytes / 1e6:.1f} MB")


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a release.")],
    dataset: Annotated[
        Path | None,
        typer.Option(help="Dataset to rebuild the marts from. Default: that of the release, if it has one."),
    ] = None,
) -> None:
    """Compare a release with its checksums and, given the dataset, rebuild and compare bit by bit."""
    from analysis.release.verify import verify_release

    verdict = verify_release(folder, dataset)
    for fault in verdict.faults:
        typer.echo(inert(fault), err=True)
    if verdict.other_software:
        typer.echo("other software rebuilt than built:", err=True)
    for fact in verdict.other_software:
        typer.echo(f"  {inert(fact)}", err=True)
    if verdict.faults:
        raise ReleaseError(f"{folder} is not what was released: faults: {len(verdict.faults)}, named above")
    rebuilt = (
        "nothing was rebuilt: name its --dataset"
        if verdict.n_rebuilt is None
        else f"{verdict.n_rebuilt} marts rebuilt, equal bit by bit"
    )
    typer.echo(f"{folder}: {verdict.n_files} files as released; {rebuilt}", file=sys.stdout)
