"""Test that headers of others are taken when they keep the rules of their chain, and refused when forged."""

import base64
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import EXTERNAL_HEADERS, EXTERNAL_STALE_BLOCKS, hash_hex
from collector.errors import DecodeError
from collector.external.header_files import header_bytes, read_headers, read_stale_blocks
from collector.external.providers import read_files
from tests.gpuhash.header_chains import EASIEST, hash_of, mined

# Blocks 0 and 1 of regtest-like work: regtest's first block, and headers mined on it.
REGTEST_GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e"
    "67768f617fc81bc3888a51323a9fb8aa4b1e5e4adae5494dffff7f2002000000"
)
# https://github.com/bitcoin-data/stale-blocks, the block at height 966500
STALE = (
    "966500,000000000000000000011ada8812e1b93daabaea5f4f90b1920e8212a11a36ca,0000ff3fb787b98a268ef2fde1c7"
    "0e6d38d9c1bd538875130afa010000000000000000008c2ae03944f7e4c5070d02efbdf11bc6a97faddc33ad0eba1d7d6f2c"
    "e021f61e77e7a36a5e350217aaeb0e6d"
)
OPTIONS = ("--source", "headers", "--licence", "CC0-1.0", "--url", "https://example.org")
Run = Callable[..., tuple[int, str]]


def chain_of(n: int) -> list[bytes]:
    """Return n headers of a regtest chain."""
    headers = [REGTEST_GENESIS]
    while len(headers) < n:
        headers.append(mined(hash_of(headers[-1]), 1_700_000_000 + 60 * len(headers), EASIEST))
    return headers


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `pool-collector import headers` into a dataset; return the exit status and the errors."""

    def run(kind: str, chain: str, *more: str | Path) -> tuple[int, str]:
        words = ["import", kind, "--dataset", str(tmp_path / "ds"), "--chain", chain]
        monkeypatch.setattr(sys, "argv", ["pool-collector", *words, *OPTIONS, *map(str, more)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def test_headers_are_stored_field_by_field(run: Run, tmp_path: Path) -> None:
    """Raw headers become rows with heights, from which the same 80 bytes can be made again."""
    headers = chain_of(5)
    (tmp_path / "h.bin").write_bytes(b"".join(headers))

    assert run("headers", "regtest", tmp_path / "h.bin") == (0, "")

    rows = Dataset.open(tmp_path / "ds", "regtest").read(EXTERNAL_HEADERS).to_pylist()
    assert [row["height"] for row in rows] == [0, 1, 2, 3, 4]
    assert [header_bytes(row) for row in rows] == headers
    assert hash_hex(rows[0]["block_hash"]).startswith("0f9188f13cb7b2c7")


def test_a_file_goes_on_where_the_dataset_ends(run: Run, tmp_path: Path) -> None:
    """Headers that follow stored ones need no height; others do, and a wrong height is refused."""
    headers = chain_of(8)
    for name, part in (("a", headers[:3]), ("b", headers[3:6]), ("c", headers[7:])):
        (tmp_path / name).write_bytes(b"".join(part))

    assert run("headers", "regtest", tmp_path / "a")[0] == 0
    assert (
        "begins at height 3, not at 9" in run("headers", "regtest", tmp_path / "b", "--first-height", "9")[1]
    )
    assert run("headers", "regtest", tmp_path / "b")[0] == 0
    assert (
        "name the height of its first header with `pool-collector import headers FILE --first-height`"
        in run("headers", "regtest", tmp_path / "c")[1]
    )
    assert run("headers", "regtest", tmp_path / "c", "--first-height", "7")[0] == 0

    rows = Dataset.open(tmp_path / "ds", "regtest").read(EXTERNAL_HEADERS).to_pylist()
    assert sorted(row["height"] for row in rows) == [0, 1, 2, 3, 4, 5, 7]


def test_files_of_one_call_go_on_from_each_other(run: Run, tmp_path: Path) -> None:
    """The second file begins where the first ends; the height given is that of the first file alone."""
    headers = chain_of(9)
    for name, part in (("a", headers[2:5]), ("b", headers[5:7]), ("c", headers[8:])):
        (tmp_path / name).write_bytes(b"".join(part))
    a, b, c = (tmp_path / name for name in "abc")

    assert f"{c.name} begins neither" in run("headers", "regtest", a, b, c, "--first-height", "2")[1]
    assert not (tmp_path / "ds").exists()
    assert run("headers", "regtest", a, b, "--first-height", "2")[0] == 0

    rows = Dataset.open(tmp_path / "ds", "regtest").read(EXTERNAL_HEADERS).to_pylist()
    assert sorted(row["height"] for row in rows) == [2, 3, 4, 5, 6]


def test_headers_above_every_height_are_refused(run: Run, tmp_path: Path) -> None:
    """A height that no column holds is refused with the file's name, and no dataset is made."""
    path = tmp_path / "h.bin"
    path.write_bytes(b"".join(chain_of(3)[1:]))

    status, said = run("headers", "regtest", path, "--first-height", "99999999999")
    assert (status, "h.bin ends above height 10,000,000" in said) == (1, True)
    assert not (tmp_path / "ds").exists()


