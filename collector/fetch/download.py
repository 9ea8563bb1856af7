"""Download one file over HTTP: go on where an earlier attempt ended, and trust nothing that a server says.

What has arrived is in `<name>.part`, and `<name>.part.json` says of which version of the file it is. The file
gets its name only when it is complete and its size and digests are right. A kill at any moment leaves the
part, and the next call goes on with it.
"""

import contextlib
import hashlib
import json
import os
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import requests
from requests.exceptions import ConnectTimeout, SSLError

from collector.backoff import Backoff
from collector.dataset.files import FILE_MODE, sync_folder, write_atomically
from collector.errors import NO_SPACE, FetchError, NotWritable, ServerUnavailable, ServerUnreachable
from collector.fetch.data_sets import RemoteFile, check_url
from collector.log import printable

CHUNK_BYTES: Final = 1 << 16
LEAST_BYTES: Final = 1024  # that must arrive in each period of `stall_s`
MOST_REDIRECTS: Final = 5
MOST_ATTEMPTS: Final = 1000  # also if each brings a little
LONGEST_PAUSE_S: Final = 60.0
CONNECT_S: Final = 10.0  # in which a connection must be made
# A server that has not answered yet is tried less: this machine may have no network at all.
FIRST_ATTEMPTS: Final = 3
FIRST_S: Final = 10.0  # after which no new attempt begins
MOST_ASKED_PAUSE_S: Final = 120.0  # a server that asks for a longer pause is left alone
MOST_SUMS_BYTES: Final = 1 << 20
LATER: Final = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
RANGE: Final = re.compile(r"bytes (\d{1,30})-(\d{1,30})/(\d{1,30}|\*)")
WHOLE: Final = re.compile(r"bytes \*/(\d{1,30})")

Progress = Callable[[int, int | None], None]  # bytes that are here, and the size if it is stated


class Downloaded(NamedTuple):
    """Says where a downloaded file is, its size in bytes, and how much of it had arrived before."""

    path: Path
    size_bytes: int
    n_resumed_bytes: int  # were here from an earlier attempt
    was_present: bool  # the whole file was in the cache


class Answer(NamedTuple):
    """Says which bytes the server is about to send, the file's whole size, and its version.

    `validator` is the ETag or date by which the server names the version.
    """

    start: int  # position in the file of the first byte
    total: int | None  # size of the whole file, if it is stated
    validator: str  # names this version of the file for If-Range; empty if the server names none


class _ChangedMeanwhile(Exception):  # noqa: N818 - a state of the server, not a mistake
    """Means that the server has another version of the file than the one that has arrived in part."""


