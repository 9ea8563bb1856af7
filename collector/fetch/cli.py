"""Define the command `pool-collector fetch`."""

import datetime as dt
import difflib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from collector.dataset.command_options import OnlyDatasetOption
from collector.errors import FetchError, SettingsError, Stopped, WrongUsage
from collector.log import printable

if TYPE_CHECKING:
    from collector.fetch.data_sets import DataSet
    from collector.fetch.run import FetchResult

INDENT: Final = "    "  # of a line that goes on
CACHE: Final = Path("data/fetched")


def fetch(  # noqa: PLR0917 - typer passes every option by name
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of data sets; without a name, all are listed.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Take every data set that `make history` uses.")
    ] = False,
    dataset: OnlyDatasetOption = None,
    cache: Annotated[Path, typer.Option(help="Folder for what is downloaded.")] = CACHE,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the files after the import, and do not download them again.")
    ] = False,
    download_only: Annotated[
        bool, typer.Option("--download-only", help="Download and check, but import nothing.")
    ] = False,
    first: Annotated[
        str | None, typer.Option("--from", help="First day (YYYY-MM-DD) of data sets with a file per day.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last day, which is included.")] = None,
    lists: Annotated[
        list[Path] | None,
        typer.Option("--list", help="List of your own (TOML), in place of the built-in one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="List the data sets as one JSON array.")] = False,
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML).")] = None,
) -> None:
    """Download public data sets, check them, and import them. It can be stopped and run again."""
    from collector.fetch.data_sets import load_lists

    listed = load_lists(lists or [])
    chosen = _chosen(listed, names or [], is_history=history)
    if not chosen:
        _show(listed, as_json=as_json)
        return
    days = _days(chosen, first, last)
    from rich.console import Console

    from collector.config import load_settings
    from collector.dataset.open import Dataset
    from collector.fetch.download_view import DownloadView
    from collector.fetch.run import Fetch

    settings = load_settings(config, dataset=dataset, chain="main")
    into = None if download_only else lru_cache(partial(Dataset.open, settings.dataset, "main", create=True))
    if into and settings.dataset.exists():
        into()  # a folder that cannot be used is refused before anything is downloaded
    with _ctrl_c_in_one_line(), DownloadView(Console(stderr=True)) as view:
        outcomes = Fetch(cache, into, is_kept=keep, watch=view).fetch(chosen, *days)
    _tell(outcomes, is_history=history)


def _tell(outcomes: "Sequence[FetchResult]", *, is_history: bool) -> None:
    """Print what came of the download of each data set.

    Raises FetchError if nothing was fetched, or not all that was named.
    """
    for outcome in outcomes:
        for line in outcome.lines():
            print(printable(line), file=sys.stderr if ": " in line and not outcome.is_fetched else sys.stdout)
    n_failed = sum(not outcome.is_fetched for outcome in outcomes)
    n_incomplete = sum(bool(outcome.problems) for outcome in outcomes)
    if n_failed == len(outcomes):
        if all(outcome.n_unreached == len(outcome.problems) for outcome in outcomes):
            raise FetchError(
                "nothing could be fetched, as no server could be reached; check the network of this machine "
                "(HTTPS_PROXY names a proxy, if it needs one) and run the same command again"
            )
        raise FetchError("nothing could be fetched; the lines above say why")
    if n_incomplete and not is_history:
        raise FetchError(f"{n_incomplete} of {len(outcomes)} data sets are not complete; run it again later")


@contextmanager
def _ctrl_c_in_one_line() -> Iterator[None]:
    """Turn Ctrl-C inside the `with` block into the error Stopped, which says that downloaded bytes stay."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped("stopped; what has arrived stays: run the same command to go on") from None


def _chosen(listed: "Mapping[str, DataSet]", names: list[str], *, is_history: bool) -> "list[DataSet]":
    """Return the data sets that the command names; raise WrongUsage for a name that no list has."""
    for name in names:
        if name not in listed:
            close = difflib.get_close_matches(name, listed, n=1)
            hint = f"; do you mean {close[0]}?" if close else ";"
            raise WrongUsage(
                f"there is no data set {printable(name)!r}{hint} `pool-collector fetch` lists them all"
            )
    wanted = dict.fromkeys(names)
    if is_history:
        wanted |= dict.fromkeys(name for name, each in listed.items() if each.history)
        if not wanted:
            raise SettingsError("no data set of the list has `history = true`")
    return [listed[name] for name in wanted]


def _days(
    chosen: "Sequence[DataSet]", first: str | None, last: str | None
) -> tuple[dt.date | None, dt.date | None]:
    """Return the first and last day that the command asks for, each None if not given.

    Raises BadParameter if one is no day, if the first is after the last, or if no data set has files per day.
    """
    if (first or last) and not any(each.is_daily for each in chosen):
        names = ", ".join(each.name for each in chosen)
        raise typer.BadParameter(
            f"--from and --to choose files per day, and {names} has none; leave them out"
        )
    days = _day(first, "--from"), _day(last, "--to")
    if days[0] and days[1] and days[0] > days[1]:
        raise typer.BadParameter(f"--from {first} is after --to {last}")
    return days


def _day(text: str | None, option: str) -> dt.date | None:
    if text is None:
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r} is no day like 2025-03-01") from None


def _show(listed: "Mapping[str, DataSet]", *, as_json: bool) -> None:
    """Print the list of data sets, as text or as a JSON array."""
    if as_json:
        print(json.dumps([each.model_dump(mode="json") for each in listed.values()], indent=1))
        return
    from collector.terminal import text_width, wrapped

    width = text_width()
    for each in listed.values():
        mark = " (in `make history`)" if each.history else ""
        lines = [
            f"{each.name}{mark}: {printable(each.what)}",
            f"  by {printable(each.publisher)}, {printable(each.homepage)}",
            f"  licence: {printable(each.licence)}",
            f"  size: {printable(each.size)}; {_how_checked(each)}",
            f"  feeds: {printable(each.feeds)}",
        ]
        lines += [f"  note: {printable(each.note)}"] if each.note else []
        for line in lines:
            print(wrapped(line, INDENT, width))
    print("\nfetch one with: pool-collector fetch NAME --dataset FOLDER")


def _how_checked(data_set: "DataSet") -> str:
    """Return a text on how a download of this data set is checked, and when it was last compared."""
    if all(file.is_pinned or file.sums_url for file in data_set.file):
        how = "the content is checked against the publisher's digest"
    else:
        how = "the publisher has no digest: the content is checked by reading it"
    return how + (f" (compared on {data_set.checked})" if data_set.checked else "")
