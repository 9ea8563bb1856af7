"""Merge the datasets of several collectors into one, and keep it up to date.

The merged dataset is an ordinary one. A node is called `<member>.<node>`, and every time of a collector's
clock is corrected to the clock of the first member (`clocks`). A day of a member's table is one unit; it is
written again only when its files, or the offsets of its clock, have changed. Blocks and their transactions
belong to nobody: each is there once, the row that knows its fees first, and what is null in it is filled from
the rows of the other members. What others publish (`external_*`) is not merged; import it into the merged
dataset.

`fleet.json` in the merged dataset lists the units and their files. A unit is written beside the dataset and
then put in place, and its old file removed, under the lock that readers share. A file has a name that no
earlier one had, because the list of a copy in a store names each with its SHA-256. A kill between the two
steps leaves both files, and so rows twice, until the next run. That run knows what a killed one left, because
it is not in the list, and removes it in the step in which it puts the unit's new file in place.
"""

import datetime as dt
import hashlib
import json
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from collector.compaction.file_merge import merge as merge_files
from collector.dataset.file_list import FILE_PATH
from collector.dataset.files import make_folder, sync_folder, write_atomically
from collector.dataset.footer import find_unreadable_file
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import SPAN_FOLDER, conform, read_file, span_folder, write_rows
from collector.dataset.query import contract_rows, query_engine
from collector.dataset.schema import (
    BACKFILL_NODE,
    BLOCK_ARRIVALS,
    BLOCKS,
    COVERAGE,
    MEMBER_CLOCKS,
    MEMPOOL_TXS,
    TABLES,
    TRANSACTIONS,
    Table,
)
from collector.dataset.temporary_folders import temporary_folder
from collector.errors import DatasetError, SettingsError, WrongUsage
from collector.fleet.clocks import (
    ClockOffset,
    MemberClock,
    Watcher,
    cuts_of_day,
    find_gaps,
    offsets_of_day,
    steps_between,
)

FLEET_FILE: Final = "fleet.json"
FORM: Final = 2  # of the list and of what a unit holds: another number makes everything again
MEMBER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
WORK_PREFIX: Final = ".fleet-"
DIGEST_DIGITS: Final = 16
TOKEN_BYTES: Final = 8
SAVE_INTERVAL_S: Final = 5.0
# Times of a collector's clock. Other times are those of a node or of a header.
OUR_TIMES: Final = (
    "started_at",
    "entered_at",
    "kept_at",
    "received_at",
    "event_at",
    "taken_at",
    "from_at",
    "to_at",
)
HOST_OFFSET: Final = "clock_offset_us"  # our clock minus that of the node's host, at the row's own time
MEMBER_TABLES: Final = tuple(
    table for table in TABLES.values() if any(column.name == "node" for column in table.columns)
)
MEMBER_TABLE_NAMES: Final = frozenset(table.name for table in MEMBER_TABLES)
# Of several rows of one block or transaction, the first in this order is taken.
BEST_ROW: Final = {
    BLOCKS.name: "fees_sat IS NULL, source, verified_by",
    TRANSACTIONS.name: "fee_sat IS NULL, spent_types IS NULL",
}


class Member(NamedTuple):
    """Names one of the datasets that are merged, each of one collector."""

    name: str
    dataset: Dataset


@dataclass(kw_only=True)
class MemberResult:
    """Says what a merge did for one dataset: units of work, how many were written, offsets of its clock.

    The first dataset has no offsets, because its clock is the reference. Of a member that this merge does not
    name (`has_left`), `n_units` were removed.
    """

    name: str
    n_units: int = 0
    n_written: int = 0
    offsets: Sequence[ClockOffset] = ()
    has_left: bool = False


@dataclass(kw_only=True)
class FleetList:
    """Holds what `fleet.json` in a merged dataset says: the files of each unit of work, with digests.

    A digest is that of all from which a unit was made. It also has the clock offsets of each day. A unit is
    one folder of one table of one dataset, or a span of heights.
    """

    first: str
    units: dict[str, dict[str, Any]] = field(default_factory=dict)  # name: {digest, files}
    offsets: dict[str, dict[str, Any]] = field(default_factory=dict)  # "member day": {digest, offsets}

    def save(self, root: Path) -> None:
        """Write this list of units of work as `fleet.json` into the merged dataset."""
        text = json.dumps({"form": FORM, "first": self.first, "units": self.units, "offsets": self.offsets})
        write_atomically(root / FLEET_FILE, lambda sink: sink.write(text.encode()))


