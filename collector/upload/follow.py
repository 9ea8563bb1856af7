"""Copy what a running collector seals into an object store, in a thread of its own.

A store that does not answer is treated like a full disk: collecting goes on, sealed files stay on this disk
until the store takes them, and metrics, readiness and log say so. A kill at any moment costs nothing: the
next start compares the store with the dataset on disk.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from collector.backoff import Backoff
from collector.dataset.file_list import ListedFile
from collector.dataset.files import is_lock_held
from collector.dataset.object_store import ObjectStore
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from collector.dataset.store_address import StoreAddress
from collector.errors import CollectorError, DatasetError, StoreChanged, StoreUnavailable, UploadRuns
from collector.log import counted
from collector.upload.run import ID_FILE, UPLOAD_LOCK, Upload, Uploaded, upload_lock

LOOK_S: Final = 2.0  # how often new files are looked for
PATIENCE_S: Final = 60.0  # for one request, before the files are listed again
ANSWER_S: Final = 30.0  # a store that is silent for so long within a request has stalled
LONGEST_PAUSE_S: Final = 60.0  # between two rounds that failed
FINISH_S: Final = 300.0  # how long a command waits for a store that takes nothing
FINISH_LOOK_S: Final = 0.2
CLOSE_S: Final = 20.0  # how long a stop of the collector waits for the store

log = structlog.get_logger(__name__)


class Waiting(NamedTuple):
    """Counts the sealed files, and their bytes, that the store does not have yet."""

    n_files: int
    n_bytes: int


class Uploader:
    """Copies every file that is sealed in a dataset into a store until it is closed.

    The constructor asks the store once. A store that refuses us is an error while nothing of the dataset has
    been uploaded; later, and where the store does not answer, collecting goes on without it. So it does while
    another upload of the dataset runs: the files are copied when that has ended.
    """

    def __init__(self, dataset: Dataset, address: str, *, endpoint: str | None = None) -> None:
        self._dataset = dataset
        self._blocked = ""
        self._closing = threading.Event()
        self._store = ObjectStore(
            StoreAddress.parse(address),
            endpoint,
            patience_s=0.0,
            answer_s=ANSWER_S,
            on_retry=self._block,
        )
        self._upload: Upload | None = None  # the newest that the store let us begin
        self._begins_anew = True  # the next round does not trust what `_upload` knows of the store
        self.done = Uploaded()  # since the start
        # When the store was last seen to have every sealed file: Unix time, and the monotonic clock.
        self.last_at_s: float | None = None
        self._complete_s = -math.inf
        self._at_end = ExitStack()
        self._has_lock = False
        try:
            self._begin()
        except CollectorError as error:
            has_copy = (dataset.root / ID_FILE).exists()
            if not has_copy and not isinstance(error, StoreUnavailable | UploadRuns):
                self._at_end.close()
                raise
            self._block(str(error))
        self._store.patience_s = PATIENCE_S
        self._thread = threading.Thread(target=self._run, name="uploader", daemon=True)
        self._thread.start()

    @property
    def blocked(self) -> str:
        """Return why the store does not take files now; empty when it takes them."""
        return self._blocked

    @property
    def is_running(self) -> bool:
        """Return whether the thread runs that copies files into the store."""
        return self._thread.is_alive()

    def waiting(self) -> Waiting:
        """Return how many files and bytes are sealed on this disk and not yet in the store.

        A folder that cannot be listed counts as empty; `blocked` then says so.
        """
        named = self._upload.named if self._upload is not None else {}
        n_files = n_bytes = 0
        for table in TABLES.values():
            paths: list[Path] = []
            with suppress(DatasetError):
                paths = self._dataset.paths(table)
            for path in paths:
                known = named.get(path.relative_to(self._dataset.folder).as_posix())
                size_bytes = _unlike(path, known)
                if size_bytes is not None:
                    n_files, n_bytes = n_files + 1, n_bytes + size_bytes
        return Waiting(n_files, n_bytes)

    def finish(self) -> None:
        """Wait until the store has every sealed file and no removed one; then end the upload thread.

        Raises StoreUnavailable if the store takes none for FINISH_S seconds, or refuses us.
        """
        asked_s = time.monotonic()
        given_up_s = math.inf
        while self._is_behind(asked_s) and self.is_running and time.monotonic() < given_up_s:
            if not self._blocked:
                given_up_s = math.inf
            elif given_up_s == math.inf:
                given_up_s = time.monotonic() + FINISH_S
            self._closing.wait(FINISH_LOOK_S)
        reason = self._blocked
        self.close()
        if self._is_behind(asked_s):
            n_files = self.waiting().n_files
            behind = (
                f"{counted(n_files, 'file')} of it not in" if n_files else "files that are gone here still in"
            )
            raise StoreUnavailable(
                f"everything is in {self._dataset.root}, and {behind} {self._store.address} yet: {reason};"
                " the same command goes on"
            )

    def close(self) -> None:
        """Copy the files of the last seals, unless the store does not answer; then end the upload thread."""
        self._closing.set()
        if self._blocked:
            self._store.stop.set()
        self._thread.join(CLOSE_S)
        self._store.stop.set()
        self._thread.join(CLOSE_S)
        waiting = self.waiting()
        if waiting.n_files:
            log.warning("upload.left", n_files=waiting.n_files, reason=self._blocked, advice="start again")
        self._at_end.close()

    def _is_behind(self, since_s: float) -> bool:
        """Return whether the store lacks a file, or was last found complete before `since_s` (monotonic)."""
        return self._complete_s < since_s or self.waiting().n_files > 0

    def _run(self) -> None:
        pauses = Backoff(LOOK_S, LONGEST_PAUSE_S)
        while True:
            is_last = self._closing.is_set()
            try:
                self._bring_up_to_date()
            except StoreChanged as error:  # an upload elsewhere took over: two would undo each other's work
                self._block(f"{error}; collecting goes on, nothing is uploaded until the next start")
                return
            except CollectorError as error:
                self._block(str(error))
                if not isinstance(error, StoreUnavailable):
                    self._begins_anew = True
                pause_s = pauses.next_s()
            except Exception as error:  # a fault of ours must not end the uploads for ever
                log.exception("upload.failed", error=f"{type(error).__name__}: {error}")
                self._block(f"{type(error).__name__}: {error}")
                self._begins_anew, pause_s = True, pauses.next_s()
            else:
                self._unblock()
                pauses.reset()
                pause_s = LOOK_S
            if is_last or self._store.stop.is_set():
                return
            self._closing.wait(pause_s)

    def _begin(self) -> Upload:
        if not self._has_lock:
            self._at_end.enter_context(upload_lock(self._dataset))
            self._has_lock = True
        self._upload = Upload.begin(self._dataset, self._store)
        self._begins_anew = False
        return self._upload

    def _bring_up_to_date(self) -> None:
        upload = self._begin() if self._upload is None or self._begins_anew else self._upload
        # What is sealed later may not be in the list of this round.
        begun_at_s, begun_s = time.time(), time.monotonic()
        done = upload.bring_up_to_date()
        self.last_at_s, self._complete_s = begun_at_s, begun_s
        self.done.n_put += done.n_put
        self.done.bytes_put += done.bytes_put
        if done.has_changed:
            log.info("upload.done", n_put=done.n_put, bytes_put=done.bytes_put, n_files=done.n_files)

    def _block(self, reason: str) -> None:
        if not self._blocked:
            log.warning("store.away", reason=reason)
        self._blocked = reason

    def _unblock(self) -> None:
        if self._blocked:
            log.info("store.goes_on")
        self._blocked = ""


@contextmanager
def sealing_into(dataset: Dataset, address: str | None) -> Iterator[None]:
    """Copy files that the `with` block seals into the store at `address`; wait until all of them are there.

    Nothing is done without an address, or while a collector copies the dataset, which takes these files too.
    Where another upload ran at the start and has ended since, it may have missed them, and they are copied.
    Raises StoreUnavailable as Uploader.finish does, and StoreError where the store cannot be used.
    """
    lock = dataset.folder / UPLOAD_LOCK
    if address is None or is_lock_held(lock):
        yield
        if address is not None and not is_lock_held(lock):
            Uploader(dataset, address).finish()
        return
    uploader = Uploader(dataset, address)
    try:
        yield
    except BaseException:
        uploader.close()
        raise
    uploader.finish()


def _unlike(path: Path, known: ListedFile | None) -> int | None:
    """Return a file's size in bytes if the store does not have it as it is on disk; else None.

    The size is 0 if it cannot be told.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return 0
    is_there = known and (known.size_bytes, known.changed_at_ns) == (status.st_size, status.st_mtime_ns)
    return None if is_there else status.st_size
