"""Download data sets into the cache, check them, and import them; one that fails does not stop the others."""

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from collector.dataset.files import FOLDER_LOCK, lock_taken, make_folder, why_unwritable
from collector.dataset.open import Dataset
from collector.errors import (
    CollectorError,
    DatasetError,
    DecodeError,
    FetchError,
    NotWritable,
    ServerUnreachable,
)
from collector.external.header_files import reader_for
from collector.external.imported_rows import ImportFile, Origin, read_import, store_import
from collector.external.providers import read_files
from collector.fetch.contents import unpacked
from collector.fetch.data_sets import FILES, DataSet, RemoteFile
from collector.fetch.download import Downloader
from collector.log import counted

MOST_SHOWN: Final = 3  # problems of one data set that are shown; the rest are counted


class Watch(Protocol):
    """Receives the progress of downloads."""

    def begin(self, name: str, number: int, total: int) -> None:
        """Is called when the download of file `number` of `total`, called `name`, begins."""

    def arrived(self, n_bytes: int, total: int | None) -> None:
        """Is called with the bytes of the file that have arrived, and its size if the server states it."""


@dataclass
class FetchResult:
    """Says what came of one data set: files, bytes and rows fetched, rows that were new, and problems."""

    name: str
    n_files: int = 0  # that are here and right
    n_bytes: int = 0
    n_rows: int = 0  # in those files
    n_new: int = 0  # rows that the dataset did not have
    folder: Path | None = None  # of files that another command reads
    problems: list[str] = field(default_factory=list)
    n_unreached: int = 0  # of the problems: no connection to the server was made

    @property
    def is_fetched(self) -> bool:
        """Return whether a file was fetched; one that `import` reads has then been imported too."""
        return self.n_files > 0

    def lines(self) -> list[str]:
        """Return lines of text that say what was fetched and stored, and what failed."""
        done = f"{self.name}: {counted(self.n_files, 'file')}, {counted(self.n_bytes, 'byte')}"
        if self.folder is None:
            done += f"; {counted(self.n_rows, 'row')}, {self.n_new:,} of them new"
        else:
            done += f"; in {self.folder}"
        lines = [done] if self.is_fetched else []
        n_shown = 1 if self.n_unreached == len(self.problems) else MOST_SHOWN
        lines += [f"{self.name}: {problem}" for problem in self.problems[:n_shown]]
        if len(self.problems) > n_shown:
            lines.append(f"{self.name}: and {counted(len(self.problems) - n_shown, 'more file')} that failed")
        return lines


@dataclass
class Fetch:
    """Downloads data sets into a cache and imports them into a dataset.

    `open_dataset` returns the dataset, which it may make; it is called when the first file is there. None
    means no import.
    """

    cache: Path
    open_dataset: Callable[[], Dataset] | None
    is_kept: bool  # files stay in the cache after their import
    watch: Watch
    downloader: Downloader = field(default_factory=Downloader)

    def fetch(
        self, data_sets: Sequence[DataSet], first: dt.date | None, last: dt.date | None
    ) -> list[FetchResult]:
        """Fetch the data sets one after the other, and return what came of each.

        `first` and `last` are the days to take of data sets that have a file for each day. Raises NotWritable
        if the cache cannot be written, and DatasetError while another fetch uses it.
        """
        try:
            make_folder(self.cache)
        except OSError as error:
            reason = f"cannot make the folder {self.cache}: {why_unwritable(error)}"
            raise NotWritable(f"{reason}; choose another --cache") from None
        with lock_taken(
            self.cache / FOLDER_LOCK, f"another fetch is using {self.cache}; wait until it has ended"
        ):
            return [self._fetch_one(each, each.days(first, last)) for each in data_sets]

    def _fetch_one(self, data_set: DataSet, days: Sequence[dt.date]) -> FetchResult:
        outcome = FetchResult(data_set.name)
        folder = self.cache / data_set.name
        make_folder(folder)
        if data_set.kind == FILES or self.open_dataset is None:
            outcome.folder = folder
        files = list(data_set.files_of(days))
        pause = threading.Event()
        for number, file in enumerate(files, start=1):
            if number > 1 and data_set.pause_s and not outcome.n_unreached:
                pause.wait(data_set.pause_s)
            self.watch.begin(f"{data_set.name}/{file.file_name}", number, len(files))
            try:
                self._fetch_file(data_set, file, folder, outcome)
            except NotWritable:
                raise
            except CollectorError as error:
                outcome.problems.append(str(error))
                outcome.n_unreached += isinstance(error, ServerUnreachable)
        if not any(folder.iterdir()):
            folder.rmdir()
        return outcome

    def _fetch_file(self, data_set: DataSet, file: RemoteFile, folder: Path, outcome: FetchResult) -> None:
        """Download one file and import it, and count both in `outcome`.

        A file whose content is refused is removed from the cache.
        """
        got = self.downloader.download(file, folder, self.watch.arrived)
        try:
            with unpacked(file, got.path) as content:
                if self.open_dataset is not None and data_set.kind != FILES:
                    dataset = self.open_dataset()
                    stored = store_import(dataset, _read(dataset, data_set, file, content))
                    outcome.n_rows += stored.n_rows
                    outcome.n_new += stored.n_new
        except (FetchError, DecodeError):
            got.path.unlink()  # the server may send better next time
            raise
        except NotWritable:
            raise
        except DatasetError as error:
            raise DatasetError(f"{error} with pool-collector import; the file stays at {got.path}") from None
        outcome.n_files += 1
        outcome.n_bytes += got.size_bytes
        if not self.is_kept and outcome.folder is None:
            got.path.unlink()


def _read(dataset: Dataset, data_set: DataSet, file: RemoteFile, content: Path) -> ImportFile:
    """Return the rows of a downloaded file with its address and licence; raises what the import raises."""
    if data_set.provider:
        [read] = read_files(
            [content],
            data_set.provider,
            chain=dataset.chain,
            kind=data_set.kind or None,
            source=file.source or data_set.source,
            licence=data_set.licence,
            url=file.url,
        )
        return read
    origin = Origin(file.source or data_set.source or "", data_set.licence, file.url)
    # A file of headers may go on from those of an earlier file.
    reader = reader_for(data_set.kind, dataset.root, dataset.chain, first_height=None)
    return read_import(data_set.kind, content, origin, currency=data_set.currency, read=reader)