def merge_datasets(
    root: Path, members: Sequence[Member], *, trust_clocks: bool = False
) -> list[MemberResult]:
    """Bring the merged dataset in folder `root` up to date with its members (the datasets that are merged).

    Times are corrected to the clock of the first member. With `trust_clocks` no time is changed: all members
    have one clock, or clocks that are kept equal. Members that an earlier call had and this one has not are
    removed. Returns what was done for each member, also for those that were removed. Raises SettingsError for
    names that do not fit, DatasetError for a member that has seen nothing that the first one saw, and for
    files in the merged dataset that are not of this command.
    """
    _check_names(members, root)
    first, *others = members
    # Before anything is made or changed, members are refused that cannot be read or have nothing in common.
    for member in members:
        for table in MEMBER_TABLES:
            _by_day(member.dataset, table)
    for table in (BLOCKS, TRANSACTIONS):
        _by_span(members, table)
    clocks = _Clocks(first, _load(root, first.name).offsets)
    if not trust_clocks:
        clocks.find(others)
    merged = Dataset.open(root, first.dataset.chain, create=True)
    with merged.backfill_lock(), temporary_folder(WORK_PREFIX, root) as work:
        listed = _load(root, first.name)
        left = _left_files(merged, listed)
        listed.offsets = clocks.days
        job = _Merge(merged, listed, left, work)
        try:
            results = [job.member(each, clocks.of_member.get(each.name)) for each in members]
            job.chain_tables(members)
            results += job.remove_others()
        finally:
            job.save()
    return results


class _Clocks:
    """Finds the clocks of members against that of the first one; unchanged days keep what was found."""

    def __init__(self, first: Member, earlier: Mapping[str, dict[str, Any]]) -> None:
        self.days: dict[str, dict[str, Any]] = {}  # "member day": {digest, offsets}
        self.of_member: dict[str, MemberClock] = {}
        self._first = first
        self._earlier = earlier

    def find(self, members: Sequence[Member]) -> None:
        """Estimate each member's clock offsets.

        Raises DatasetError if a member saw nothing that the first member saw, or a file cannot be read.
        """
        with temporary_folder(WORK_PREFIX) as work, query_engine(work / "spill") as connection:
            for member in members:
                with member.dataset.read_lock(), self._first.dataset.read_lock():
                    try:
                        self.of_member[member.name] = self._clock(member, connection)
                    except (duckdb.Error, UnicodeDecodeError) as error:
                        raise _unreadable(self._first, member) or DatasetError(
                            f"DuckDB cannot compare the clocks of {self._first.name} and {member.name}:"
                            f" {str(error).splitlines()[0]}; nothing was changed"
                        ) from None

    def _clock(self, member: Member, connection: duckdb.DuckDBPyConnection) -> MemberClock:
        first = self._first
        found: list[ClockOffset] = []
        own = Watcher(member.dataset, find_gaps(connection, member.dataset))
        reference = Watcher(first.dataset, find_gaps(connection, first.dataset))
        for day in _days(member.dataset):
            name = f"{member.name} {day.isoformat()}"
            cuts = cuts_of_day(day, own.gaps, reference.gaps)
            digest = _digest(
                [*_fingerprints_about(member.dataset, day), *_fingerprints_about(first.dataset, day), cuts]
            )
            kept = self._earlier.get(name)
            if kept is None or kept["digest"] != digest:
                offsets = offsets_of_day(connection, own, reference, day)
                kept = {"digest": digest, "offsets": offsets}
            self.days[name] = kept
            found += [ClockOffset(*offset) for offset in kept["offsets"]]
        if not found:
            raise DatasetError(
                f"{member.name} and {first.name} have seen nothing at about the same time, so the offset of"
                " their clocks cannot be estimated; merge days that both watched, or give --same-clock"
            )
        return MemberClock(found, steps_between(found, own.gaps, reference.gaps))


