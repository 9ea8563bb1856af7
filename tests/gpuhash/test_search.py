"""Nonce search: real headers, bounds, bad targets."""

import numpy as np
import pytest

import gpuhash
from gpuhash.reference import ReferenceBackend

GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e"
    "67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
)
GENESIS_NONCE = 2083236893
GENESIS_TARGET = 0xFFFF << 208


def test_the_genesis_nonce_is_found_and_no_other(backend: str) -> None:
    """A window around the nonce of block 0 holds exactly that nonce."""
    found = gpuhash.search_header(GENESIS, GENESIS_TARGET, GENESIS_NONCE - 3000, 6000, backend=backend)

    assert found == [GENESIS_NONCE]


def test_the_window_is_half_open() -> None:
    """The nonce `start` is searched, and `start + count` is not."""
    assert gpuhash.search_header(GENESIS, GENESIS_TARGET, GENESIS_NONCE, 1) == [GENESIS_NONCE]
    assert gpuhash.search_header(GENESIS, GENESIS_TARGET, GENESIS_NONCE - 9, 9) == []
    assert gpuhash.search_header(GENESIS, GENESIS_TARGET, GENESIS_NONCE, 0) == []


@pytest.mark.parametrize(
    ("header", "target", "start", "count", "complaint"),
    [
        (GENESIS[:79], 1, 0, 1, "header is 79"),
        (bytearray(GENESIS), 1, 0, 1, "header is bytearray"),
        (GENESIS, -1, 0, 1, "target -0x1"),
        (GENESIS, 1 << 256, 0, 1, "outside 0"),
        (GENESIS, 1, -1, 1, "nonces -1"),
        (GENESIS, 1, 1, 1 << 32, "do not fit 32 bits"),
        (GENESIS, 1.5, 0, 1, r"target is 1\.5, a float"),
        (GENESIS, 1, 0, None, "count is None, a NoneType"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    header: bytes, target: int, start: int, count: int, complaint: str
) -> None:
    """Wrong header size, target outside 256 bits, nonces outside 32 bits."""
    with pytest.raises(gpuhash.InvalidInputError, match=complaint):
        gpuhash.search_header(header, target, start, count)


@pytest.mark.parametrize(
    ("bits", "target"),
    [
        (0x1D00FFFF, GENESIS_TARGET),
        (0x1B0404CB, 0x0404CB << 192),
        (0x03123456, 0x123456),
        (0x02008000, 0x80),
        (0x207FFFFF, 0x7FFFFF << 232),
    ],
)
def test_compact_targets_expand(bits: int, target: int) -> None:
    """The nBits encoding, mainnet and regtest and mantissas that are shifted out."""
    assert gpuhash.target_from_bits(bits) == target


@pytest.mark.parametrize(
    "bits", [0, 0x01000000, 0x04923456, 0x23000001, 0xFF123456, -1, 1 << 32, 1 << 80 | 1, "x", 1.0, None]
)
def test_impossible_compact_targets_are_refused(bits: int) -> None:
    """Zero, negative and larger than 256 bits, as Bitcoin Core rejects them, and what is no number."""
    with pytest.raises(gpuhash.InvalidInputError, match="compact target"):
        gpuhash.target_from_bits(bits)


@pytest.mark.parametrize("start", [0, 5, (1 << 32) - 700])
def test_cpu_finds_what_the_reference_finds(start: int) -> None:
    """An easy target over an odd window, up to the very last nonce."""
    target = 1 << 249

    expected = gpuhash.search_header(GENESIS, target, start, 700, backend="reference")

    assert expected
    assert gpuhash.search_header(GENESIS, target, start, 700, backend="cpu") == expected


def test_an_easy_target_takes_every_nonce() -> None:
    """With the largest target each nonce is found, and each once."""
    assert gpuhash.search_header(GENESIS, (1 << 256) - 1, 10, 1001, backend="cpu") == list(range(10, 1011))


def test_low_words_of_the_target_count() -> None:
    """A hash equal to the target is found, one above it by 1 is not."""
    top = min(gpuhash.search_header(GENESIS, 1 << 250, 0, 2000), key=hash_number)

    assert top in gpuhash.search_header(GENESIS, hash_number(top), 0, 2000, backend="cpu")
    assert top not in gpuhash.search_header(GENESIS, hash_number(top) - 1, 0, 2000, backend="cpu")


def hash_number(nonce: int) -> int:
    """Return the hash of the genesis header with another nonce, as the number a target is compared with."""
    header = np.frombuffer(GENESIS[:76] + nonce.to_bytes(4, "little"), np.uint8)
    return int.from_bytes(
        gpuhash.sha256d_headers(header.reshape(1, 80), backend="reference")[0].tobytes(), "little"
    )


def test_a_backend_that_invents_nonces_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nonce whose hash cannot be a candidate raises instead of being dropped in silence."""
    monkeypatch.setattr(ReferenceBackend, "search", lambda *_: [1])

    with pytest.raises(gpuhash.WrongHashError, match="nonce 1"):
        gpuhash.search_header(GENESIS, GENESIS_TARGET, 0, 10, backend="reference")
