"""Test downloads from a real server that breaks off, lies, stalls and misleads."""

import hashlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.errors import FetchError, NotWritable, ServerUnreachable
from collector.fetch.data_sets import RemoteFile
from collector.fetch.download import Downloader, PartialFile

from .conftest import Handler, Site

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes
OTHER = CONTENT[::-1]
SHA256 = hashlib.sha256(CONTENT).hexdigest()
GIT_BLOB = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT, usedforsecurity=False).hexdigest()
HALF = len(CONTENT) // 2


def breaks_off(after: int = HALF) -> Callable[[Handler, bytes], bool]:
    """Send only so many bytes."""

    def do(handler: Handler, content: bytes) -> bool:
        handler.answer(content, n_sent=after)
        return True

    return do


def answers(status: int, **headers: str) -> Callable[[Handler, bytes], bool]:
    """Answer with a status and no file."""

    def do(handler: Handler, _: bytes) -> bool:
        handler.send_response(status)
        for name, value in ({"Content-Length": "0"} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        return True

    return do


def test_a_file_is_downloaded_once_and_checked(site: Site, downloader: Downloader, cache: Path) -> None:
    """The content is that of the server; the second call finds it, and asks nothing."""
    file = site.put("/file.bin", CONTENT, sha256=SHA256, git_blob=GIT_BLOB, size_bytes=len(CONTENT))
    seen: list[int] = []

    first = downloader.download(file, cache, lambda n_bytes, _: seen.append(n_bytes))
    second = downloader.download(file, cache)

    assert first.path.read_bytes() == CONTENT
    assert (first.was_present, second.was_present) == (False, True)
    assert seen[-1] == len(CONTENT)
    assert len(site.requests) == 1
    assert [path.name for path in cache.iterdir()] == ["file.bin"]


def test_a_download_that_breaks_off_goes_on_where_it_ended(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """The second request asks for the rest of the same version."""
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", 1, do=breaks_off())

    assert downloader.download(file, cache).path.read_bytes() == CONTENT

    assert site.ranges() == [None, f"bytes={HALF}-"]
    assert site.requests[1][1]["If-Range"].startswith('"')


def test_a_file_that_changes_between_two_attempts_is_not_mixed(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """The server sends the whole new file, because the ETag is another one."""
    file = site.put("/file.bin", CONTENT)

    def breaks_off_and_changes(handler: Handler, content: bytes) -> bool:
        handler.answer(content, n_sent=HALF)
        site.files["/file.bin"] = OTHER
        return True

    site.at("/file.bin", 1, do=breaks_off_and_changes)

    assert downloader.download(file, cache).path.read_bytes() == OTHER


def test_a_server_that_overlooks_if_range_is_found_out(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """It sends the rest of another version; the ETag tells, and all is downloaded again."""
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", 1, do=breaks_off())

    def rest_of_another(handler: Handler, _: bytes) -> bool:
        site.files["/file.bin"] = OTHER
        del handler.headers["If-Range"]
        handler.answer(OTHER)
        return True

    site.at("/file.bin", 2, do=rest_of_another)

    assert downloader.download(file, cache).path.read_bytes() == OTHER


def test_a_server_without_ranges_sends_the_whole_file_again(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """Its answer 200 replaces the part."""
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", 1, do=breaks_off())

    def whole(handler: Handler, content: bytes) -> bool:
        del handler.headers["Range"]
        handler.answer(content)
        return True

    site.at("/file.bin", 2, do=whole)

    assert downloader.download(file, cache).path.read_bytes() == CONTENT


def test_without_a_version_or_a_digest_nothing_is_gone_on_with(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """A part of which nobody knows the version is downloaded again."""
    file = site.put("/file.bin", CONTENT)

    def no_etag(handler: Handler, content: bytes) -> bool:
        handler.answer(content, n_sent=HALF, ETag="")
        return True

    site.at("/file.bin", 1, do=no_etag)

    assert downloader.download(file, cache).path.read_bytes() == CONTENT
    assert site.ranges() == [None, None]


@pytest.mark.parametrize("stated", [len(CONTENT) + 1, 10 * len(CONTENT)])
def test_a_length_that_is_too_large_ends_in_an_error(
    site: Site, downloader: Downloader, cache: Path, stated: int
) -> None:
    """The bytes never come; the error says how many are missing, and that the part is kept."""
    file = site.put("/file.bin", CONTENT)

    def lie(handler: Handler, content: bytes) -> bool:
        del handler.headers["Range"]
        handler.answer(content, n_sent=len(content), **{"Content-Length": str(stated)})
        return True

    site.at("/file.bin", *range(1, 20), do=lie)

    with pytest.raises(FetchError, match=r"broke off.*512,000 bytes are kept"):
        downloader.download(file, cache)
    assert not (cache / "file.bin").exists()


def test_a_length_that_is_too_small_is_found_out_by_the_digest(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """A file that a lie has cut short is not used, and not kept."""
    file = site.put("/file.bin", CONTENT, sha256=SHA256)

    def lie(handler: Handler, content: bytes) -> bool:
        handler.answer(content[:HALF])
        return True

    site.at("/file.bin", 1, do=lie)

    with pytest.raises(FetchError, match=r"has SHA-256 [0-9a-f]{64}, the publisher's is"):
        downloader.download(file, cache)
    assert list(cache.iterdir()) == []
    assert downloader.download(file, cache).path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"max_bytes": 1000}, "has 512,000 bytes, more than the 1,000"),
        ({"size_bytes": 1000}, "has 512,000 bytes, the list says 1,000"),
    ],
)
def test_a_file_of_another_size_is_refused_before_it_is_downloaded(
    site: Site, downloader: Downloader, cache: Path, more: dict[str, int], says: str
) -> None:
    """The stated size is compared with the list; no second request is made."""
    file = site.put("/file.bin", CONTENT, **more)

    with pytest.raises(FetchError, match=says):
        downloader.download(file, cache)
    assert len(site.requests) == 1


def test_a_server_that_states_no_size_cannot_send_without_end(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """A stream in chunks is cut at the limit of the list."""
    file = site.put("/file.bin", CONTENT, max_bytes=100_000)

    def endless(handler: Handler, _: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"1000\r\n" + bytes(0x1000) + b"\r\n")
        except OSError:
            handler.close_connection = True
        return True

    site.at("/file.bin", 1, do=endless)

    with pytest.raises(FetchError, match="sends more than the 100,000 bytes"):
        downloader.download(file, cache)


@pytest.mark.parametrize("where", ["body", "header", "nothing"])
def test_a_server_that_drips_is_given_up(site: Site, downloader: Downloader, cache: Path, where: str) -> None:
    """A byte now and then resets no time limit: not in the body, and not in the header."""
    downloader.stall_s = 0.5
    file = site.put("/file.bin", CONTENT)
    end = threading.Event()

    def drip(handler: Handler, content: bytes) -> bool:
        if where == "body":
            handler.answer(content, n_sent=1)
        try:
            while where != "nothing" and not end.wait(0.02):
                handler.wfile.write(b"HTTP/1.1 200 OK\r\n"[:1] if where == "header" else b"x")
            end.wait()
        except OSError:
            pass
        handler.close_connection = True
        return True

    site.at("/file.bin", *range(1, 20), do=drip)
    try:
        with pytest.raises(FetchError, match=r"sent less than 1,024 bytes|did not answer within|broke off"):
            downloader.download(file, cache)
    finally:
        end.set()
    assert not (cache / "file.bin").exists()


def test_after_a_stall_the_same_command_goes_on(site: Site, downloader: Downloader, cache: Path) -> None:
    """What a stalled server has sent is kept."""
    downloader.stall_s = 2
    file = site.put("/file.bin", CONTENT)
    end = threading.Event()

    def stall(handler: Handler, content: bytes) -> bool:
        handler.answer(content, n_sent=HALF)
        handler.wfile.flush()
        end.wait()
        return True

    site.at("/file.bin", 1, do=stall)
    try:
        assert downloader.download(file, cache).path.read_bytes() == CONTENT
    finally:
        end.set()
    assert site.ranges() == [None, f"bytes={HALF}-"]


def test_an_answer_that_has_ended_is_no_stall(site: Site, downloader: Downloader, cache: Path) -> None:
    """A file that has arrived counts, also where its end is noticed late: no connection is left to break."""
    downloader.stall_s = 2
    file = site.put("/file.bin", CONTENT)

    def linger(n_bytes: int, _: int | None) -> None:
        if n_bytes == len(CONTENT):
            threading.Event().wait(3 * downloader.stall_s)

    assert downloader.download(file, cache, linger).path.read_bytes() == CONTENT
    assert site.ranges() == [None]


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("file:///etc/passwd", "leads to file:///etc/passwd, which is not https"),
        ("ftp://127.0.0.1/file", "which is not https"),
        ("http://example.org/file.bin", "which is not https"),
        ("/file.bin", "leads from one address to another more than 5 times"),
    ],
)
def test_a_redirection_out_of_the_web_or_in_a_circle_is_not_followed(
    site: Site, downloader: Downloader, cache: Path, to: str, says: str
) -> None:
    """Only https is followed, and http on this machine."""
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", *range(1, 20), do=answers(302, Location=to))

    with pytest.raises(FetchError, match=says):
        downloader.download(file, cache)
    assert list(cache.iterdir()) == []


def test_a_redirection_to_another_path_is_followed(site: Site, downloader: Downloader, cache: Path) -> None:
    """The file keeps the name of the first address."""
    site.put("/new/place", CONTENT)
    file = site.put("/file.bin", b"")
    site.at("/file.bin", 1, do=answers(301, Location="/new/place"))

    assert downloader.download(file, cache).path == cache / "file.bin"
    assert (cache / "file.bin").read_bytes() == CONTENT


def test_an_overloaded_server_is_asked_again(site: Site, downloader: Downloader, cache: Path) -> None:
    """After 503 and 429 the file comes; 404 is final."""
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", 1, do=answers(503))
    site.at("/file.bin", 2, do=answers(429, Retry_After="0"))

    assert downloader.download(file, cache).path.read_bytes() == CONTENT
    with pytest.raises(FetchError, match="HTTP 404; the publisher may have moved the file"):
        downloader.download(RemoteFile(url=f"{site.url}/gone.bin"), cache)
    assert len(site.requests) == 4


def test_a_server_that_wants_a_long_pause_is_left_alone(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """Nobody waits an hour; the error says what the server asks for."""
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", 1, do=answers(429, Retry_After="3600"))

    with pytest.raises(FetchError, match="it asks for a pause of 3,600 s"):
        downloader.download(file, cache)
    assert len(site.requests) == 1


def test_a_file_that_is_sent_packed_unasked_is_refused(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """Sizes and digests are those of the file, so a packed transfer is no use."""
    file = site.put("/file.bin", CONTENT)

    def packed(handler: Handler, content: bytes) -> bool:
        handler.answer(content, **{"Content-Encoding": "gzip"})
        return True

    site.at("/file.bin", 1, do=packed)

    with pytest.raises(FetchError, match=r"sends its file packed \(gzip\)"):
        downloader.download(file, cache)


def test_a_range_that_was_not_asked_for_is_refused(site: Site, downloader: Downloader, cache: Path) -> None:
    """A part from elsewhere in the file is not put together with ours."""
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", 1, do=answers(206, Content_Range="bytes 7-9/512000"))

    with pytest.raises(FetchError, match="another part than the one asked for"):
        downloader.download(file, cache)


def test_a_wrong_part_on_disk_is_replaced(site: Site, downloader: Downloader, cache: Path) -> None:
    """A digest that fails after going on is tried once more from the beginning."""
    file = site.put("/file.bin", CONTENT, sha256=SHA256)
    part = PartialFile(cache / "file.bin", file.url)
    part.begin("")
    part.bytes_path.write_bytes(OTHER[:HALF])

    assert downloader.download(file, cache).path.read_bytes() == CONTENT


def test_a_part_that_is_complete_is_taken_as_it_is(site: Site, downloader: Downloader, cache: Path) -> None:
    """A kill after the last byte costs one request, which brings nothing."""
    file = site.put("/file.bin", CONTENT, sha256=SHA256)
    part = PartialFile(cache / "file.bin", file.url)
    part.begin("")
    part.bytes_path.write_bytes(CONTENT)

    assert downloader.download(file, cache).n_resumed_bytes == len(CONTENT)


def test_a_damaged_file_in_the_cache_is_downloaded_again(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """A digest that fails for a file of an earlier call costs a download, not an error."""
    file = site.put("/file.bin", CONTENT, sha256=SHA256)
    (cache / "file.bin").write_bytes(OTHER)

    assert downloader.download(file, cache).path.read_bytes() == CONTENT


def test_the_publishers_own_list_of_sums_is_asked(site: Site, downloader: Downloader, cache: Path) -> None:
    """The file must have the sum that stands there; a list without its name is an error."""
    site.put("/SHA256SUMS", f"{'0' * 64}  other.bin\n{SHA256} *file.bin\n".encode())
    file = site.put("/file.bin", CONTENT, sums_url=f"{site.url}/SHA256SUMS")
    missing = site.put("/missing.bin", CONTENT, sums_url=f"{site.url}/SHA256SUMS")
    wrong = site.put("/other.bin", CONTENT, sums_url=f"{site.url}/SHA256SUMS")

    assert downloader.download(file, cache).path.read_bytes() == CONTENT
    with pytest.raises(FetchError, match=r"no line with the SHA-256 of missing\.bin"):
        downloader.download(missing, cache)
    with pytest.raises(FetchError, match="the publisher's is 0000"):
        downloader.download(wrong, cache)


def test_a_server_that_is_not_there_is_named(downloader: Downloader, cache: Path) -> None:
    """The error has the address and the reason."""
    with pytest.raises(
        FetchError, match=r"cannot reach http://127\.0\.0\.1:1/file\.bin \(Connection refused"
    ):
        downloader.download(RemoteFile(url="http://127.0.0.1:1/file.bin"), cache)


class CountedPauses(threading.Event):
    """A stop event that is never set, and counts the pauses between attempts instead of waiting."""

    n_pauses = 0

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as in threading.Event
        """Return at once that the pause is over."""
        self.n_pauses += 1
        return False


def test_a_server_that_cannot_be_reached_is_given_up_soon(cache: Path) -> None:
    """The first file costs two pauses, another file of the same server none, also in another folder."""
    pauses = CountedPauses()
    downloader = Downloader(stop=pauses)
    with pytest.raises(ServerUnreachable, match="Connection refused"):
        downloader.download(RemoteFile(url="http://127.0.0.1:1/file.bin"), cache)
    assert pauses.n_pauses == 2
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:1 did not answer before"):
        downloader.download(RemoteFile(url="http://127.0.0.1:1/other.bin"), cache)
    assert pauses.n_pauses == 2


def test_a_server_that_has_answered_is_tried_for_longer(site: Site, cache: Path) -> None:
    """A server that answers once and then goes away gets all attempts, not the few of one never reached."""
    pauses = CountedPauses()
    downloader = Downloader(stop=pauses)
    downloader.download(site.put("/file.bin", CONTENT), cache)
    site.end()
    downloader.session.close()  # also the connection that it keeps
    with pytest.raises(FetchError, match="Connection refused") as raised:
        downloader.download(RemoteFile(url=f"{site.url}/other.bin"), cache)
    assert not isinstance(raised.value, ServerUnreachable)
    assert pauses.n_pauses == downloader.attempts - 1


SCRIPT = """
import resource, sys
from pathlib import Path
from collector.errors import CollectorError
from collector.fetch.data_sets import RemoteFile
from collector.fetch.download import Downloader
if sys.argv[3] != "0":
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    print("here", Downloader(first_pause_s=0.01).download(RemoteFile(url=sys.argv[1]), Path(sys.argv[2])))
except CollectorError as error:
    print(type(error).__name__, error)
"""


def test_a_full_disk_is_named_and_the_part_is_kept(site: Site, downloader: Downloader, cache: Path) -> None:
    """What fits stays, and the next call, with room, asks for the rest."""
    file = site.put("/file.bin", CONTENT)

    result = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, file.url, str(cache), "300000"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.startswith("NotWritable")
    assert "is full" in result.stdout
    assert downloader.download(file, cache).path.read_bytes() == CONTENT
    assert site.ranges() == [None, "bytes=300000-"]


def test_too_little_room_is_found_out_before_the_download(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """A file larger than what is free is refused with both numbers."""
    file = site.put("/file.bin", CONTENT, max_bytes=1 << 62)

    def huge(handler: Handler, content: bytes) -> bool:
        handler.answer(content, **{"Content-Length": str(1 << 60)})
        return True

    site.at("/file.bin", 1, do=huge)

    with pytest.raises(NotWritable, match=r"has room for [\d,]+ bytes, and file\.bin needs 1,152,921"):
        downloader.download(file, cache)


def test_sigkill_in_the_middle_costs_only_what_had_not_arrived(
    site: Site, downloader: Downloader, cache: Path
) -> None:
    """The next call goes on with the part of the killed one."""
    file = site.put("/file.bin", CONTENT)
    sent, end = threading.Event(), threading.Event()

    def half_and_wait(handler: Handler, content: bytes) -> bool:
        handler.answer(content, n_sent=HALF)
        handler.wfile.flush()
        sent.set()
        end.wait()
        return True

    site.at("/file.bin", 1, do=half_and_wait)
    process = subprocess.Popen([sys.executable, "-P", "-c", SCRIPT, file.url, str(cache), "0"])
    try:
        assert sent.wait(60)
        part = PartialFile(cache / "file.bin", file.url)
        while part.size() < HALF:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        end.set()

    assert downloader.download(file, cache).path.read_bytes() == CONTENT
    assert site.ranges() == [None, f"bytes={HALF}-"]


def test_no_login_of_this_user_is_sent(
    site: Site, downloader: Downloader, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ~/.netrc with a password for the host is not used."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    file = site.put("/file.bin", CONTENT)

    downloader.download(file, cache)

    assert "Authorization" not in site.requests[0][1]


def test_a_stop_ends_the_pauses(site: Site, cache: Path) -> None:
    """A set stop event ends the download after the attempt that is running."""
    stop = threading.Event()
    stop.set()
    file = site.put("/file.bin", CONTENT)
    site.at("/file.bin", *range(1, 9), do=answers(503))

    with pytest.raises(FetchError, match="HTTP 503"):
        Downloader(stop=stop).download(file, cache)
    assert len(site.requests) == 1
