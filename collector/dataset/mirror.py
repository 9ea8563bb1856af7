"""Keep the files of a dataset in an object store in a cache on disk, which is a dataset like any other.

Each time the store is opened for reading, the files that its list names and the cache lacks are fetched, and
those that the list no longer names are removed. A fetched file must have the size and the SHA-256 of the
list. Files never change once they are sealed, so later calls compare only size and time of change.

Nobody reads while files change places: readers hold the lock that a compaction would wait for. All caches
together take at most `POOL_STORE_CACHE_GB`; those that were used longest ago go first.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from collector.dataset.chains import CHAINS
from collector.dataset.file_list import FileList, ListedFile, list_path
from collector.dataset.files import (
    WRITE_LOCK,
    lock_held_for_writing,
    lock_tried_alone,
    make_folder,
    write_atomically,
)
from collector.dataset.marker import DATASET_MARKER, check_marker_content
from collector.dataset.object_store import ObjectStore
from collector.dataset.open import CHAIN_PREFIX, Dataset
from collector.dataset.schema import TABLES
from collector.dataset.store_address import StoreAddress
from collector.errors import DatasetError, NoSuchChain, NotWritable, SettingsError, StoreError

FOLDER_VARIABLE: Final = "POOL_STORE_CACHE"
SIZE_VARIABLE: Final = "POOL_STORE_CACHE_GB"
DEFAULT_GB: Final = 100.0  # units of 10^9 bytes
PATIENCE_S: Final = 60.0
MIRROR_LOCK: Final = ".mirror.lock"  # held while files come and go; its time says when the cache was used
INCOMING: Final = ".incoming"  # fetched and verified files that are not in their places yet
MOST_ROUNDS: Final = 5  # each but the first follows a change of the list meanwhile


class _NotAsListed(Exception):  # noqa: N818 - what an upload may do, not a mistake
    """Means that an object has gone from the store, or has other content than the store's list says."""


def open_mirror(address: StoreAddress, chain: str | None, store: ObjectStore | None = None) -> Dataset:
    """Bring the cache on disk of a dataset in a store up to date, and return it opened.

    Without a `chain`, the only one in the store is taken. Raises DatasetError where `address` is no dataset
    or lacks the chain, StoreError where the store cannot be read or does not hold what was uploaded, and
    NotWritable where the cache cannot be written.
    """
    opened = store or ObjectStore(address, patience_s=PATIENCE_S)
    marker = opened.get(DATASET_MARKER)
    if marker is None:
        raise DatasetError(
            f"{address} is not a dataset: it has no {DATASET_MARKER}; name the prefix that"
            " `pool-collector upload` wrote"
        )
    check_marker_content(marker[0], str(address), "prefix")
    chosen = _chosen_chain(opened, chain)
    root = cache_folder() / _folder_name(opened)
    try:
        make_folder(root)
        with lock_held_for_writing(root / MIRROR_LOCK, exclusive=True):
            os.utime(root / MIRROR_LOCK)
            write_atomically(root / DATASET_MARKER, lambda sink: sink.write(marker[0]))
            _Mirror(opened, Dataset.open(root, chosen)).bring_up_to_date()
    except OSError as error:
        raise NotWritable(
            f"cannot write the cache {root}: {error.strerror or error}; free space, or name another folder"
            f" in {FOLDER_VARIABLE}"
        ) from None
    return Dataset.open(root, chosen)


class _Mirror:
    """Makes a folder hold exactly those files of one chain that the list in a store names."""

    def __init__(self, store: ObjectStore, dataset: Dataset) -> None:
        self._store = store
        self._dataset = dataset
        self._incoming = dataset.root / INCOMING

    def bring_up_to_date(self) -> None:
        """Fetch the listed files that the cache lacks from the store, and remove from the cache all others.

        Raises StoreError where the store does not hold what was uploaded, or changes all the time.
        """
        make_folder(self._incoming)
        before = None
        for _ in range(MOST_ROUNDS):
            files, etag = self._listed()
            _make_room(self._dataset.root, sum(file.size_bytes for file in files.values()))
            lacking = {name: file for name, file in files.items() if not self._has(name, file)}
            try:
                for name, file in lacking.items():
                    self._fetch(name, file)
            except _NotAsListed as error:
                if etag == before:
                    raise StoreError(
                        f"{self._store.address}: {error} is not what was uploaded; `pool-collector upload`"
                        " puts it again"
                    ) from None
                before = etag
                continue
            self._exchange(lacking, files)
            return
        raise StoreError(f"{self._store.address} changes while it is read; try again later")

    def _listed(self) -> tuple[Mapping[str, ListedFile], str]:
        """Return the files that the list in the store names, by path, and the list's ETag.

        Raises StoreError if there is no list.
        """
        found = self._store.get(list_path(self._dataset.chain))
        if found is None:
            raise _list_lost(self._store, self._dataset.chain)
        return FileList.read(found[0], self._store.address).files, found[1]

    def _has(self, name: str, file: ListedFile) -> bool:
        try:
            status = (self._dataset.folder / name).stat()
        except FileNotFoundError:
            return False
        return (status.st_size, status.st_mtime_ns) == (file.size_bytes, file.changed_at_ns)

    def _fetch(self, name: str, file: ListedFile) -> None:
        """Fetch a file from the store into the folder of incoming files, unless a killed call left it there.

        Raises _NotAsListed if its content is not what the list says.
        """
        path = self._incoming_path(name, file)
        if path.exists():
            return

        def write(sink: BinaryIO) -> None:
            if self._store.fetch(f"{self._dataset.folder.name}/{name}", sink) != file.sha256:
                raise _NotAsListed(name)

        write_atomically(path, write)
        os.utime(path, ns=(file.changed_at_ns, file.changed_at_ns))

    def _incoming_path(self, name: str, file: ListedFile) -> Path:
        return self._incoming / hashlib.sha256(f"{file.sha256} {name}".encode()).hexdigest()

    def _exchange(self, lacking: Mapping[str, ListedFile], files: Mapping[str, ListedFile]) -> None:
        """Move fetched files into the cache and remove from it what is not listed, while nobody reads it."""
        folder = self._dataset.folder
        with self._dataset.replace_lock():
            for name, file in lacking.items():
                path = folder / name
                make_folder(path.parent)
                self._incoming_path(name, file).replace(path)
            for table in TABLES.values():
                for path in self._dataset.paths(table):
                    if path.relative_to(folder).as_posix() not in files:
                        path.unlink()
                        with contextlib.suppress(OSError):  # others are in it
                            path.parent.rmdir()
        shutil.rmtree(self._incoming)


