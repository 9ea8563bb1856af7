"""Compute SHA-256 in plain Python (FIPS 180-4): constants, compression, and the fixed part of a header.

This code is slow, and hashlib computes the digests. It is needed for what hashlib does not show: the state
inside a hash, which a header search computes once instead of once per nonce.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

MASK = 0xFFFFFFFF
ROUNDS = 64
HEADER_BITS = 640  # length field in the padding of an 80-byte header
DIGEST_BITS = 256  # length field in the padding of a digest that is hashed again
PAD_WORD = 0x80000000  # the one bit that follows a message
NONCE_WORD = 3  # position of the nonce in the second block of a header


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return found


def _cube_root_fraction(prime: int) -> int:
    """Return the first 32 bits of the fraction of a prime's cube root, computed exactly."""
    scaled = prime << 96
    root: int = round(float(scaled) ** (1 / 3))
    while root**3 > scaled:
        root -= 1
    while (root + 1) ** 3 <= scaled:
        root += 1
    return root & MASK


# FIPS 180-4, 4.2.2 and 5.3.3: fractions of the cube and square roots of the first primes.
K = tuple(_cube_root_fraction(prime) for prime in _primes(ROUNDS))
INITIAL_STATE = tuple(math.isqrt(prime << 64) & MASK for prime in _primes(8))


def rotate_right(x: int, n_bits: int) -> int:
    """Return a 32-bit word rotated to the right by `n_bits` bits."""
    return (x >> n_bits | x << 32 - n_bits) & MASK


def small_sigma0(x: int) -> int:
    """Return sigma0 of a word, a function of SHA-256's message schedule (FIPS 180-4)."""
    return rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3


def small_sigma1(x: int) -> int:
    """Return sigma1 of a word, a function of SHA-256's message schedule (FIPS 180-4)."""
    return rotate_right(x, 17) ^ rotate_right(x, 19) ^ x >> 10


def schedule(words: Sequence[int]) -> list[int]:
    """Return the 64 words that the rounds of SHA-256 use for a block, given as 16 words."""
    w = list(words)
    for t in range(16, ROUNDS):
        w.append((small_sigma1(w[t - 2]) + w[t - 7] + small_sigma0(w[t - 15]) + w[t - 16]) & MASK)
    return w


def run_rounds(state: Sequence[int], words: Sequence[int], first: int = 0, last: int = ROUNDS) -> list[int]:
    """Run rounds first to last - 1 of SHA-256 on a state and return the new state, 8 words.

    `words` is the message schedule. The initial state is not added.
    """
    a, b, c, d, e, f, g, h = state
    for t in range(first, last):
        big_sigma1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)
        big_sigma0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)
        t1 = h + big_sigma1 + (e & f ^ ~e & g) + K[t] + words[t]
        t2 = big_sigma0 + (a & b ^ a & c ^ b & c)
        a, b, c, d, e, f, g, h = (t1 + t2) & MASK, a, b, c, (d + t1) & MASK, e, f, g
    return [a, b, c, d, e, f, g, h]


def compress(state: Sequence[int], block: bytes) -> list[int]:
    """Return the SHA-256 state after one more 64-byte block."""
    words = schedule(struct.unpack(">16I", block))
    return [(x + y) & MASK for x, y in zip(state, run_rounds(state, words), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderJob:
    """Holds what stays the same while only the nonce of a header changes. All words are big-endian values."""

    midstate: tuple[int, ...]  # 8 words: state after the first 64 bytes
    early: tuple[int, ...]  # 8 words: state after rounds 0 to 2 of the second block
    tail: tuple[int, ...]  # 3 words: bytes 64 to 75 of the header
    target_top: int  # top 32 bits of the target: a hash with a larger top word does not meet it


def prepare(header: bytes, target: int) -> HeaderJob:
    """Return the hash state of the part of an 80-byte header that does not depend on its nonce.

    The top 32 bits of the target are part of the result.
    """
    midstate = compress(INITIAL_STATE, header[:64])
    tail = struct.unpack(">3I", header[64:76])
    early = run_rounds(midstate, (*tail, 0), 0, NONCE_WORD)
    return HeaderJob(midstate=tuple(midstate), early=tuple(early), tail=tail, target_top=target >> 224)
