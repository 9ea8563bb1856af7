"""Make a small corpus of first inputs for the fuzzer, from real blocks if there are any."""

import json
from pathlib import Path

from tests.fuzz.targets import STEP

MOST_BYTES = 4_000
GENESIS_COINBASE = bytes.fromhex(
    "01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff4d04ffff001d0104455468"
    "652054696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e6b206f66207365636f6e64206261"
    "696c6f757420666f722062616e6b73ffffffff0100f2052a01000000434104678afdb0fe5548271967f1a67130b7105cd6a828e0"
    "3909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000"
)
GENESIS_HEADER = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e67768f61"
    "7fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
)
SCRIPTS = (
    bytes.fromhex("6a24aa21a9ed") + bytes(32),
    b"\x76\xa9\x14" + bytes(20) + b"\x88\xac",
    b"\x00\x14" + bytes(20),
    b"\x51\x20" + bytes(32),
    b"\x51\x02\x4e\x73",
    b"\x52\x21\x02" + bytes(32) + b"\x21\x03" + bytes(32) + b"\x52\xae",
)


def seeds(data: Path | None) -> dict[str, list[bytes]]:
    """Return the first inputs by target; `data` is a folder of real blocks and test vectors, or None."""
    begun = [
        (4, 1, 0),
        (0, 1, 0),
        (0, 2, 0),
        (2, 1, 0),
        (5, 2, 0),
        (1, 2, 0),
        (0, 3, 2),
        (4, 0, 1),
        (7, 0, 0),
        (6, 1, 0),
    ]
    found = {
        "transaction": [GENESIS_COINBASE],
        "block": [GENESIS_HEADER + b"\x01" + GENESIS_COINBASE],
        "coinbase": [*SCRIPTS],
        "event": [bytes(32) + b"C", bytes(32) + b"A" + bytes(8)],
        "segment": [bytes.fromhex("0011223344556677") + bytes(12)],
        "sealed": [bytes(32) + b"A" + b"\xff" * 8, GENESIS_HEADER + b"\x01" + GENESIS_COINBASE],
        "mempool_sync": [
            b"".join(STEP.pack(*step) for step in begun),
            b"".join(STEP.pack(*step) for step in begun * 3),
        ],
    }
    if data is not None:
        paths = sorted(data.glob("*-blocks/*.bin"))
        found["block"] += [path.read_bytes() for path in paths if path.stat().st_size <= MOST_BYTES]
        cases = json.loads((data / "bitcoin-core-vectors" / "data" / "tx_valid.json").read_text())
        found["transaction"] += [bytes.fromhex(case[1]) for case in cases if len(case) > 1]
    return found