@dataclass
class PartialFile:
    """Holds the bytes of a file that have arrived so far, and the version of the file that they belong to."""

    path: Path  # of the finished file
    url: str

    @property
    def bytes_path(self) -> Path:
        """Return the path of the file `<name>.part` with the bytes that have arrived."""
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def about_path(self) -> Path:
        """Return the path of `<name>.part.json`, which says of which version the arrived bytes are."""
        return self.path.with_name(f"{self.path.name}.part.json")

    def size(self) -> int:
        """Return the number of bytes of the download that have arrived."""
        try:
            return self.bytes_path.stat().st_size
        except FileNotFoundError:
            return 0

    def validator(self) -> str:
        """Return the server's name for the version of the arrived bytes: an ETag or a date, for If-Range.

        Returns an empty text if nothing is known, or if the bytes came from another URL.
        """
        try:
            about = json.loads(self.about_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        same = isinstance(about, dict) and about.get("url") == self.url
        return str(about.get("validator", "")) if same else ""

    def begin(self, validator: str) -> None:
        """Throw away the downloaded bytes, and record the version of the file whose bytes come next."""
        self.bytes_path.unlink(missing_ok=True)
        about = json.dumps({"url": self.url, "validator": validator}).encode()
        write_atomically(self.about_path, lambda file: file.write(about))

    def drop(self) -> None:
        """Remove the downloaded bytes and the record of their version."""
        self.bytes_path.unlink(missing_ok=True)
        self.about_path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Force the complete file to disk and rename it from `<name>.part` to its final name."""
        with self.bytes_path.open("rb") as file:
            os.fsync(file.fileno())
        self.bytes_path.replace(self.path)
        self.about_path.unlink(missing_ok=True)
        sync_folder(self.path.parent)


@dataclass
class Downloader:
    """Downloads files one after the other, and gives up on slow servers. Bounds on time are in seconds.

    A server that cannot be reached is given up soon, and is not asked again, unless it has answered before.
    """

    stop: threading.Event = field(default_factory=threading.Event)
    stall_s: float = 60.0  # a server that sends less than LEAST_BYTES in this time has stalled
    attempts: int = 6  # in a row that bring almost nothing
    first_pause_s: float = 1.0
    session: requests.Session = field(default_factory=requests.Session)
    _answered: set[str] = field(default_factory=set)  # servers that have answered at least once
    _given_up: set[str] = field(default_factory=set)  # servers that could not be reached

    def __post_init__(self) -> None:
        self.session.auth = lambda request: request  # no login from ~/.netrc is sent
        self.session.headers["User-Agent"] = f"pool-measurement/{metadata.version('pool-measurement')}"
        # So that positions, sizes and digests are those of the file.
        self.session.headers["Accept-Encoding"] = "identity"

    def download(self, file: RemoteFile, folder: Path, progress: Progress = lambda *_: None) -> Downloaded:
        """Download a file into `folder` unless it is there already, check it, and return what was done.

        Raises FetchError, and NotWritable for a full disk. What has arrived is kept for the next call, unless
        it is wrong.
        """
        path = folder / file.file_name
        part = PartialFile(path, file.url)
        sha256 = self._published_sha256(file)
        if path.is_file():
            with contextlib.suppress(FetchError):
                verify(file, path, sha256)
                return Downloaded(path, path.stat().st_size, 0, was_present=True)
            path.unlink()  # damaged on our disk: it is downloaded again
        n_resumed = part.size() if self._may_resume(file, part) else 0
        with _in_words(folder):
            self._receive_all(file, part, progress)
            try:
                verify(file, part.bytes_path, sha256)
            except FetchError:
                part.drop()
                if not n_resumed:
                    raise
                n_resumed = 0  # the earlier part may have been the wrong one
                self._receive_all(file, part, progress)
                try:
                    verify(file, part.bytes_path, sha256)
                except FetchError:
                    part.drop()
                    raise
            part.finish()
        return Downloaded(path, path.stat().st_size, n_resumed, was_present=False)

    def _receive_all(self, file: RemoteFile, part: PartialFile, progress: Progress) -> None:
        """Request a file again and again until it is complete, with pauses that grow.

        Raises FetchError after too many attempts without progress, and ServerUnreachable where no server
        answered.
        """
        pauses = Backoff(self.first_pause_s, LONGEST_PAUSE_S)
        n_fruitless, begun_s = 0, time.monotonic()
        for _ in range(MOST_ATTEMPTS):
            before = part.size()
            try:
                self._receive(file, part, progress)
            except _ChangedMeanwhile:
                part.drop()
                n_fruitless += 1
                failure = ServerUnavailable(f"{file.url} changes while it is downloaded; try it again later")
            except ServerUnavailable as error:
                failure = error
                is_fruitless = part.size() - before < LEAST_BYTES
                n_fruitless = n_fruitless + 1 if is_fruitless else 0
                if not is_fruitless:
                    pauses.reset()
            else:
                return
            if self._gives_up(failure, n_fruitless, time.monotonic() - begun_s):
                break
            if self.stop.wait(max(pauses.next_s(), failure.retry_after_s)):
                break
        kept = f"; {part.size():,} bytes are kept: the same command goes on with them" if part.size() else ""
        if isinstance(failure, ServerUnreachable):
            raise ServerUnreachable(f"{failure}{kept}", failure.server) from None
        raise FetchError(f"{failure}{kept}") from None

    def _gives_up(self, failure: ServerUnavailable, n_fruitless: int, for_s: float) -> bool:
        """Return whether to ask no more for a file, after `n_fruitless` attempts in a row in `for_s` seconds.

        A server that was never reached is then not asked for other files either.
        """
        if not isinstance(failure, ServerUnreachable):
            return n_fruitless >= self.attempts or failure.retry_after_s > MOST_ASKED_PAUSE_S
        if n_fruitless >= FIRST_ATTEMPTS or for_s > FIRST_S:
            self._given_up.add(failure.server)
        return failure.server in self._given_up

    def _receive(self, file: RemoteFile, part: PartialFile, progress: Progress) -> None:
        """Send one request for a file, and append the answer to the partial file, until that is complete.

        Raises an error when it is not complete.
        """
        headers = {}
        validator = part.validator()
        start = part.size() if self._may_resume(file, part) else 0
        if start:
            headers["Range"] = f"bytes={start}-"
            if validator:
                headers["If-Range"] = validator
        with self._open(file.url, headers) as response:
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                stated = WHOLE.fullmatch(response.headers.get("Content-Range", ""))
                if stated and int(stated[1]) == start:
                    return  # an earlier attempt ended after the last byte
                raise _ChangedMeanwhile
            answer = _answer(file, response, start, validator)
            if answer.start == 0:
                part.begin(answer.validator)
            _refuse_size(file, answer.total)
            _refuse_without_room(part, answer)
            self._write(file, part, response, answer, progress)

    def _write(
        self,
        file: RemoteFile,
        part: PartialFile,
        response: requests.Response,
        answer: Answer,
        progress: Progress,
    ) -> None:
        """Append the bytes that the server sends to the partial file; ServerUnavailable if they end early."""
        n_bytes = answer.start
        most = min(file.max_bytes, file.size_bytes or file.max_bytes)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with (
            os.fdopen(os.open(part.bytes_path, flags, FILE_MODE), "wb", buffering=0) as out,
            self._watched(file.url, response, part.size),
        ):
            while chunk := response.raw.read1(CHUNK_BYTES):
                n_bytes += len(chunk)
                if n_bytes > most:
                    raise FetchError(f"{file.url} sends more than the {most:,} bytes that the list allows")
                out.write(chunk)
                progress(n_bytes, answer.total)
        if answer.total is not None and n_bytes != answer.total:
            raise ServerUnavailable(f"{file.url} broke off after {n_bytes:,} of {answer.total:,} bytes")

    @contextlib.contextmanager
    def _watched(self, url: str, response: requests.Response, size: Callable[[], int]) -> Iterator[None]:
        """Break the connection if less than LEAST_BYTES arrive in `stall_s` during the `with` block.

        Every failure of the connection inside the block becomes ServerUnavailable.
        """
        done, stalled = threading.Event(), threading.Event()

        def watch() -> None:
            before = size()
            while not done.wait(self.stall_s):
                if size() - before < LEAST_BYTES:
                    # It fails where the answer has just ended, so that there is nothing to break.
                    with contextlib.suppress(OSError, RuntimeError, ValueError):
                        response.raw.shutdown()
                        stalled.set()
                    return
                before = size()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        except OSError as error:
            if error.errno is not None and not isinstance(error, TimeoutError | ConnectionError):
                raise  # of our disk
            raise ServerUnavailable(f"{url} broke off ({_why(error)})") from None
        except Exception as error:
            if isinstance(error, FetchError):
                raise
            raise ServerUnavailable(f"{url} broke off ({_why(error)})") from None
        finally:
            done.set()
            watcher.join()
        if stalled.is_set():
            raise ServerUnavailable(f"{url} sent less than {LEAST_BYTES:,} bytes in {self.stall_s:g} s")

    def _open(self, url: str, headers: dict[str, str]) -> requests.Response:
        """Send a GET request, follow redirections, and return the answer; raise FetchError for a bad one."""
        at = url
        for _ in range(MOST_REDIRECTS + 1):
            response = self._send(at, headers)
            if not response.is_redirect:
                return _accepted(at, response)
            to = urljoin(at, response.headers["Location"])
            response.close()
            try:
                check_url(to)
            except ValueError:
                raise FetchError(
                    f"{url} leads to {printable(to)[:200]}, which is not https; it is not followed"
                ) from None
            if at.startswith("https:") and to.startswith("http:"):
                raise FetchError(
                    f"{url} leads to {printable(to)[:200]} without encryption; it is not followed"
                )
            at = to
        raise FetchError(f"{url} leads from one address to another more than {MOST_REDIRECTS} times")

    def _send(self, url: str, headers: dict[str, str]) -> requests.Response:
        """Send one GET request; return its answer once its header is complete, within `stall_s` in all.

        It runs in a thread, because a server that sends its header byte by byte resets every time limit of
        the library. A thread that is given up ends with the process.
        """
        server = urlsplit(url).netloc
        if server in self._given_up:
            raise ServerUnreachable(f"cannot reach {url} ({server} did not answer before)", server)
        limits = (min(CONNECT_S, self.stall_s / 2), self.stall_s)  # to connect, and between two bytes
        answers: queue.SimpleQueue[requests.Response | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(
                    self.session.get(url, headers=headers, stream=True, allow_redirects=False, timeout=limits)
                )
            except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
                answers.put(error)

        threading.Thread(target=ask, daemon=True).start()
        try:
            answer = answers.get(timeout=self.stall_s)
        except queue.Empty:
            answer = requests.ReadTimeout()
        if isinstance(answer, requests.ReadTimeout):  # of the library or of this method, whichever ends first
            raise ServerUnavailable(f"{url} did not answer within {self.stall_s:g} s")
        if isinstance(answer, requests.Response):
            self._answered.add(server)
            return answer
        if isinstance(answer, SSLError):
            raise FetchError(f"{url}: the server's certificate is not accepted ({_why(answer)})")
        if isinstance(answer, requests.RequestException):
            is_late = isinstance(answer, ConnectTimeout)
            why = f"no connection within {limits[0]:g} s" if is_late else _why(answer)
            if _is_unconnected(answer) and server not in self._answered:
                raise ServerUnreachable(f"cannot reach {url} ({why})", server)
            raise ServerUnavailable(f"cannot reach {url} ({why})")
        raise answer

    def _may_resume(self, file: RemoteFile, part: PartialFile) -> bool:
        """Return whether a partial file can be continued: its version is known, or a digest will check it."""
        return bool(part.validator()) or (file.is_pinned and part.about_path.exists())

    def _published_sha256(self, file: RemoteFile) -> str | None:
        """Return the SHA-256 of a file in the publisher's own list of sums; None if there is no such list.

        Raises FetchError if the list does not name the file.
        """
        if not file.sums_url:
            return None
        with (
            self._open(file.sums_url, {}) as response,
            self._watched(file.sums_url, response, lambda: 1 << 62),
        ):
            text = response.raw.read(MOST_SUMS_BYTES).decode("utf-8", "replace")
        end = file.url.rpartition("/")[2]
        for line in text.splitlines():
            match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line.strip())
            if match and match[2].rpartition("/")[2] == end:
                return match[1].lower()
        raise FetchError(f"{file.sums_url} has no line with the SHA-256 of {end}")


def verify(file: RemoteFile, path: Path, published_sha256: str | None = None) -> None:
    """Raise FetchError if the file at `path` is empty or has another size or digest than it should.

    `file` is the entry in the list of files; a size or digest that it leaves open is not compared.
    `published_sha256` is the digest in the publisher's own list of sums, in hexadecimal.
    """
    size = path.stat().st_size
    if file.size_bytes not in (None, size):
        raise FetchError(f"{file.url} has {size:,} bytes, the list says {file.size_bytes:,}; it is not used")
    if not size:
        raise FetchError(f"{file.url} is empty")
    wanted = {"SHA-256": {file.sha256, published_sha256}, "git object id": {file.git_blob}}
    for name, values in wanted.items():
        for value in values - {None}:
            found = _digest(path, b"" if name == "SHA-256" else f"blob {size}\0".encode())
            if found != value:
                raise FetchError(
                    f"{file.url} has {name} {found}, the publisher's is {value}: it was changed or damaged, "
                    "and is not used; if the publisher has a new version, the list must name it"
                )


def _digest(path: Path, git_header: bytes) -> str:
    """Return in hex the SHA-256 of a file, or with `git_header` the SHA-1 by which git names its content."""
    digest = hashlib.sha1(git_header, usedforsecurity=False) if git_header else hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _accepted(url: str, response: requests.Response) -> requests.Response:
    """Return a server's answer if it brings a file, or says that the range is not in it.

    Raises ServerUnavailable or FetchError otherwise.
    """
    status = response.status_code
    if status in {
        HTTPStatus.OK,
        HTTPStatus.PARTIAL_CONTENT,
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    }:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            response.close()
            raise FetchError(
                f"{url} sends its file packed ({printable(encoding)[:40]}), unasked; it is not used"
            )
        return response
    response.close()
    if status in LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        asked = response.headers.get("Retry-After", "")
        pause_s = float(asked) if re.fullmatch(r"\d{1,6}", asked) else 0.0
        wish = f"; it asks for a pause of {pause_s:,.0f} s" if pause_s else ""
        raise ServerUnavailable(f"{url} answered HTTP {status}{wish}", retry_after_s=pause_s)
    hint = "; the publisher may have moved the file" if status in {404, 410} else ""
    raise FetchError(f"{url} answered HTTP {status}{hint}")


def _answer(file: RemoteFile, response: requests.Response, start: int, validator: str) -> Answer:
    """Return from the headers of a server's answer which bytes of the file follow.

    Raises FetchError when the server sends another part than the one from `start`, and _ChangedMeanwhile when
    the file is no longer the one that `validator` names.
    """
    given = response.headers.get("ETag", "")
    if not given or given.startswith("W/"):  # a weak one does not promise the same bytes
        given = response.headers.get("Last-Modified", "")
    length = response.headers.get("Content-Length", "")
    n_sent = int(length) if re.fullmatch(r"\d{1,30}", length) else None
    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        return Answer(0, n_sent, given)
    stated = RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not start or stated is None or int(stated[1]) != start:
        raise FetchError(
            f"{file.url} sends another part than the one asked for "
            f"({printable(response.headers.get('Content-Range', 'no Content-Range'))[:60]})"
        )
    if validator and given and given != validator:
        raise _ChangedMeanwhile
    total = int(stated[2]) + 1 if stated[3] == "*" else int(stated[3])
    return Answer(start, total, given)


def _refuse_size(file: RemoteFile, total: int | None) -> None:
    """Raise FetchError if the server states a size that the list does not allow."""
    if total is None:
        return
    if file.size_bytes not in (None, total):
        raise FetchError(f"{file.url} has {total:,} bytes, the list says {file.size_bytes:,}; it is not used")
    if total > file.max_bytes:
        raise FetchError(
            f"{file.url} has {total:,} bytes, more than the {file.max_bytes:,} that the list allows"
        )


def _refuse_without_room(part: PartialFile, answer: Answer) -> None:
    """Raise NotWritable if the disk lacks room for the bytes that will come."""
    free = shutil.disk_usage(part.path.parent).free
    wanted = (answer.total or 0) - answer.start
    if wanted > free:
        raise NotWritable(
            f"{part.path.parent} has room for {free:,} bytes, and {part.path.name} needs {wanted:,} more; "
            "free some, or name another folder with --cache"
        )


@contextlib.contextmanager
def _in_words(folder: Path) -> Iterator[None]:
    """Turn an OSError of our disk inside the `with` block into NotWritable, which says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise NotWritable(
                f"{folder} is full ({error.strerror}); what has arrived is kept: free some room and run the "
                "same command"
            ) from None
        raise NotWritable(f"cannot write to {folder}: {error.strerror}") from None


def _is_unconnected(error: requests.RequestException) -> bool:
    """Return whether an error means that no connection was made: no such name, refused, or no answer.

    requests wraps such a failure in an error that has a `reason`; what fails later has none.
    """
    return any(getattr(part, "reason", None) is not None for part in error.args)


def _why(error: BaseException) -> str:
    """Return the cause of an error in a few words: what the system says of the innermost error, or its type.

    The texts of the errors are not used: they repeat the URL, and name objects by their place in memory.
    """
    inner = next((part for part in error.args if isinstance(part, BaseException)), error.__context__)
    reason = getattr(error, "reason", None)
    inner = reason if isinstance(reason, BaseException) else inner
    if inner is not None and inner is not error:
        return _why(inner)
    words = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or type(error).__name__
    return printable(str(words))