def cache_folder() -> Path:
    """Return the folder of all caches: what POOL_STORE_CACHE names, or one below the user's cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pool-measurement" / "stores"


def _folder_name(store: ObjectStore) -> str:
    """Return the folder name for the cache of a store.

    The name is made from bucket and address, because two stores may have buckets of the same name.
    """
    return f"{store.address.bucket}-{hashlib.sha256(store.identity.encode()).hexdigest()[:12]}"


def _chosen_chain(store: ObjectStore, chain: str | None) -> str:
    """Return the chain to read: `chain`, or without it the only one in the store.

    Raises DatasetError if the store has none, or several and none is chosen; NoSuchChain if it lacks `chain`;
    StoreError if it has files of the chain and no list of them.
    """
    found = [name for name in CHAINS if store.look(list_path(name)) is not None]
    if chain is None and len(found) == 1:
        return found[0]
    if chain in found:
        return chain
    for name in CHAINS if chain is None else (chain,):
        if name not in found and next(store.objects(f"{CHAIN_PREFIX}{name}"), None) is not None:
            raise _list_lost(store, name)
    if not found:
        raise DatasetError(f"{store.address} has no data yet; let `pool-collector upload` run to its end")
    has = f"only {found[0]}" if len(found) == 1 else f"the chains {', '.join(found)}"
    fault = DatasetError if chain is None else NoSuchChain
    raise fault(f"{store.address} has {has}; choose one with --chain")


def _list_lost(store: ObjectStore, chain: str) -> StoreError:
    return StoreError(
        f"{store.address} has lost its list of files, {list_path(chain)}; call `pool-collector upload` again"
    )


def _make_room(root: Path, needed_bytes: int) -> None:
    """Remove caches of other stores, those used longest ago first, until there is room for `needed_bytes`.

    A cache that is being read stays. Raises StoreError if `needed_bytes` alone exceed the bound of all.
    """
    most_gb = _most_gb()
    free_bytes = most_gb * 1e9 - needed_bytes
    if free_bytes < 0:
        raise StoreError(
            f"the dataset has {needed_bytes / 1e9:.1f} GB, and the cache may have {most_gb:g};"
            f" set {SIZE_VARIABLE} to more"
        )
    others = [lock.parent for lock in root.parent.glob(f"*/{MIRROR_LOCK}") if lock.parent != root]
    sizes = {each: sum(map(_size_bytes, each.rglob("*.parquet"))) for each in others}
    for each in sorted(others, key=lambda other: _used_at_s(other / MIRROR_LOCK)):
        if sum(sizes.values()) <= free_bytes:
            return
        with _unused(each) as is_unused:
            if is_unused:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(each)
                del sizes[each]


def _size_bytes(path: Path) -> int:
    """Return the size of a file of another cache; 0 if its own reader has just removed it."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _used_at_s(lock: Path) -> float:
    """Return when another cache was used last, by its lock; 0 if somebody has just removed the cache."""
    try:
        return lock.stat().st_mtime
    except OSError:
        return 0.0


def _most_gb() -> float:
    text = os.environ.get(SIZE_VARIABLE) or str(DEFAULT_GB)
    with contextlib.suppress(ValueError):
        if (most_gb := float(text)) > 0:
            return most_gb
    raise SettingsError(f"{SIZE_VARIABLE}={text!r} is no size; give a number of GB, such as 200")


@contextlib.contextmanager
def _unused(root: Path) -> Iterator[bool]:
    """Lock a cache during the `with` block if nobody reads or fills it; yield whether it is locked."""
    locks = [root / MIRROR_LOCK, *root.glob(f"{CHAIN_PREFIX}*/{WRITE_LOCK}")]
    with ExitStack() as stack:
        yield all(stack.enter_context(lock_tried_alone(lock)) for lock in locks)
