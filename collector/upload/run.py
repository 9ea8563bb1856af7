"""Bring the copy of a chain in an object store up to date with the dataset on disk.

The order of the steps keeps the copy readable after a kill at any point:

1. New files are put, each verified. Nobody who follows the list `files.json` sees them yet.
2. When all files of a partition are there, the list is replaced: it names the new files of the partition in
   place of the old ones, in one step.
3. The old files are removed.

A reader that takes files by a pattern instead of the list sees the rows of a compacted partition twice from
step 1 to step 3, and never misses one. Files that a killed upload left unnamed are removed, or named, by the
next one.

No lock of the dataset is held while files travel, so that neither a collector nor compaction waits for the
network. If compaction replaces files meanwhile, the dataset is listed again.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from collector.dataset.file_list import FILE_PATH, FileList, ListedFile, list_path
from collector.dataset.files import lock_taken, make_folder, write_atomically
from collector.dataset.marker import DATASET_MARKER, check_marker_content
from collector.dataset.object_store import CHUNK_BYTES, ObjectStore, StoredObject
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import has_old_name, new_name
from collector.dataset.schema import MEMPOOL_BODIES, TABLES
from collector.errors import DatasetError, NotWritable, StoreChanged, StoreError, UploadRuns
from collector.log import counted

ID_FILE: Final = ".upload-id"  # in the folder of the dataset: which copies in stores are its own
ID_BYTES: Final = 16
ID: Final = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}")
UPLOAD_LOCK: Final = ".upload.lock"  # in the folder of a chain: one upload at a time
# The end of a file's path that no other dataset has: what a journal sealed, or compaction or `mend` wrote.
RANDOM_NAME: Final = re.compile(r"/(?:\d{8}|compact|mend|fees)-[0-9a-f]{16,}\.parquet$")
FILES_PER_LIST: Final = 100  # the list is written at least so often, so that readers see a long upload grow


@dataclass(kw_only=True)
class Uploaded:
    """Counts what an upload did (files and bytes put, removed, repaired), and what the copy holds now."""

    n_put: int = 0
    bytes_put: int = 0
    n_removed: int = 0
    n_repaired: int = 0  # of those put: were there, but not as they had been uploaded
    n_files: int = 0  # that the list names now
    n_bytes: int = 0  # in these files

    @property
    def has_changed(self) -> bool:
        """Return whether the upload has put or removed a file."""
        return self.n_put > 0 or self.n_removed > 0

    def as_json(self) -> dict[str, Any]:
        """Return the counts of the upload as a dict for JSON."""
        return asdict(self)


class _Digests(NamedTuple):
    """Identifies the content of a file; the digests are in hexadecimal digits."""

    size_bytes: int
    sha256: str
    md5: str


class _Moved(Exception):  # noqa: N818 - what compaction did, not a mistake
    """Means that a file has gone since the dataset's files were listed."""


