"""Keep the results of builds as Parquet files beside the database, so that a build makes only what changed.

The folder `<database>.marts` has one folder per mart. A file in it is a part: the whole mart or one range of
it, made of inputs that its name stands for. A part appears by rename when it is complete, and never changes.
`parts.json` says of each part what it was made of, and `parts.log` has what was made since that was written.
A build that is killed leaves its finished parts, and the next build uses them.

The catalogue of a build, its DuckDB file, names its parts. Parts that neither this catalogue nor the one
before names are removed, so a reader that opened the catalogue before can still read it.
"""

import glob
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb

from analysis.errors import DatabaseError, NoRoomError
from analysis.extents import Extent, extent_of
from collector.dataset import DatasetError as LockedError
from collector.dataset.files import (
    FOLDER_LOCK,
    lock_taken,
    make_folder,
    sync_file,
    sync_folder,
    temporary_path,
    why_unwritable,
    write_atomically,
)

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from analysis.raw_contents import FileFacts

SUFFIX: Final = ".marts"
STATE: Final = "parts.json"
LOG: Final = "parts.log"  # parts.json is large, so a build writes it at its begin and its end alone
FORMAT: Final = "pool-analysis parts 5"
NO_VALUE: Final = "None"  # what stands for the hash of a column without rows

Inputs = Mapping[str, str]
# What is known of the rows that a range reads of a relation: their content, and their extent.
LookedAt = list[Any]
# Names of columns, each with its type as DuckDB names it.
Types = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Describes one Parquet file of a mart: its inputs, the SHA-256 of its bytes, its size, the time it took.

    `columns` has a hash of each column's stored bytes, by which its values and their order are known.
    `extent` has the least and the greatest value of the columns by which ranges of other marts choose files.
    `is_synced` tells that its bytes were forced to disk: then a power cut cannot have taken them. `mtime_ns`
    is when its file was last written; a file with another time has perhaps been written over.
    """

    file: str
    inputs: Inputs
    content: str
    columns: Mapping[str, str]
    n_bytes: int
    n_rows: int
    wall_s: float
    extent: Extent = field(default_factory=dict)
    is_synced: bool = False
    mtime_ns: int = 0

    @property
    def name(self) -> str:
        """Return the name of the part's mart, with the suffix of early parts if it is one."""
        return self.file.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeInRanges:
    """Describes a mart that was made in ranges: its inputs as a whole, its files in order, and its time.

    `rows` has the content and extent of the rows that its ranges read, by a hash of how they are selected;
    see ranges.py.
    """

    inputs: Inputs
    files: list[str]
    wall_s: float
    rows: Mapping[str, LookedAt] = field(default_factory=dict)


class Rows(NamedTuple):
    """Says how DuckDB shows a stored mart: as a TABLE or VIEW (`kind`) on the query that reads its parts."""

    kind: str
    query: str


@dataclass(slots=True)
class State:
    """Holds the content of `parts.json`: the parts of a database, and what builds found out.

    `parts` has each part by its file, `in_ranges` each mart that was made in ranges by its name. `named` are
    the files that the database names, `named_before` those that the database before it named. `announced` are
    those that a database may name whose build was killed before it recorded its end. `raw_files` and
    `checks` keep what was computed of files that did not change; see raw_contents.py and checks.py.
    `finished` describes the last build that ended.
    """

    parts: dict[str, Part] = field(default_factory=dict)
    in_ranges: dict[str, MadeInRanges] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)
    named_before: list[str] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    raw_files: dict[str, "FileFacts"] = field(default_factory=dict)
    checks: dict[str, list[Any]] = field(default_factory=dict)
    finished: dict[str, Any] = field(default_factory=dict)