class _Merge:
    """Brings one merged dataset up to date, in units of work: a folder of a table, or a span of heights."""

    def __init__(
        self, merged: Dataset, fleet_list: FleetList, left: dict[str, list[str]], work: Path
    ) -> None:
        self._merged = merged
        self._list = fleet_list
        self._left = left  # files of a killed run, by the first part of their names
        self._work = work
        self._wanted: set[str] = set()  # units of this run
        self._saved_s = time.monotonic()

    def save(self) -> None:
        """Write the list of finished units to disk; the next run makes again each unit that is not in it."""
        self._list.save(self._merged.root)
        self._saved_s = time.monotonic()

    def member(self, member: Member, clock: MemberClock | None) -> MemberResult:
        """Bring one member's tables in the merged dataset up to date; return what was done.

        Without a `clock` its times stay as they are.
        """
        with member.dataset.read_lock():
            result = MemberResult(name=member.name, offsets=clock.offsets if clock else ())
            for table in MEMBER_TABLES:
                for folder, paths in _by_day(member.dataset, table).items():
                    result.n_units += 1
                    result.n_written += self._day(member, table, folder, paths, clock)
        if clock is not None:
            rows = _rows_of_clock(member.name, clock)
            name = f"{member.name} {MEMBER_CLOCKS.name}"
            self._unit(name, _digest(clock.offsets), lambda stem: self._stage(MEMBER_CLOCKS, rows, stem))
        return result

    def chain_tables(self, members: Sequence[Member]) -> None:
        """Bring merged blocks and transactions up to date, one span of heights of all members at a time."""
        with ExitStack() as stack:
            for member in members:
                stack.enter_context(member.dataset.read_lock())
            for table in (BLOCKS, TRANSACTIONS):
                for span, paths in sorted(_by_span(members, table).items()):
                    digest = _digest([_fingerprint(path) for path in paths])
                    stage = partial(self._stage_span, table, span, paths)
                    self._unit(f"{table.name} {span}", digest, stage)

    def remove_others(self) -> list[MemberResult]:
        """Remove from the merged dataset all units of work that no member of this run has, and leftovers.

        Returns the members that this removes, with the number of units that each had.
        """
        had = Counter(filter(None, map(_member_of_unit, self._list.units)))
        for name in sorted(self._list.units.keys() - self._wanted):
            self._put_in_place([], self._list.units[name]["files"])
            del self._list.units[name]
        for left in self._left.values():
            self._put_in_place([], left)
        have = set(map(_member_of_unit, self._list.units))
        return [
            MemberResult(name=name, n_units=had[name], has_left=True)
            for name in sorted(had)
            if name not in have
        ]

    def _day(
        self, member: Member, table: Table, folder: str, paths: Sequence[Path], clock: MemberClock | None
    ) -> bool:
        """Bring one folder of a member's table up to date; return whether it was written."""
        offsets = [] if clock is None else clock.around(dt.date.fromisoformat(folder.partition("=")[2]))
        digest = _digest([[_fingerprint(path) for path in paths], offsets])

        def stage(stem: str) -> list[Path]:
            rows = pa.concat_tables([conform(table, read_file(path, verify=True)) for path in paths])
            return self._stage(table, corrected(table, rows, member.name, clock), stem)

        return self._unit(f"{member.name} {table.name} {folder}", digest, stage)

    def _unit(self, name: str, digest: str, stage: Callable[[str], list[Path]]) -> bool:
        """Make a unit of work unless it is there with this digest of its inputs; return whether it was made.

        `stage` gets the stem of the unit's files, writes them below the work folder and returns their paths.
        """
        self._wanted.add(name)
        before = self._list.units.get(name, {"digest": None, "files": []})
        if before["digest"] == digest and all(
            (self._merged.folder / path).is_file() for path in before["files"]
        ):
            return False
        of_unit = f"fleet-{name.partition(' ')[0]}-{_digest(name)}"
        staged = stage(f"{of_unit}-{secrets.token_hex(TOKEN_BYTES)}")
        files = self._put_in_place(staged, [*before["files"], *self._left.pop(of_unit, ())])
        self._list.units[name] = {"digest": digest, "files": files}
        if time.monotonic() - self._saved_s > SAVE_INTERVAL_S:
            self.save()
        return True

    def _stage(self, table: Table, rows: pa.Table, stem: str) -> list[Path]:
        return write_rows(self._work / "staged", table, rows, stem=stem)

    def _stage_span(self, table: Table, span: str, paths: Sequence[Path], stem: str) -> list[Path]:
        """Write blocks or transactions of a span of heights, each once, into a new file; return its path."""
        target = self._work / "staged" / table.name / span / f"{stem}.parquet"
        make_folder(target.parent)
        with query_engine(self._work / "spill") as connection:
            merge_files(connection, table, paths, target, rows=_best_rows(table, paths))
        return [target]

    def _put_in_place(self, staged: Sequence[Path], old: Iterable[str]) -> list[str]:
        """Move a unit's new files into the merged dataset, and remove the unit's old files.

        Returns the paths of the new files, relative to the folder of the chain.
        """
        files = [path.relative_to(self._work / "staged").as_posix() for path in staged]
        with self._merged.replace_lock():
            for path, name in zip(staged, files, strict=True):
                target = self._merged.folder / name
                make_folder(target.parent)
                path.replace(target)
                sync_folder(target.parent)
            for name in old:  # none is among the new ones
                (self._merged.folder / name).unlink(missing_ok=True)
        return files