def test_packed_and_hex_headers_are_the_same_rows(tmp_path: Path) -> None:
    """The same headers raw, packed with zstd, and in hex line by line."""
    headers = chain_of(4)
    (tmp_path / "h.bin").write_bytes(b"".join(headers))
    (tmp_path / "h.zst").write_bytes(zstandard.compress(b"".join(headers)))
    (tmp_path / "h.txt").write_text("".join(f"{header.hex()}\n" for header in headers))

    raw = read_headers(tmp_path / "h.bin", "regtest")

    assert len(raw) == 4
    assert read_headers(tmp_path / "h.zst", "regtest") == raw
    assert read_headers(tmp_path / "h.txt", "regtest") == raw


def broken_link(headers: list[bytes]) -> list[bytes]:
    """Leave a header out."""
    return headers[:3] + headers[4:]


def other_target(headers: list[bytes]) -> list[bytes]:
    """State a harder target than the rules demand, with the work for it."""
    return [*headers[:3], mined(hash_of(headers[2]), 1_700_000_180, 0x203FFFFF)]


def no_work(headers: list[bytes]) -> list[bytes]:
    """Change the nonce until the hash is above the target."""
    for nonce in range(100):
        forged = headers[3][:76] + nonce.to_bytes(4, "little")
        if hash_of(forged)[-1] >= 0x80:
            return [*headers[:3], forged]
    raise AssertionError("no such nonce")


def beyond_limit(headers: list[bytes]) -> list[bytes]:
    """State a target above the easiest one of the chain."""
    return [*headers[:3], mined(hash_of(headers[2]), 1_700_000_180, 0x2100FFFF)]


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (broken_link, "height 3: does not name the hash of the header before it"),
        (other_target, "height 3: target 0x203fffff is stated, 0x207fffff is required"),
        (no_work, "height 3: hash .* is above its target"),
        (beyond_limit, "height 3: target 0x2100ffff is easier than the limit of regtest, 0x207fffff"),
    ],
)
def test_forged_headers_are_refused_with_height_and_reason(
    forge: Callable[[list[bytes]], list[bytes]], reason: str, run: Run, tmp_path: Path
) -> None:
    """Each way of forging is refused, and no dataset is made."""
    path = tmp_path / "forged"
    path.write_bytes(b"".join(forge(chain_of(6))))

    with pytest.raises(DecodeError, match=reason):
        read_headers(path, "regtest")

    assert run("headers", "regtest", path)[0] == 1
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    "content", [b"", b"x" * 79, b"TXT CHECKPOINTS 1\n0\n1\nAAAA\n", b"ab" * 80 + b"\nzz\n"]
)
def test_what_are_no_headers_is_refused(content: bytes, tmp_path: Path) -> None:
    """Nothing, a cut header, checkpoints without one, half hex, and what only claims to be packed."""
    for name in ("file", "file.zst"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DecodeError):
            read_headers(tmp_path / name, "regtest")


def test_stale_blocks_must_have_their_hash_and_work(run: Run, tmp_path: Path) -> None:
    """A real stale block is taken with and without a line of names; a wrong hash or easy work is refused."""
    path = tmp_path / "stale-blocks.csv"
    path.write_text(f"height,hash,header\n{STALE}\n")
    (row,) = read_stale_blocks(path, "main")
    path.write_text(f"{STALE}\n")
    assert list(read_stale_blocks(path, "main")) == [row]

    path.write_text(
        f"{STALE}\n824221,{'00' * 9}{'ab' * 23},\n"
    )  # the list has blocks whose header nobody kept
    assert list(read_stale_blocks(path, "main")) == [row]

    assert run("stale-blocks", "main", path) == (0, "")
    (stored,) = Dataset.open(tmp_path / "ds", "main").read(EXTERNAL_STALE_BLOCKS).to_pylist()
    assert (stored["height"], stored["block_hash"]) == (966500, row["block_hash"])
    assert f"966500,{hash_hex(stored['block_hash'])},{header_bytes(stored).hex()}" == STALE
    for change, reason in (
        (STALE.replace("36ca,", "36cb,"), "height 966500 does not have the hash"),
        (STALE[:-2], "is not height,hash,header"),
        (
            f"5,{hash_hex(hash_of(REGTEST_GENESIS))},{REGTEST_GENESIS.hex()}",
            "height 5: .* easier than the limit",
        ),
    ):
        path.write_text(change + "\n")
        with pytest.raises(DecodeError, match=reason):
            list(read_stale_blocks(path, "main"))


