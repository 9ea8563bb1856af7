"""Define the commands `pool-collector compact` and `pool-collector mend`."""

import datetime as dt
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
    from collector.compaction.mend import Mended
    from collector.compaction.run import PartitionResult
    from collector.dataset.open import Dataset


def compact_dataset(  # noqa: PLR0917 - typer passes every option by name
    dataset: DatasetArgument = None,
    dataset_option: DatasetOption = None,
    config: ConfigOption = None,
    chain: ChainOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per partition, and nothing else.")
    ] = False,
    keep_bodies_days: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,  # as in the settings
            help="First remove the rows of mempool_bodies that are older, unless the clock may be ahead; "
            "default: none.",
        ),
    ] = None,
) -> None:
    """Merge the small files of past days and of full ranges of heights. Exit 1 if one cannot be merged.

    Safe while a collector writes and others read. Rows that are equal in every column become one row.
    """
    from collector.dataset.local_part import found_local_part
    from collector.dataset.open import open_existing

    place = found_local_part(chosen_dataset(dataset, dataset_option, config))
    opened = open_existing(place.folder, chain)  # before large libraries load
    from collector.upload.follow import sealing_into

    with sealing_into(opened, place.store):
        n_failed = _compact(opened, keep_bodies_days, as_json=as_json)
    raise typer.Exit(1 if n_failed else 0)


def _compact(dataset: "Dataset", keep_bodies_days: int | None, *, as_json: bool) -> int:
    """Compact a dataset, print what was done, and return how many partitions could not be merged."""
    from collector.compaction.run import compact

    today = dt.datetime.now(dt.UTC).date()
    n_merged = n_failed = 0
    if keep_bodies_days is not None:
        n_failed += not _remove_bodies(dataset, keep_bodies_days, today, as_json=as_json)
    for result in compact(dataset, today=today):
        print(_as_json(result) if as_json else _as_text(result), flush=True)
        n_failed += bool(result.error)
        n_merged += result.merged is not None
    if not as_json:
        print(f"{counted(n_merged, 'partition')} merged, {n_failed} left as they are")
    return n_failed


def _remove_bodies(dataset: "Dataset", keep_days: int, today: dt.date, *, as_json: bool) -> bool:
    """Remove raw bytes that are too old, and print what was done; return whether the clock can be trusted."""
    from collector.compaction.aged_bodies import doubt_of_clock, remove_bodies
    from collector.compaction.run import PartitionResult, closed_folders
    from collector.dataset.schema import MEMPOOL_BODIES

    first_day = today - dt.timedelta(days=keep_days)
    if not closed_folders(dataset, MEMPOOL_BODIES, first_day):
        return True
    if doubt := doubt_of_clock(dataset, today):
        result = PartitionResult(MEMPOOL_BODIES.name, 0, None, doubt)
        print(_as_json(result) if as_json else _as_text(result))
        return False
    for partition in remove_bodies(dataset, first_day):
        print(json.dumps({"partition": partition, "removed": True}) if as_json else f"{partition}: removed")
    return True


def _as_text(result: "PartitionResult") -> str:
    if result.moved_to:
        return f"{result.partition}: now {result.moved_to}"
    if result.merged is None:
        return f"{result.partition}: left as it is: {result.error}"
    merged = result.merged
    text = (
        f"{result.partition}: {result.n_files} files are now one; {counted(merged.n_rows, 'row')}, "
        f"{merged.bytes_before} bytes before, {merged.bytes_after} now"
    )
    if merged.n_removed:
        text += f"; dropped {counted(merged.n_removed, 'row')} equal to another"
    if merged.n_differing:
        twice = counted(merged.n_differing, "key")
        text += f"; kept rows of {twice} that differ, see `pool-collector check`"
    return text


def _as_json(result: "PartitionResult") -> str:
    merged = {} if result.merged is None else result.merged._asdict()
    return json.dumps(
        {
            "partition": result.partition,
            "n_files": result.n_files,
            **merged,
            "error": result.error or None,
            "moved_to": result.moved_to or None,
        }
    )


def mend_dataset(
    dataset: DatasetArgument = None,
    dataset_option: DatasetOption = None,
    config: ConfigOption = None,
    chain: ChainOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per partition, and nothing else.")
    ] = False,
) -> None:
    """Fill null fees of mempool_txs from the same transactions in blocks. Exit 1 if a partition is left out.

    Safe while a collector writes and others read. A second run finds nothing to do. Fees that blocks lack
    come from `pool-collector backfill`; the last line says which those are.
    """
    from collector.dataset.open import open_existing

    opened = open_existing(
        chosen_dataset(dataset, dataset_option, config), chain
    )  # before large libraries load
    from collector.compaction.mend import blocks_without_fees, mend

    n_filled = n_failed = 0
    for result in mend(opened):
        print(json.dumps(_mended_data(result)) if as_json else _mended_text(result), flush=True)
        n_filled += result.n_filled
        n_failed += bool(result.error)
    if not as_json:
        print(f"{counted(n_filled, 'fee')} filled, {counted(n_failed, 'partition')} left as they are")
        if heights := blocks_without_fees(opened).values():
            print(
                f"{counted(len(heights), 'block')} without fees: `pool-collector backfill --node --chain "
                f"{opened.chain} --dataset {opened.root} --from {min(heights)} --to {max(heights)}` fills "
                "those of the node's chain; then run this again"
            )
    raise typer.Exit(1 if n_failed else 0)


def _mended_text(result: "Mended") -> str:
    if result.error:
        return f"{result.partition}: left as it is: {result.error}"
    return f"{result.partition}: {counted(result.n_filled, 'fee')} filled from transactions"


def _mended_data(result: "Mended") -> dict[str, str | int | None]:
    return {"partition": result.partition, "n_filled": result.n_filled, "error": result.error or None}
