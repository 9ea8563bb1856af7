"""Compute Keccak in plain Python (FIPS 202): its constants, the permutation and the sponge.

This code is slow. The reference uses the sponge only where pycryptodome is not installed.
"""

import struct

RATE_BYTES = 136  # block of Keccak-256 and SHA3-256: 200 bytes of state less twice the digest
KECCAK_DOMAIN = 0x01  # padding byte of the original submission
SHA3_DOMAIN = 0x06  # padding byte of FIPS 202: two bits of domain separation first
ROUNDS = 24


def _rotations() -> tuple[int, ...]:
    """Return the number of bits by which the step rho of Keccak rotates each word, indexed x + 5y.

    Source: FIPS 202, algorithm 2.
    """
    offsets = [0] * 25
    x, y = 1, 0
    for t in range(ROUNDS):
        offsets[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return tuple(offsets)


def _round_constants() -> tuple[int, ...]:
    """Return the 24 constants of the step iota of Keccak (FIPS 202, algorithms 5 and 6).

    A shift register gives the bits: its j-th output of a round is bit 2^j - 1 of that round's constant.
    """
    register = 1
    constants = []
    for _ in range(ROUNDS):
        constant = 0
        for j in range(7):
            constant |= (register & 1) << (1 << j) - 1
            register = register << 1 ^ (register >> 7) * 0x171
        constants.append(constant)
    return tuple(constants)


ROTATIONS = _rotations()
ROUND_CONSTANTS = _round_constants()


def permute(state: list[int]) -> list[int]:
    """Return Keccak-f[1600] of a state of 25 words; word x + 5y is lane (x, y) of FIPS 202."""
    a = state
    for constant in ROUND_CONSTANTS:
        parity = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        b = [0] * 25
        for x in range(5):
            mix = parity[x - 1] ^ _rotate_left(parity[(x + 1) % 5], 1)
            for y in range(5):
                b[y + 5 * ((2 * x + 3 * y) % 5)] = _rotate_left(a[x + 5 * y] ^ mix, ROTATIONS[x + 5 * y])
        a = [
            b[x + 5 * y] ^ ~b[(x + 1) % 5 + 5 * y] & b[(x + 2) % 5 + 5 * y]
            for y in range(5)
            for x in range(5)
        ]
        a[0] ^= constant
    return a


def sponge(message: bytes | memoryview, domain: int) -> bytes:
    """Return the 32-byte Keccak digest of a message; `domain` is KECCAK_DOMAIN or SHA3_DOMAIN."""
    padded = bytearray(message) + bytes(RATE_BYTES - len(message) % RATE_BYTES)
    padded[len(message)] ^= domain
    padded[-1] ^= 0x80
    state = [0] * 25
    for start in range(0, len(padded), RATE_BYTES):
        words = struct.unpack_from(f"<{RATE_BYTES // 8}Q", padded, start)
        state = permute([x ^ y for x, y in zip(state, words, strict=False)] + state[len(words) :])
    return struct.pack("<4Q", *state[:4])


def _rotate_left(x: int, n_bits: int) -> int:
    return (x << n_bits | x >> 64 - n_bits) & 0xFFFFFFFFFFFFFFFF
