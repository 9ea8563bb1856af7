"""Mine a block as a pool does: take a template, make a coinbase, solve the header, submit the block.

The node gives height, parent, target and subsidy (getblocktemplate). The pool chooses the transactions and
their order, so the coinbase claims the fees of exactly these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collector.errors import RegtestError
from collector.node.rpc import RpcClient
from collector.regtest.block_assembly import Candidate
from collector.regtest.transaction import (
    FINAL,
    NULL_HASH,
    RegtestTransaction,
    TxInput,
    TxOutput,
    compact_size,
    height_push,
    push,
    serialise_block,
)
from gpuhash import merkle_root
from gpuhash.reference import sha256d

MAX_COINBASE_SCRIPT_BYTES: Final = 100  # consensus
MAX_HEIGHT_PUSH_BYTES: Final = 5
EXTRANONCE_BYTES: Final = 8
MAX_TAG_BYTES: Final = MAX_COINBASE_SCRIPT_BYTES - MAX_HEIGHT_PUSH_BYTES - EXTRANONCE_BYTES
COMMITMENT_HEADER: Final = b"\xaa\x21\xa9\xed"  # BIP141
RESERVED_WEIGHT_WU: Final = 2_000  # header, transaction count, and the largest coinbase we make
NO_VOUT: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningTemplate:
    """Holds what the next block on the node's tip must contain; hashes are in internal byte order."""

    height: int
    prev_hash: bytes
    version: int
    bits: bytes  # as in the header
    target: int
    time: int  # the node's clock, or the smallest time allowed where that is later
    min_time: int
    subsidy_sat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MinedBlock:
    """Holds a solved block; `hash` is written as RPC writes it."""

    hash: str
    height: int
    raw: bytes
    weight_wu: int
    coinbase: RegtestTransaction


def take_template(rpc: RpcClient) -> MiningTemplate:
    """Return what the next block must contain, from the node's getblocktemplate."""
    answer: dict[str, Any] = rpc.call("getblocktemplate", {"rules": ["segwit"]})
    return MiningTemplate(
        height=answer["height"],
        prev_hash=bytes.fromhex(answer["previousblockhash"])[::-1],
        version=answer["version"],
        bits=bytes.fromhex(answer["bits"])[::-1],
        target=int(answer["target"], 16),
        time=max(answer["curtime"], answer["mintime"]),
        min_time=answer["mintime"],
        subsidy_sat=answer["coinbasevalue"] - sum(each["fee"] for each in answer["transactions"]),
    )


def build_block(
    template: MiningTemplate,
    candidates: Sequence[Candidate],
    *,
    tag: bytes,
    payout_script: bytes,
    extranonce: int,
    time: int | None = None,
) -> MinedBlock:
    """Build, solve and return a block of `candidates` in order; a `time` (s) replaces the template's time."""
    transactions = [each.raw for each in candidates]
    wtxids = [NULL_HASH, *(sha256d(raw) for raw in transactions)]
    commitment = sha256d(_merkle_root(wtxids) + NULL_HASH)
    coinbase = RegtestTransaction(
        (
            TxInput(
                NULL_HASH,
                NO_VOUT,
                coinbase_script(template.height, tag, extranonce),
                (NULL_HASH,),
                FINAL,
            ),
        ),
        (
            TxOutput(template.subsidy_sat + sum(each.fee_sat for each in candidates), payout_script),
            TxOutput(0, b"\x6a" + push(COMMITMENT_HEADER + commitment)),
        ),
    )
    root = _merkle_root([coinbase.txid, *(bytes.fromhex(each.txid)[::-1] for each in candidates)])
    header_time = max(time if time is not None else template.time, template.min_time)
    start = b"".join(
        (
            template.version.to_bytes(4, "little", signed=True),
            template.prev_hash,
            root,
            header_time.to_bytes(4, "little"),
            template.bits,
        )
    )
    header = solve(start, template.target)
    around_wu = 4 * (len(header) + len(compact_size(1 + len(candidates))))
    return MinedBlock(
        hash=sha256d(header)[::-1].hex(),
        height=template.height,
        raw=serialise_block(header, [coinbase.raw, *transactions]),
        weight_wu=around_wu + coinbase.weight_wu + sum(each.weight_wu for each in candidates),
        coinbase=coinbase,
    )


def coinbase_script(height: int, tag: bytes, extranonce: int) -> bytes:
    """Return the coinbase script: height, tag of the pool, and eight bytes that make it unique.

    Raises RegtestError for a tag that is too long.
    """
    script = height_push(height) + tag + extranonce.to_bytes(EXTRANONCE_BYTES, "little")
    if len(script) > MAX_COINBASE_SCRIPT_BYTES:
        raise RegtestError(f"a tag of {len(tag)} bytes is too long; {MAX_TAG_BYTES} fit into a coinbase")
    return script


def solve(start: bytes, target: int) -> bytes:
    """Return the 80-byte header: the 76 bytes `start` and the first nonce whose hash meets the target.

    On regtest every second nonce does, so this is fast.
    """
    for nonce in range(2**32):
        header = start + nonce.to_bytes(4, "little")
        if int.from_bytes(sha256d(header), "little") <= target:
            return header
    raise RegtestError("no nonce meets the target; is the node on regtest?")


def submit(rpc: RpcClient, block: MinedBlock) -> None:
    """Submit the block to the node; raise RegtestError with the reason if the node refuses it."""
    verdict = rpc.call("submitblock", block.raw.hex())
    if verdict is not None:
        raise RegtestError(f"the node refused block {block.hash} at height {block.height}: {verdict}")


def _merkle_root(leaves: Sequence[bytes]) -> bytes:
    rows = np.frombuffer(b"".join(leaves), np.uint8).reshape(-1, len(NULL_HASH))
    return merkle_root(rows, backend="reference").root
