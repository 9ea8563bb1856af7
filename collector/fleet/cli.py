"""Define the command `pool-collector merge`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.dataset.command_options import ChainOption, chosen_path
from collector.errors import WrongUsage
from collector.log import counted

if TYPE_CHECKING:
    from collector.fleet.merge import MemberResult


def merge_members(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MERGED] NAME=DATASET...",
            help="Folder of the merged dataset, made where it is missing, and the members; the first one's "
            "clock counts.",
        ),
    ],
    dataset_option: Annotated[
        Path | None,
        typer.Option("--dataset", help="Folder of the merged dataset, instead of MERGED."),
    ] = None,
    chain: ChainOption = None,
    same_clock: Annotated[
        bool, typer.Option("--same-clock", help="Change no time: all members have one clock.")
    ] = False,
) -> None:
    """Merge datasets of several collectors, each with its own clock, into one. A later call adds what is new.

    A node is called NAME.NODE there. Clocks are compared by the transactions and blocks that both saw, and
    times are corrected to the first member's clock; the table `member_clocks` says how sure that is. Members
    that a later call does not name are removed. Imports are not merged.
    """
    from collector.dataset.open import open_existing

    merged, named = _named(words, dataset_option)
    opened = [(name, open_existing(path, chain)) for name, path in named]  # before large libraries load
    from collector.fleet.merge import Member, merge_datasets

    results = merge_datasets(merged, [Member(*each) for each in opened], trust_clocks=same_clock)
    for result in results:
        print(_as_text(result, first=named[0][0]))


def _named(words: list[str], option: Path | None) -> tuple[Path, list[tuple[str, Path]]]:
    """Return the folder of the merged dataset, and the name and folder of each member.

    Without the option `--dataset` the first word is the merged dataset. Raises WrongUsage if that word names
    a member, if another one names none, or if there is no member.
    """
    has_argument = option is None or "=" not in words[0]
    if has_argument and _names_member(words[0]):
        raise WrongUsage(f"{words[0]!r} names a member; write MERGED before it, or give --dataset")
    merged = chosen_path(Path(words[0]) if has_argument else None, option, "dataset")
    named = [_split(text) for text in words[has_argument:]]
    if merged is None or not named:
        raise WrongUsage("no member is named; write MERGED NAME=DATASET...")
    return merged, named


def _names_member(word: str) -> bool:
    """Return whether a word is NAME=DATASET and no folder that is there."""
    name, equals, _ = word.partition("=")
    return bool(name and equals) and "/" not in name and not Path(word).exists()


def _split(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise WrongUsage(f"{text!r} names no member; write NAME=DATASET")
    return name, Path(path)


def _as_text(result: "MemberResult", first: str) -> str:
    if result.has_left:
        n_parts = counted(result.n_units, "part")
        return f"{result.name}: removed ({n_parts}), as this merge does not name it; name it to get it back"
    parts = f"{counted(result.n_units, 'part')}, {result.n_written} written"
    if not result.offsets:
        return f"{result.name}: its times as they are; {parts}"
    ahead_s = [each.offset_us / 1e6 for each in result.offsets]
    error_s = max(each.error_us for each in result.offsets) / 1e6
    return (
        f"{result.name}: its clock was {min(ahead_s):+.6f} to {max(ahead_s):+.6f} s from that of {first}"
        f" (to at most {error_s:.6f} s); {parts}"
    )