class PartsFolder:
    """Finds, makes and removes the parts of one database: the Parquet files of its marts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = _read_state(folder)
        self._newest = {part.name: part for part in self.state.parts.values()}
        self._recording = threading.Lock()  # several threads make parts

    def path(self, part: Part) -> Path:
        """Return the path of a part, which is a Parquet file of a mart."""
        return self.folder / part.file

    def find(self, name: str, inputs: Inputs) -> Part | None:
        """Return the part of a mart that was made of these inputs; None if it is missing or damaged."""
        part = self.state.parts.get(file_of(name, inputs))
        return part if part is not None and self._is_whole(part) else None

    def whole_parts(self, name: str) -> list[Part]:
        """Return all parts of a mart, of this build and of those before, that are present and undamaged."""
        with self._recording:
            parts = [part for part in self.state.parts.values() if part.name == name]
        return [part for part in parts if self._is_whole(part)]

    def find_ranges(self, name: str, inputs: Inputs) -> list[Part] | None:
        """Return the parts of a mart that was made, range by range, of exactly these inputs.

        Return None if it was made of other inputs, or if the file of a part is missing or damaged.
        """
        made = self.state.in_ranges.get(name)
        if made is None or made.inputs != inputs or not self.are_whole(made.files):
            return None
        return [self.state.parts[file] for file in made.files]

    def keep_ranges(
        self, name: str, inputs: Inputs, parts: list[Part], wall_s: float, rows: Mapping[str, LookedAt]
    ) -> None:
        """Record that these parts, in this order, are a mart that was made in ranges of these inputs.

        `rows` are those of MadeInRanges.
        """
        files = [part.file for part in parts]
        made = MadeInRanges(inputs=dict(inputs), files=files, wall_s=wall_s, rows=rows)
        with self._recording:
            self.state.in_ranges[name] = made
            self._log({"name": name, "in_ranges": _as_record(made)})

    def latest(self, name: str) -> Part | MadeInRanges | None:
        """Return the record of how a mart was made last, whatever its inputs; None if it never was."""
        if name in self.state.in_ranges:
            return self.state.in_ranges[name]
        return self._newest.get(name)

    def make(  # noqa: PLR0917 - the parts of one recipe
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        inputs: Inputs,
        query: str,
        types: Types,
        bounded: Sequence[str] = (),
    ) -> Part:
        """Run a query, store its rows in their order as a part of a mart, and return the part."""
        return self.add(write_part(connection, self.folder, name, inputs, query, types, bounded))

    def add(self, part: Part) -> Part:
        """Record a part whose file was written, in memory and in parts.log; return the part."""
        with self._recording:
            if self.state.parts.get(part.file) == part:
                return part
            self.state.parts.pop(part.file, None)
            self.state.parts[part.file] = self._newest[part.name] = part
            self._log({"part": _as_record(part)})
        return part

    def rows_sql(self, parts: list[Part], types: Types) -> str:
        """Return the SQL that reads all rows of parts in their order, with the column types of their mart."""
        return rows_sql([self.path(part) for part in parts], types)

    def are_whole(self, files: list[str]) -> bool:
        """Return whether all these files of parts are recorded, present and undamaged."""
        return all(file in self.state.parts and self._is_whole(self.state.parts[file]) for file in files)

    def sync(self, used: Iterable[Part]) -> None:
        """Force new files among `used` to disk, so that they survive a power cut once a database names them.

        Other parts are left out: they may be missing, and `finish` forgets them.
        """
        folders = {self.folder}
        for file in {part.file for part in used}:
            part = self.state.parts[file]
            if not part.is_synced:
                sync_file(self.folder / file)
                folders.add((self.folder / file).parent)
                self.state.parts[file] = replace(part, is_synced=True)
        for folder in folders:
            sync_folder(folder)

    def announce(self, used: Iterable[Part]) -> None:
        """Record, before a database appears, that it names the parts `used`.

        If the build is killed before `finish`, the next one keeps their files for readers of that database.
        """
        with self._recording:
            self._log({"announced": [part.file for part in used]})
        sync_file(self.folder / LOG)

    def finish(self, used: list[Part], finished: dict[str, Any]) -> None:
        """Record that a database names the parts `used`, and remove old parts.

        Files that neither this database nor the one before it names are removed. A build that was killed
        may have left the one before, so what it announced stays too. `finished` describes the build.
        """
        named = [part.file for part in used]
        if set(named) != set(self.state.named):
            self.state.named_before, self.state.named = self.state.named, named
        self.state.named_before = [*self.state.named_before, *self.state.announced]
        self.state.announced = []
        self.state.finished = finished
        kept = {*self.state.named, *self.state.named_before}
        self.state.in_ranges = {
            name: made for name, made in self.state.in_ranges.items() if kept.issuperset(made.files)
        }
        self.state.parts = {file: part for file, part in self.state.parts.items() if file in kept}
        self.save(is_durable=True)
        for path in self.folder.glob("*/*"):
            if path.relative_to(self.folder).as_posix() not in kept:
                path.unlink()

    def save(self, *, is_durable: bool = False) -> None:
        """Write all records of parts to parts.json by rename, and remove parts.log.

        With `is_durable` the new parts.json also survives a power cut.
        """
        state = self.state
        facts = {
            "format": FORMAT,
            **{
                name: getattr(state, name)
                for name in ("named", "named_before", "announced", "raw_files", "checks", "finished")
            },
            "parts": [_as_record(part) for part in state.parts.values()],
            "in_ranges": {name: _as_record(made) for name, made in state.in_ranges.items()},
        }
        text = json.dumps(facts)
        path = self.folder / STATE
        write_atomically(path, lambda sink: sink.write(text.encode()), is_durable=is_durable)
        (self.folder / LOG).unlink(missing_ok=True)

    def _log(self, made: dict[str, Any]) -> None:
        """Append a record to parts.log, as a line of JSON."""
        with (self.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps(made) + "\n")

    def _is_whole(self, part: Part) -> bool:
        """Return whether a part's file has its recorded size and bytes.

        The bytes are not compared if they were forced to disk, and the file was not written since.
        """
        path = self.path(part)
        try:
            found = path.stat()
            is_as_written = part.is_synced and found.st_mtime_ns == part.mtime_ns
            if found.st_size != part.n_bytes or not (is_as_written or _content(path) == part.content):
                return False
        except OSError:
            return False
        if found.st_mtime_ns != part.mtime_ns:  # of a copy; the next build need not compare its bytes
            self.state.parts[part.file] = replace(part, mtime_ns=found.st_mtime_ns)
        return True


def rows_sql(paths: Sequence[Path], types: Types) -> str:
    """Return the SQL that reads all rows of the parts at these paths, with the column types of their mart."""
    if not paths:
        nulls = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in types.items())
        return f"SELECT {nulls} WHERE false"
    patterns = ", ".join(literal(glob.escape(str(path))) for path in paths)
    return f"SELECT * FROM read_parquet([{patterns}], hive_partitioning = false)"  # noqa: S608 - paths of ours


def write_part(  # noqa: PLR0917 - the parts of one recipe
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    name: str,
    inputs: Inputs,
    query: str,
    types: Types,
    bounded: Sequence[str] = (),
) -> Part:
    """Run a query, write its rows in order to a Parquet file that appears by rename, and return the part.

    `bounded` are the columns whose least and greatest values the part records.
    """
    begun_s = time.monotonic()
    file = file_of(name, inputs)
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    temporary = temporary_path(path)
    try:
        answer = connection.execute(
            f"COPY ({query}) TO {literal(str(temporary))} (FORMAT parquet)"
        ).fetchone()
        n_rows = answer[0] if answer else 0
        columns, extent = _read_facts(connection, temporary, n_rows, types, bounded)
        part = Part(
            file=file,
            inputs=dict(inputs),
            content=_content(temporary),
            columns=columns,
            n_bytes=temporary.stat().st_size,
            mtime_ns=temporary.stat().st_mtime_ns,
            n_rows=n_rows,
            extent=extent,
            wall_s=time.monotonic() - begun_s,
        )
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return part


def parts_folder(database: Path) -> Path:
    """Return the path of the folder for the parts of a database; it need not exist."""
    return database.with_name(f"{database.name}{SUFFIX}").absolute()


def is_parts_folder(folder: Path) -> bool:
    """Return whether a folder is one in which builds keep parts of marts."""
    return folder.name.endswith(SUFFIX) and (folder / STATE).is_file()


@contextmanager
def open_parts(database: Path) -> Iterator[PartsFolder]:
    """Lock the folder of a database's parts for one build, make it if it is missing, and yield it.

    Raises DatabaseError where another build of this database runs, where the folder cannot be written, and
    where it has files that no build made.
    """
    folder = parts_folder(database)
    refusal = f"another build is making {database}; wait until it has ended, or choose another --database"
    try:
        make_folder(folder)
        lock = lock_taken(folder / FOLDER_LOCK, refusal)
        lock.__enter__()
    except LockedError as error:
        raise DatabaseError(str(error)) from None
    except OSError as error:
        fault = f"{folder} cannot be written ({why_unwritable(error)})"
        raise NoRoomError(fault, "choose another --database") from None
    try:
        _begin(folder)
        yield PartsFolder(folder)
    finally:
        lock.__exit__(None, None, None)


def _begin(folder: Path) -> None:
    """Write an empty parts.json, unless there is one. Raises DatabaseError for a folder with other files."""
    if (folder / STATE).exists():
        return
    ours = {FOLDER_LOCK, LOG, temporary_path(folder / STATE).name}
    if any(path.name not in ours for path in folder.iterdir()):
        raise DatabaseError(f"{folder} has files, but no {STATE}; move it away, or choose another --database")
    PartsFolder(folder).save()


def digest(facts: object) -> str:
    """Return the SHA-256, in hex, of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def file_of(name: str, inputs: Inputs) -> str:
    """Return the path, in the folder of parts, of the part of a mart that is made of these inputs."""
    return f"{name}/{digest(dict(inputs))[:32]}.parquet"