def _best_rows(table: Table, paths: Sequence[Path]) -> str:
    """Return an SQL query for the rows of files of blocks or transactions, one row per block or transaction.

    Every member has verified what it stored, so rows of one block tell the same facts, and a null is one that
    a member did not know. It is filled from the next row that knows it. Every column is part of the order:
    the query has the same result each time, whatever the order in which DuckDB reads.
    """
    order = ", ".join((BEST_ROW[table.name], *(column.name for column in table.columns)))
    filled = ", ".join(
        f"first_value({column.name} IGNORE NULLS) OVER best AS {column.name}"
        for column in table.columns
        if column.nullable
    )
    return f"""(
        SELECT * REPLACE ({filled}) FROM (SELECT DISTINCT * FROM {contract_rows(table, paths)})
        WINDOW best AS (
            PARTITION BY {", ".join(table.grain)} ORDER BY {order}
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
        QUALIFY row_number() OVER best = 1
    )"""  # noqa: S608 - names are the contract's


def _member_of_unit(name: str) -> str | None:
    """Return the member to which a unit of work belongs; None for a unit of blocks or transactions."""
    member, table, *_ = name.split(" ")
    return member if table in MEMBER_TABLE_NAMES else None


def corrected(table: Table, rows: pa.Table, member: str, clock: MemberClock | None) -> pa.Table:
    """Return a member's rows with nodes named `<member>.<node>` and times on the reference collector's clock.

    Without a `clock` the times stay as they are.
    """
    node = rows.column("node")
    is_watched = pc.not_equal(node, BACKFILL_NODE)
    names = pc.if_else(is_watched, pc.binary_join_element_wise(member, node, "."), node)
    rows = rows.set_column(rows.schema.get_field_index("node"), rows.schema.field("node"), names)
    if clock is None:
        return rows
    column = rows.schema.get_field_index(HOST_OFFSET)
    if column >= 0:
        at_us = rows.column(table.day_column).cast(pa.int64()).to_numpy()
        ahead_us = at_us - clock.reference_us(at_us)
        values = pc.subtract(rows.column(column), pa.array(ahead_us))
        rows = rows.set_column(column, rows.schema.field(column), values)
    for column, schema_field in enumerate(rows.schema):
        if schema_field.name in OUR_TIMES:
            at_us = rows.column(column).cast(pa.int64()).to_numpy()
            moments = pa.array(clock.reference_us(at_us)).cast(schema_field.type)
            rows = rows.set_column(column, schema_field, moments)
    return rows


def _rows_of_clock(member: str, clock: MemberClock) -> list[Mapping[str, Any]]:
    return [
        {
            "member": member,
            "offset_at": each.at_us - each.offset_us,
            "offset_us": each.offset_us,
            "error_us": each.error_us,
            "n_shared": each.n_shared,
        }
        for each in clock.offsets
    ]


def _check_names(members: Sequence[Member], root: Path) -> None:
    names = [member.name for member in members]
    for name in names:
        if not MEMBER_NAME.fullmatch(name):
            raise WrongUsage(f"{name!r} is no name of a member: use lower case letters, digits and dash")
        if names.count(name) > 1:
            raise WrongUsage(f"two members are called {name}; give each a name of its own")
    for member in members:
        if member.dataset.root.resolve() == root.resolve():
            raise WrongUsage(f"{root} is the dataset of {member.name}; choose another folder to merge into")
        if member.dataset.chain != members[0].dataset.chain:
            raise SettingsError(
                f"{member.name} is of chain {member.dataset.chain}, {names[0]} of {members[0].dataset.chain};"
                " choose one with --chain"
            )
    of_root: dict[Path, str] = {}
    for member in members:
        other = of_root.setdefault(member.dataset.root.resolve(), member.name)
        if other != member.name:
            raise WrongUsage(
                f"{other} and {member.name} are one dataset, {member.dataset.root}; name it once"
            )