@dataclass
class Upload:
    """Copies one chain of a dataset into an object store; make one with `begin`, keep it for later rounds."""

    dataset: Dataset
    store: ObjectStore
    tell: Callable[[Uploaded], None] = lambda _: None  # hears what was done each time readers see more
    done: Uploaded = field(default_factory=Uploaded)
    named: Mapping[str, ListedFile] = field(default_factory=dict)  # by the list in the store, as last written
    _list: FileList = field(init=False)
    _etag: str | None = None  # of the list in the store
    _is_written: bool = False  # whether the list in the store is `_list`
    _unnamed: dict[str, StoredObject] = field(default_factory=dict)  # objects that the list does not name
    _damaged: set[str] = field(default_factory=set)  # files that the store no longer has as they were put

    @classmethod
    def begin(
        cls, dataset: Dataset, store: ObjectStore, tell: Callable[[Uploaded], None] = lambda _: None
    ) -> "Upload":
        """Return an Upload that may write to the store: check its content and write our name into its list.

        Raises StoreError where the store cannot be used, or holds something else than this dataset.
        """
        upload = cls(dataset, store, tell)
        upload._claim()
        upload._compare()
        return upload

    def bring_up_to_date(self) -> Uploaded:
        """Copy new files into the store, remove those that are gone, and return what was done.

        Raises StoreUnavailable when the store did not answer for long; a later call goes on. Raises
        StoreChanged when another upload has begun, StoreError when another dataset is in the folder, and
        DatasetError for a file that is none of ours, and when the dataset or a disk of it has gone.
        """
        self.done = Uploaded()
        while True:
            try:
                self._copy(self._local_files())
            except _Moved:
                continue
            break
        self._remove_unnamed()
        self.done.n_files = len(self._list.files)
        self.done.n_bytes = sum(file.size_bytes for file in self._list.files.values())
        return self.done

    def _claim(self) -> None:
        """Read or make the store's marker and list of files, and write this run's name into the list."""
        self.dataset.refuse_if_gone()
        marker = self.store.get(DATASET_MARKER)
        if marker is not None:
            check_marker_content(marker[0], str(self.store.address), "prefix")
        writer = secrets.token_hex(8)
        found = self.store.get(list_path(self.dataset.chain))
        if found is None:
            self._refuse_other_content(is_marked=marker is not None)
            self._list = FileList(dataset=dataset_id(self.dataset.root), writer=writer)
        else:
            self._list, self._etag = FileList.read(found[0], self.store.address), found[1]
            self._refuse_another()
            self._list.writer = writer
        if marker is None:
            with (self.dataset.root / DATASET_MARKER).open("rb") as source:
                digests = _digests(source)
                self.store.put_file(DATASET_MARKER, source, digests.size_bytes, digests.md5)
        self._write_list()

    def _refuse_other_content(self, *, is_marked: bool) -> None:
        """Raise StoreError if the store, which has no list of our chain, holds what is not of this dataset.

        Files of this dataset are there if the store has lost its list.
        """
        files = [each for each in self.store.objects(self.dataset.folder.name) if self._is_file(each)]
        if files and not self._are_ours(files):
            raise StoreError(
                f"{self.store.address} has files of the chain {self.dataset.chain} that no upload of"
                f" {self.dataset.root} made; choose an empty prefix"
            )
        if not files and not is_marked and next(self.store.objects(""), None) is not None:
            raise StoreError(
                f"{self.store.address} holds other objects and is no dataset; choose an empty prefix"
            )

    def _are_ours(self, files: Sequence[StoredObject]) -> bool:
        """Return whether objects, by name and size, are files of this dataset, which was uploaded before.

        One file with a random name tells that. Other names and contents may be alike in two datasets, so all
        of these must be ours.
        """
        if not (self.dataset.root / ID_FILE).exists():
            return False
        with self.dataset.read_lock():
            ours = {
                (path.relative_to(self.dataset.folder).as_posix(), path.stat().st_size)
                for table in TABLES.values()
                for path in self.dataset.paths(table)
            }
        known = [each for each in files if (self._path(each), each.size_bytes) in ours]
        return len(known) == len(files) or any(RANDOM_NAME.search(each.path) for each in known)

    def _compare(self) -> None:
        """Find files that the store no longer has as they were put, and objects that the list does not name.

        What the store lists may be late, so a difference counts only if the object itself shows it.
        """
        listed = {}
        for each in self.store.objects(self.dataset.folder.name):
            if self._is_file(each):
                listed[self._path(each)] = each
        for path, file in self._list.files.items():
            found = listed.pop(path, None)
            if not _is_same(found, file) and not _is_same(self.store.look(self._object(path)), file):
                self._damaged.add(path)
        self._unnamed = listed

    def _local_files(self) -> dict[str, Path]:
        """Map the path of each file of the chain, relative to its folder, to its path on disk.

        They are listed as one state that no compaction changes. Blocks are listed before the transactions
        that were written before them.
        """
        found = {}
        with self.dataset.read_lock():
            for table in TABLES.values():
                self.dataset.refuse_strange_paths(table)
                for path in self.dataset.paths(table):
                    name = path.relative_to(self.dataset.folder).as_posix()
                    if not FILE_PATH.fullmatch(name) or not name.isprintable():
                        raise DatasetError(
                            f"{str(path)!r} has a name that no file of ours has; move it elsewhere"
                        )
                    found[name] = path
            self._refuse_absence(found)
        return found

    def _refuse_absence(self, found: Mapping[str, Path]) -> None:
        """Raise DatasetError where files that the copy has may be on a disk that is not mounted now.

        Raises StoreError where another dataset is in the place of ours.
        """
        self._refuse_another()
        copied = self._list.files.keys() | self._unnamed.keys()
        if copied and not found:
            raise DatasetError(
                f"{self.dataset.folder} has no file any more, and its copy in {self.store.address} has"
                f" {counted(len(copied), 'file')}; put them back, or remove the copy yourself"
            )
        for name in {path.split("/")[0] for path in copied}:
            self.dataset.refuse_empty_folder(TABLES[name])
        for partition in sorted({path.rpartition("/")[0] for path in self._list.files}):
            self._refuse_lost_partition(self.dataset.folder / partition)

    def _refuse_lost_partition(self, folder: Path) -> None:
        """Raise DatasetError where a partition of the copy is gone though its table's folder is there.

        So it is where a disk is not mounted and a collector has filled the folder below it since. Nothing of
        ours removes a partition, but for days of mempool_bodies that were kept long enough.
        """
        table = folder.parent
        is_aged = table.name == MEMPOOL_BODIES.name
        if table.is_dir() and not is_aged and not folder.exists() and not new_name(folder).exists():
            raise DatasetError(
                f"{folder} is gone, and its copy in {self.store.address} is there; mount the disk that has"
                " it, or make an empty folder in its place if it was removed on purpose"
            )

    def _refuse_another(self) -> None:
        """Raise StoreError where the folder has another dataset than the copy, DatasetError where none."""
        self.dataset.refuse_if_gone()
        path = self.dataset.root / ID_FILE
        if not path.exists() or dataset_id(self.dataset.root) != self._list.dataset:
            raise StoreError(
                f"{self.store.address} is the copy of another dataset than {self.dataset.root}; choose"
                f" another prefix (a dataset that has moved keeps its file {ID_FILE})"
            )

    def _copy(self, local: Mapping[str, Path]) -> None:
        """Copy files into the store until its list names exactly `local`, one partition after the other.

        Blocks come after their transactions.
        """
        wanted, present = _by_partition(local), _by_partition(self._list.files)
        order = list(TABLES)
        n_waiting = 0
        for partition in sorted(wanted | present, key=lambda each: (-order.index(each.split("/")[0]), each)):
            names, before = wanted.get(partition, []), present.get(partition, [])
            files = {name: self._put(name, local[name]) for name in names}
            if files == {name: self._list.files[name] for name in before}:
                continue
            gone = [name for name in before if name not in files]
            self._is_written = False
            self._list.files.update(files)
            for name in gone:
                file = self._list.files.pop(name)
                self._unnamed[name] = StoredObject(self._object(name), file.size_bytes, file.etag)
            n_waiting += len(files)
            if gone or n_waiting >= FILES_PER_LIST:
                self._write_list()
                self._remove(gone)
                n_waiting = 0
        if not self._is_written:  # an earlier round may have failed to
            self._write_list()

    def _put(self, name: str, path: Path) -> ListedFile:
        """Copy one file unless the store has it; return its entry for the store's list.

        Raises _Moved when the file has gone.
        """
        known = None if name in self._damaged else self._list.files.get(name)
        try:
            if known and (known.size_bytes, known.changed_at_ns) == _stamp(path.stat()):
                return known
            with path.open("rb") as source:
                _, changed_at_ns = _stamp(os.fstat(source.fileno()))
                digests = _digests(source)
                if known and (known.size_bytes, known.sha256) == (digests.size_bytes, digests.sha256):
                    etag = known.etag
                else:
                    etag = self._send(name, source, digests)
        except FileNotFoundError:
            raise _Moved from None
        except OSError as error:
            reason = error.strerror or error
            raise DatasetError(f"cannot read {path}: {reason}; give this user the right to") from None
        return ListedFile(
            size_bytes=digests.size_bytes, sha256=digests.sha256, etag=etag, changed_at_ns=changed_at_ns
        )

    def _send(self, name: str, source: BinaryIO, digests: _Digests) -> str:
        """Put a file into the store, unless a killed upload has put it already; return its ETag."""
        path = self._object(name)
        left = self.store.look(path) if name in self._unnamed else None
        if left is not None and (left.size_bytes, left.etag.strip('"')) == (digests.size_bytes, digests.md5):
            return left.etag
        etag = self.store.put_file(path, source, digests.size_bytes, digests.md5)
        self._unnamed[name] = StoredObject(path, digests.size_bytes, etag)
        self.done.n_put += 1
        self.done.bytes_put += digests.size_bytes
        self.done.n_repaired += name in self._damaged
        self._damaged.discard(name)
        return etag

    def _write_list(self) -> None:
        """Replace the list `files.json` in the store by our present list."""
        path, content = list_path(self.dataset.chain), self._list.content()
        try:
            self._etag = self.store.replace(path, content, self._etag)
        except StoreChanged:
            found = self.store.get(path)
            if found is None or FileList.read(found[0], self.store.address).writer != self._list.writer:
                raise
            # It was our own put, whose answer was lost.
            self._etag = self.store.replace(path, content, found[1])
        self._is_written = True
        self.named = dict(self._list.files)
        for name in self._list.files.keys() & self._unnamed.keys():
            del self._unnamed[name]
        self.tell(self.done)

    def _remove_unnamed(self) -> None:
        self._remove([name for name in self._unnamed if name not in self._list.files])

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self.store.remove(self._object(name))
            self._unnamed.pop(name, None)
            self.done.n_removed += 1

    def _object(self, name: str) -> str:
        return f"{self.dataset.folder.name}/{name}"

    def _path(self, found: StoredObject) -> str:
        return found.path.removeprefix(f"{self.dataset.folder.name}/")

    def _is_file(self, found: StoredObject) -> bool:
        return FILE_PATH.fullmatch(self._path(found)) is not None