def _read_state(folder: Path) -> State:
    """Read parts.json and parts.log of a folder and return their State.

    It is empty if parts.json is missing, damaged or of another format: then every part is made anew.
    """
    try:
        facts = json.loads((folder / STATE).read_text())
        if facts.pop("format") != FORMAT:
            return State()
        parts = {one["file"]: Part(**one) for one in facts.pop("parts")}
        in_ranges = {name: MadeInRanges(**one) for name, one in facts.pop("in_ranges", {}).items()}
        state = State(parts=parts, in_ranges=in_ranges, **facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return State()
    _read_log(folder / LOG, state)
    return state


def _read_log(path: Path, state: State) -> None:
    """Add the records of parts.log to the state; stop at a line that a kill or a full disk cut off."""
    try:
        with path.open(encoding="utf-8") as log:
            for line in log:
                made = json.loads(line)
                if "part" in made:
                    part = Part(**made["part"])
                    state.parts.pop(part.file, None)
                    state.parts[part.file] = part
                elif "announced" in made:
                    state.announced += made["announced"]
                else:
                    state.in_ranges[made["name"]] = MadeInRanges(**made["in_ranges"])
    except (OSError, ValueError, KeyError, TypeError):
        return


def _as_record(made: Part | MadeInRanges) -> dict[str, Any]:
    """Return the fields by name; `asdict` would also copy all inputs, at each write of parts.json."""
    return {name: getattr(made, name) for name in made.__slots__}


def _content(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _read_facts(
    connection: duckdb.DuckDBPyConnection, path: Path, n_rows: int, types: Types, bounded: Sequence[str]
) -> tuple[dict[str, str], Extent]:
    """Return the hash of each column of a part, and the extent of `bounded` columns.

    Of a mart without rows whose `types` are known no file is read: in a small dataset most have none.
    """
    from pyarrow import parquet  # noqa: PLC0415 - loads slowly, and most commands read no part

    if n_rows == 0:
        return dict.fromkeys(types or parquet.read_schema(path).names, NO_VALUE), dict.fromkeys(bounded)
    columns = _column_hashes(path, parquet.read_metadata(path))
    return columns, extent_of(connection, _rows_of(path), bounded)


def _column_hashes(path: Path, metadata: "FileMetaData") -> dict[str, str]:
    """Return for each column of a Parquet file the SHA-256 of its stored bytes, row group by row group.

    Bytes of the same type and encoding are the same values in the same order. So nothing is decoded.
    """
    names = [metadata.schema.column(number).path.partition(".")[0] for number in range(metadata.num_columns)]
    hashes = {name: hashlib.sha256() for name in names}
    with path.open("rb") as source:
        for group in range(metadata.num_row_groups):
            for number, name in enumerate(names):
                chunk = metadata.row_group(group).column(number)
                logical = str(metadata.schema.column(number).logical_type)
                type_ = (chunk.path_in_schema, chunk.physical_type, logical)
                form = (chunk.compression, chunk.encodings, chunk.num_values, chunk.total_compressed_size)
                hashes[name].update(repr((type_, form)).encode())
                source.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
                hashes[name].update(source.read(chunk.total_compressed_size))
    return {name: found.hexdigest()[:32] for name, found in hashes.items()}


def _rows_of(path: Path) -> str:
    return f"read_parquet({literal(glob.escape(str(path)))}, hive_partitioning = false)"


def literal(text: str) -> str:
    """Return a text as SQL writes it, between quotes."""
    return "'{}'".format(text.replace("'", "''"))
