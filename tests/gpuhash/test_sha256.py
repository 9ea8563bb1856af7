"""SHA-256 as arithmetic: what hashlib does not show is tested through what it does."""

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from gpuhash import sha256
from gpuhash.sha256 import INITIAL_STATE, NONCE_WORD, K


def test_constants_are_those_of_the_standard() -> None:
    """First and last constants of FIPS 180-4."""
    assert (K[0], K[1], K[62], K[63]) == (0x428A2F98, 0x71374491, 0xBEF9A3F7, 0xC67178F2)
    assert (INITIAL_STATE[0], INITIAL_STATE[7]) == (0x6A09E667, 0x5BE0CD19)


@given(st.binary(max_size=200))
def test_compression_gives_the_digest(message: bytes) -> None:
    """Padding by hand and compressing block by block is SHA-256."""
    padded = message + b"\x80" + bytes(-(len(message) + 9) % 64) + struct.pack(">Q", 8 * len(message))
    state = list(INITIAL_STATE)
    for start in range(0, len(padded), 64):
        state = sha256.compress(state, padded[start : start + 64])

    assert struct.pack(">8I", *state) == hashlib.sha256(message).digest()


@given(st.binary(min_size=80, max_size=80))
def test_a_prepared_header_finishes_to_its_digest(header: bytes) -> None:
    """Midstate, early rounds and tail, completed with the nonce, are the hash of the header."""
    job = sha256.prepare(header, target=0x1234 << 224)
    nonce = struct.unpack(">I", header[76:])[0]
    words = sha256.schedule([*job.tail, nonce, sha256.PAD_WORD, *[0] * 10, sha256.HEADER_BITS])

    late = sha256.run_rounds(job.early, words, first=NONCE_WORD)

    state = [(x + y) & sha256.MASK for x, y in zip(job.midstate, late, strict=True)]
    assert struct.pack(">8I", *state) == hashlib.sha256(header).digest()
    assert job.target_top == 0x1234