def _load(root: Path, first: str) -> FleetList:
    """Read and return the FleetList of a merged dataset; an empty one if the dataset has none yet.

    If another member's clock or another form is to count from now on, each unit of the list is marked to be
    made anew. Raises DatasetError if the list cannot be read.
    """
    path = root / FLEET_FILE
    if not path.exists():
        return FleetList(first=first)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        listed = FleetList(first=found["first"], units=found["units"], offsets=found["offsets"])
        form = found["form"]
        _check_form(listed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DatasetError(f"{path} cannot be read; remove {root} and merge again") from None
    if form != FORM or listed.first != first:
        for unit in listed.units.values():
            unit["digest"] = None
        listed.first, listed.offsets = first, {}
    return listed


def _check_form(listed: FleetList) -> None:
    """Raise an error unless a list has the form that `save` gives it, and its files lie in the dataset.

    The error is a ValueError, KeyError, TypeError or AttributeError.
    """
    for name, unit in listed.units.items():
        _, _, rest = name.partition(" ")
        if not rest or "digest" not in unit or not all(map(FILE_PATH.fullmatch, unit["files"])):
            raise ValueError(name)
    for name, day in listed.offsets.items():
        if "digest" not in day or any(len(each) != len(ClockOffset._fields) for each in day["offsets"]):
            raise ValueError(name)


def _left_files(merged: Dataset, fleet_list: FleetList) -> dict[str, list[str]]:
    """Return the files that a killed run left in the merged dataset; DatasetError for what no merge made.

    They are listed by the part of their names that their unit gives, as paths relative to the chain's folder.
    """
    listed = {name for unit in fleet_list.units.values() for name in unit["files"]}
    merged.remove_unfinished_files()
    left: dict[str, list[str]] = {}
    for table in (*MEMBER_TABLES, BLOCKS, TRANSACTIONS, MEMBER_CLOCKS):
        for path in merged.paths(table):
            name = path.relative_to(merged.folder).as_posix()
            if name in listed:
                continue
            if not path.name.startswith("fleet-"):
                raise DatasetError(
                    f"{path} was not written by `merge`: a merged dataset takes no collector, backfill or"
                    " compaction; merge into an empty folder"
                )
            left.setdefault(path.stem.rpartition("-")[0], []).append(name)
    return left


def _by_folder(dataset: Dataset, table: Table) -> dict[str, list[Path]]:
    """Map the name of each folder of a table to the files in it."""
    dataset.refuse_strange_paths(table)
    found: dict[str, list[Path]] = {}
    for path in dataset.paths(table):
        found.setdefault(path.parent.name, []).append(path)
    return found


def _by_day(dataset: Dataset, table: Table) -> dict[str, list[Path]]:
    """Map the name of each folder of a day to the files in it; DatasetError for a folder of no day."""
    found = _by_folder(dataset, table)
    for folder, paths in found.items():
        try:
            day = dt.date.fromisoformat(folder.removeprefix("date="))
        except ValueError:
            day = dt.date.min
        if folder != f"date={day.isoformat()}" or not dt.date.min < day < dt.date.max:
            raise DatasetError(f"{paths[0].parent} is no folder of a day; move it out of the dataset")
    return found


def _by_span(members: Sequence[Member], table: Table) -> dict[str, list[Path]]:
    """Map the present name of each folder of heights to the files of all members for that span."""
    found: dict[str, list[Path]] = {}
    for member in members:
        for folder, paths in _by_folder(member.dataset, table).items():
            match = SPAN_FOLDER.fullmatch(folder)
            if match is None:
                raise DatasetError(f"{paths[0].parent} is no folder of heights; move it out of the dataset")
            found.setdefault(span_folder(int(match[1])), []).extend(paths)
    return found


def _days(dataset: Dataset) -> list[dt.date]:
    """Return the days on which a member's nodes saw a transaction or a block, sorted."""
    names = {
        path.parent.name for name in ("mempool_txs", "block_arrivals") for path in dataset.paths(TABLES[name])
    }
    return sorted(dt.date.fromisoformat(name.partition("=")[2]) for name in names)


def _unreadable(*members: Member) -> DatasetError | None:
    """Return an error for the first file of the clocks that cannot be read; None if all can be read."""
    return find_unreadable_file(
        path
        for member in members
        for table in (COVERAGE, MEMPOOL_TXS, BLOCK_ARRIVALS)
        for path in member.dataset.paths(table)
    )


def _fingerprints_about(dataset: Dataset, day: dt.date) -> list[Any]:
    """Return fingerprints of a member's files of a day and its neighbours, which give the day's offsets."""
    folders = {f"date={(day + dt.timedelta(days=distance)).isoformat()}" for distance in (-1, 0, 1)}
    return [
        _fingerprint(path)
        for name in ("mempool_txs", "block_arrivals")
        for path in dataset.paths(TABLES[name])
        if path.parent.name in folders
    ]


def _fingerprint(path: Path) -> list[Any]:
    """Return path, size and time of the last change of a file; they change when the file does.

    Files of a dataset are never changed in place, only replaced. The path does not depend on how the dataset
    was named.
    """
    found = path.stat()
    return [os.path.abspath(path), found.st_size, found.st_mtime_ns]  # noqa: PTH100 - it also removes ".."


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:DIGEST_DIGITS]