@pytest.mark.data
def test_real_headers_and_checkpoints_are_taken(data_dir: Path, run: Run, tmp_path: Path) -> None:
    """10,237 headers of main and 436 checkpoints are stored; one flipped bit refuses the file."""
    real = data_dir / "floresta" / "mainnet_headers_0_10236.zst"
    with zstandard.ZstdDecompressor().stream_reader(real.read_bytes()) as stream:
        raw = np.frombuffer(bytearray(stream.read()), np.uint8)
    raw[80 * 7000 + 36] ^= 1
    (tmp_path / "flipped").write_bytes(raw.tobytes())

    assert "height 7000: hash" in run("headers", "main", tmp_path / "flipped")[1]
    assert run("headers", "main", real) == (0, "")
    assert len(Dataset.open(tmp_path / "ds", "main").read(EXTERNAL_HEADERS)) == 10_237

    checkpoints = data_dir / "bitcoinj" / "production.checkpoints.txt"
    (form,) = (read.kind for read in read_files([checkpoints], "bitcoinj"))
    rows = read_headers(checkpoints, "main")
    assert (form, len(rows), rows[-1]["height"]) == ("headers", 436, 878_976)


def without_signatures(lines: list[str]) -> list[str]:
    """State a signature that is not there."""
    return [lines[0], "1", *lines[2:]]


def cut_after_a_line(lines: list[str]) -> list[str]:
    """Leave the second half out."""
    return lines[: len(lines) // 2]


def cut_within_a_line(lines: list[str]) -> list[str]:
    """Cut one line short."""
    return [*lines[:100], lines[100][:100], *lines[101:]]


def one_character_more(lines: list[str]) -> list[str]:
    """Add a character to a line, which makes it no base64."""
    return [*lines[:100], lines[100] + "A", *lines[101:]]


def one_line_twice(lines: list[str]) -> list[str]:
    """Repeat the last line."""
    return [*lines, lines[-1]]


@pytest.mark.data
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (without_signatures, r":4 states no number of signatures or checkpoints"),
        (cut_after_a_line, r"has 216 checkpoints, its line 3 states 436; fetch it anew"),
        (cut_within_a_line, r":101: '.* is no checkpoint; fetch the file anew"),
        (one_character_more, r":101: '.* is no checkpoint"),
        (one_line_twice, r"has 437 checkpoints, its line 3 states 436"),
        (lambda lines: lines[:2], r":3 states no number"),
        (lambda lines: [*lines[:2], "0"], r"has 0 checkpoints, its line 3 states 0"),
    ],
)
def test_a_damaged_file_of_checkpoints_is_refused(
    damage: Callable[[list[str]], list[str]], reason: str, data_dir: Path, tmp_path: Path
) -> None:
    """Checkpoints are taken with their signatures and with work of 32 bytes; a cut or changed file is not."""
    lines = (data_dir / "bitcoinj" / "production.checkpoints.txt").read_text().splitlines()
    path = tmp_path / "checkpoints.txt"

    def longer(line: str) -> str:
        return base64.b64encode(bytes(20) + base64.b64decode(line)).decode().rstrip("=")

    signed = [lines[0], "2", "a", "b", lines[2], *map(longer, lines[3:])]
    path.write_text("\r\n".join(signed))
    assert len(read_headers(path, "main")) == 436

    path.write_text("\n".join(damage(lines)))
    with pytest.raises(DecodeError, match=reason):
        read_headers(path, "main")


@pytest.mark.data
def test_a_target_of_checkpoints_changes_at_most_by_the_factor_of_one_retarget(
    data_dir: Path, tmp_path: Path
) -> None:
    """The last checkpoint may follow the one before it, and not an early one, whose target is far easier."""
    lines = (data_dir / "bitcoinj" / "production.checkpoints.txt").read_text().splitlines()
    path = tmp_path / "two.txt"

    def write(line: str) -> None:
        record = bytearray(base64.b64decode(line + "=" * (-len(line) % 4)))
        record[-84:-80] = (878_976 - 2016).to_bytes(4, "big")
        path.write_text(f"TXT CHECKPOINTS 1\n0\n2\n{base64.b64encode(record).decode()}\n{lines[-1]}\n")

    write(lines[-2])
    assert len(read_headers(path, "main")) == 2
    write(lines[20])
    with pytest.raises(DecodeError, match=r"height 878976: target .* changes at most by 4"):
        read_headers(path, "main")
