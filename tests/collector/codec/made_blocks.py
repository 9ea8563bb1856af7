"""Make up blocks for tests, and the rows that the plain decoder gives for them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from collector.codec.block import decode_block
from collector.codec.chunk import BlockRef, RawBlocks
from collector.codec.feerates import UNKNOWN
from collector.codec.format import NO_HASH, NO_INDEX
from collector.codec.verify import backend_name, verify_block
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.regtest.mining import solve
from collector.regtest.scripts import PAYMENT_KINDS, payment_script
from collector.regtest.transaction import (
    RegtestTransaction,
    TxInput,
    TxOutput,
    height_push,
    serialise_block,
)
from gpuhash import merkle_root
from gpuhash.reference import sha256d
from tests.collector.codec.plain_rows import plain_block_rows

EASY_BITS = 0x207FFFFF
EASY_TARGET = 0x7FFFFF << 8 * (0x20 - 3)

KEY = b"\x02" + bytes(32)
PLAIN_KEY = b"\x04" + bytes(64)
# One of each type, and scripts that only look like one.
SCRIPTS = [payment_script(kind, b"seed") for kind in PAYMENT_KINDS] + [
    b"",
    b"\x51\x02\x4e\x73",
    b"\x21" + KEY + b"\xac",
    b"\x41" + PLAIN_KEY + b"\xac",
    b"\x21" + b"\x05" + KEY[1:] + b"\xac",
    b"\x51\x21" + KEY + b"\x51\xae",
    b"\x52\x21" + KEY + b"\x41" + PLAIN_KEY + b"\x52\xae",
    b"\x52\x21" + KEY + b"\x51\xae",
    b"\x01\x11" + (b"\x21" + KEY) * 17 + b"\x01\x11\xae",
    b"\x51" + (b"\x4c\x21" + KEY) * 2 + b"\x52\xae",
    b"\x51\x21" + KEY + b"\x51\xae\xae",
    b"\x6a\x4c\x50" + bytes(80),
    b"\x6a\x05\x00",
    b"\x6a\x61",
    b"\x00\x05" + bytes(5),
    b"\x60\x28" + bytes(40),
    b"\x60\x29" + bytes(41),
]
scripts = st.sampled_from(SCRIPTS) | st.binary(max_size=60)
amounts = st.integers(0, 10**12)


@st.composite
def mutated_scripts(draw: st.DrawFn) -> bytes:
    """Draw a script in which a byte may be changed, added or lost."""
    script = bytearray(draw(scripts))
    at = draw(st.integers(0, len(script)))
    change = draw(st.sampled_from(["none", "set", "insert", "cut"]))
    if change == "set" and at < len(script):
        script[at] = draw(st.integers(0, 255))
    elif change == "insert":
        script.insert(at, draw(st.integers(0, 255)))
    elif change == "cut":
        del script[at:]
    return bytes(script)


@st.composite
def transactions(draw: st.DrawFn, txids: Sequence[bytes]) -> RegtestTransaction:
    """Draw a transaction that spends from the given ones, from elsewhere, or from both."""
    known = st.sampled_from(list(txids)) if txids else st.nothing()
    stacks = st.lists(st.binary(max_size=40), max_size=3).map(tuple)
    inputs = st.builds(
        TxInput,
        known | st.binary(min_size=32, max_size=32),
        st.integers(0, 3),
        st.binary(max_size=20) | st.binary(min_size=250, max_size=260),
        stacks,
        st.sampled_from([0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0]),
    )
    return RegtestTransaction(
        tuple(draw(st.lists(inputs, min_size=1, max_size=3))),
        tuple(draw(st.lists(st.builds(TxOutput, amounts, scripts), min_size=1, max_size=3))),
        locktime=draw(st.integers(0, 0xFFFFFFFF)),
    )


@st.composite
def blocks(draw: st.DrawFn, max_transactions: int = 8) -> bytes:
    """Draw a block with valid work, merkle root and commitment; the outputs that it spends need not exist."""
    body: dict[bytes, RegtestTransaction] = {}
    for _ in range(draw(st.integers(0, max_transactions))):
        drawn = draw(transactions(list(body)))
        body[drawn.txid] = drawn
    height = draw(st.integers(1, 200))
    return solved_block(
        list(body.values()), height=height, tag=draw(st.binary(max_size=20)), value_sat=draw(amounts)
    )


def solved_block(
    body: Sequence[RegtestTransaction],
    *,
    height: int,
    tag: bytes = b"",
    value_sat: int = 0,
    prev_hash: bytes = NO_HASH,
) -> bytes:
    """Put a coinbase before the transactions, commit to them in a header, and find its nonce."""
    commitment = sha256d(root([NO_HASH, *(sha256d(each.raw) for each in body)]) + NO_HASH)
    coinbase = RegtestTransaction(
        (TxInput(NO_HASH, NO_INDEX, height_push(height) + tag, (NO_HASH,)),),
        (
            TxOutput(value_sat, payment_script("p2wpkh", b"pool")),
            TxOutput(0, b"\x6a\x24\xaa\x21\xa9\xed" + commitment),
        ),
    )
    merkle = root([coinbase.txid, *(each.txid for each in body)])
    start = b"".join(
        (
            (0x20000000).to_bytes(4, "little"),
            prev_hash,
            merkle,
            (1_700_000_000 + 600 * height).to_bytes(4, "little"),
            EASY_BITS.to_bytes(4, "little"),
        )
    )
    return serialise_block(solve(start, EASY_TARGET), [coinbase.raw, *(each.raw for each in body)])


def root(hashes: Sequence[bytes]) -> bytes:
    """Return the merkle root of hashes in internal byte order."""
    return merkle_root(np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)).root


def raw_blocks(
    raws: Sequence[bytes], heights: Sequence[int], fees: Sequence[Sequence[int | None]] | None = None
) -> RawBlocks:
    """Return blocks in the form that `collector.codec.chunk` takes."""
    refs = [
        BlockRef(sha256d(raw[:80]), height, "tree", "blkfile", "test")
        for raw, height in zip(raws, heights, strict=True)
    ]
    known = None
    if fees is not None:
        known = [np.array([UNKNOWN if fee is None else fee for fee in each], np.int64) for each in fees]
    limits = np.cumsum([0, *map(len, raws)])
    return RawBlocks(refs=refs, data=np.frombuffer(b"".join(raws), np.uint8), limits=limits, fees_sat=known)


def plain_rows(
    raws: Sequence[bytes],
    heights: Sequence[int],
    fees: Sequence[Sequence[int | None]] | None = None,
    *,
    chain: str = "regtest",
    **columns: Any,
) -> tuple[pa.Table, pa.Table]:
    """Make the rows of `blocks` and `transactions` that the live collector would write."""
    block_list: list[dict[str, Any]] = []
    tx_list: list[dict[str, Any]] = []
    for i, (raw, height) in enumerate(zip(raws, heights, strict=True)):
        block = decode_block(raw)
        row, rows = plain_block_rows(
            block,
            chain=chain,
            height=height,
            height_source=columns.get("height_source", "tree"),
            source=columns.get("source", "blkfile"),
            verdict=verify_block(block, chain, height=height),
            verified_by=backend_name(),
            fees=None if fees is None else fees[i],
        )
        block_list.append(row)
        tx_list += rows
    return (
        pa.Table.from_batches([to_batch(BLOCKS, block_list)]),
        pa.Table.from_batches([to_batch(TRANSACTIONS, tx_list)]),
    )