@contextmanager
def upload_lock(dataset: Dataset) -> Iterator[None]:
    """Keep other uploads of the chain away during the `with` block.

    Raises UploadRuns while another upload runs, NotWritable if the lock file cannot be made, and DatasetError
    when somebody has removed the dataset.
    """
    refusal = f"another upload of {dataset.root} is running; wait until it has ended"
    with ExitStack() as stack:
        dataset.refuse_if_gone()
        try:
            make_folder(dataset.folder)
            stack.enter_context(lock_taken(dataset.folder / UPLOAD_LOCK, refusal))
        except DatasetError as error:
            raise UploadRuns(str(error)) from None
        except OSError as error:
            raise _not_writable(dataset.folder / UPLOAD_LOCK, error) from None
        yield


def dataset_id(root: Path) -> str:
    """Return the identity of the dataset in `root`, which its copies in stores carry too.

    It is made if there is none. Raises NotWritable if it can be neither read nor made, and DatasetError if it
    is damaged.
    """
    path = root / ID_FILE
    try:
        if not path.exists():
            made = secrets.token_hex(ID_BYTES)
            write_atomically(path, lambda sink: sink.write(made.encode()))
        found = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise _not_writable(path, error) from None
    if not ID.fullmatch(found):
        raise DatasetError(f"{path} is damaged; restore it, or remove it and upload to an empty prefix")
    return found


def _not_writable(path: Path, error: OSError) -> NotWritable:
    return NotWritable(f"cannot use {path}: {error.strerror or error}; give this user the right to write it")


def _by_partition(names: Mapping[str, object]) -> dict[str, list[str]]:
    """Map each partition to its file names.

    A folder named by an older version counts under its present name.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        folder = Path(name).parent
        partition = new_name(folder) if has_old_name(folder) else folder
        found.setdefault(partition.as_posix(), []).append(name)
    return found


def _is_same(found: StoredObject | None, file: ListedFile) -> bool:
    return found is not None and (found.size_bytes, found.etag) == (file.size_bytes, file.etag)


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _digests(source: BinaryIO) -> _Digests:
    """Return size, SHA-256 and MD5 of an open file, which is read to its end."""
    size_bytes, sha256, md5 = 0, hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    while chunk := source.read(CHUNK_BYTES):
        size_bytes += len(chunk)
        sha256.update(chunk)
        md5.update(chunk)
    return _Digests(size_bytes, sha256.hexdigest(), md5.hexdigest())
