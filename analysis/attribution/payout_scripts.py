"""Turn a Bitcoin address into the output script that it stands for.

Base58Check addresses give P2PKH and P2SH scripts; segwit addresses are Bech32 (BIP173, version 0) or Bech32m
(BIP350, versions 1 to 16). Main, test, signet and regtest prefixes are all accepted: attribution compares
scripts, and a script does not name a network.
"""

import hashlib

from analysis.errors import AddressError

BASE58_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BECH32_ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
BECH32_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
BECH32_CHECKSUM = 1
BECH32M_CHECKSUM = 0x2BC830A3
BECH32_MAX_CHARS = 90
BECH32_CHECKSUM_CHARS = 6

SEGWIT_PREFIXES = ("bc", "tb", "bcrt")
P2PKH_VERSIONS = (0x00, 0x6F)
P2SH_VERSIONS = (0x05, 0xC4)
HASH160_BYTES = 20
PROGRAM_BYTES = range(2, 41)
VERSION_0_PROGRAM_BYTES = (20, 32)
MAX_WITNESS_VERSION = 16

OP_1 = 0x51


def script_of_address(address: str) -> bytes:
    """Return the output script that an address of any Bitcoin network stands for. Raises AddressError."""
    if address.lower().startswith(tuple(f"{prefix}1" for prefix in SEGWIT_PREFIXES)):
        return _segwit_script(address)
    return _base58_script(address)


def _base58_script(address: str) -> bytes:
    """Return the P2PKH or P2SH script of a Base58Check address. Raises AddressError with the reason."""
    number = 0
    for character in address:
        digit = BASE58_ALPHABET.find(character)
        if digit < 0:
            raise AddressError(
                f"{address!r} has {character!r}, which Base58 does not use; copy the address again"
            )
        number = number * 58 + digit
    n_zeros = len(address) - len(address.lstrip(BASE58_ALPHABET[0]))
    raw = bytes(n_zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
    payload, checksum = raw[:-4], raw[-4:]
    if hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4] != checksum:
        raise AddressError(f"{address!r} fails its Base58 checksum; copy the address again")
    version, digest = payload[:1], payload[1:]
    if len(digest) != HASH160_BYTES or version[0] not in P2PKH_VERSIONS + P2SH_VERSIONS:
        raise AddressError(
            f"{address!r} is not a P2PKH or P2SH address of a Bitcoin network; use another address"
        )
    if version[0] in P2PKH_VERSIONS:
        return b"\x76\xa9\x14" + digest + b"\x88\xac"
    return b"\xa9\x14" + digest + b"\x87"


def _segwit_script(address: str) -> bytes:
    """Return the witness program script of a Bech32 or Bech32m address.

    Raises AddressError with the reason.
    """
    if address not in (address.lower(), address.upper()) or len(address) > BECH32_MAX_CHARS:
        raise AddressError(f"{address!r} mixes capitals or is too long for Bech32; copy the address again")
    prefix, _, data = address.lower().rpartition("1")
    groups = [BECH32_ALPHABET.find(character) for character in data]
    if prefix not in SEGWIT_PREFIXES or -1 in groups or len(groups) <= BECH32_CHECKSUM_CHARS:
        raise AddressError(f"{address!r} has characters that Bech32 does not use; copy the address again")
    version = groups[0]
    expected = BECH32_CHECKSUM if version == 0 else BECH32M_CHECKSUM
    if _polymod([*(ord(c) >> 5 for c in prefix), 0, *(ord(c) & 31 for c in prefix), *groups]) != expected:
        raise AddressError(f"{address!r} fails its Bech32 checksum; copy the address again")
    program = _bytes_of_groups(groups[1:-BECH32_CHECKSUM_CHARS])
    if (
        program is None
        or version > MAX_WITNESS_VERSION
        or len(program) not in PROGRAM_BYTES
        or (version == 0 and len(program) not in VERSION_0_PROGRAM_BYTES)
    ):
        raise AddressError(f"{address!r} is not a witness program that BIP141 allows; copy the address again")
    return bytes([version and OP_1 - 1 + version, len(program)]) + program


def _polymod(groups: list[int]) -> int:
    """Return the remainder of Bech32's checksum polynomial (BIP173), an int, for a list of 5-bit groups."""
    checksum = 1
    for group in groups:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ group
        for bit, generator in enumerate(BECH32_GENERATORS):
            checksum ^= generator if top >> bit & 1 else 0
    return checksum


def _bytes_of_groups(groups: list[int]) -> bytes | None:
    """Join groups of 5 bits to bytes and return the bytes; None if the padding exceeds 4 bits or is not 0."""
    number = 0
    for group in groups:
        number = number << 5 | group
    n_padding = len(groups) * 5 % 8
    if n_padding > 4 or number & ((1 << n_padding) - 1):  # noqa: PLR2004 (BIP173: at most 4 padding bits)
        return None
    return (number >> n_padding).to_bytes(len(groups) * 5 // 8, "big")
