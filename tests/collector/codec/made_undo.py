"""Undo data as Bitcoin Core writes them: src/compressor.cpp, and VARINT in src/serialize.h."""

from collections.abc import Sequence

from collector.regtest.transaction import compact_size


def write_varint(value: int) -> bytes:
    """Write a VARINT: groups of seven bits, highest first, each longer form starting where the last ends."""
    groups = [value & 0x7F]
    while value > 0x7F:
        value = (value >> 7) - 1
        groups.append(value & 0x7F | 0x80)
    return bytes(reversed(groups))


def compress_amount(value_sat: int) -> int:
    """Compress an amount: trailing zeros become an exponent."""
    if value_sat == 0:
        return 0
    exponent = 0
    while value_sat % 10 == 0 and exponent < 9:
        value_sat //= 10
        exponent += 1
    if exponent < 9:
        digit = value_sat % 10
        return 1 + (value_sat // 10 * 9 + digit - 1) * 10 + exponent
    return 1 + (value_sat - 1) * 10 + 9


def compress_script(script: bytes) -> bytes:
    """Compress the three commonest old kinds of script, and write others after their length + 6.

    Bitcoin Core compresses a plain key only when it is on the curve; here all are.
    """
    if len(script) == 25 and script[:3] == b"\x76\xa9\x14" and script[-2:] == b"\x88\xac":
        return b"\x00" + script[3:23]
    if len(script) == 23 and script[:2] == b"\xa9\x14" and script[-1] == 0x87:
        return b"\x01" + script[2:22]
    if len(script) == 35 and script[0] == 33 and script[-1] == 0xAC and script[1] in (2, 3):
        return script[1:34]
    if len(script) == 67 and script[0] == 65 and script[-1] == 0xAC and script[1] == 4:
        return bytes([4 | script[65] & 1]) + script[2:34]
    return write_varint(len(script) + 6) + script


def undo_of(spent: Sequence[Sequence[tuple[int, bytes]]], *, height: int) -> bytes:
    """Write the undo data of a block whose transactions spent these outputs (value, script)."""
    parts = [compact_size(len(spent))]
    for outputs in spent:
        parts.append(compact_size(len(outputs)))
        for value_sat, script in outputs:
            version = b"\x00" if height else b""
            parts += [write_varint(height * 2 + 1), version, write_varint(compress_amount(value_sat))]
            parts.append(compress_script(script))
    return b"".join(parts)
