"""What is asked of a node's RPC, one function per question; each runs in a lane."""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from collector.blocks.tracker import BlockAnswer
from collector.clock import monotonic_us, wall_us
from collector.dataset.schema import hash_bytes, hash_hex
from collector.errors import RpcError
from collector.mempool.entries import Answer, OutputQuestion, Question
from collector.node.rpc import RpcClient

UNREAD: Final = frozenset(
    {"hex", "scriptSig", "scriptPubKey", "txinwitness"}
)  # most of the answer of getblock
INTERNAL_ERROR: Final = -32603  # undo data that cannot be read (Bitcoin Core, rpc/blockchain.cpp)


class Snapshot(NamedTuple):
    """The txids in the mempool as of a mempool sequence number, and when the node began at the earliest."""

    mempool_sequence: int
    txids: list[bytes]
    taken_us: int  # monotonic clock
    taken_wall_us: int
    node_began_after_s: float  # monotonic clock


def ask_snapshot(client: RpcClient) -> Snapshot:
    """Take the mempool's txids with the mempool sequence number that comes next."""
    asked_s = time.monotonic()
    # Uptime is cut to whole seconds, and counted some time after we asked.
    node_began_after_s = asked_s - client.call("uptime") - 1
    answer = client.call("getrawmempool", False, True)  # noqa: FBT003 - JSON-RPC has positions, not names
    txids = [hash_bytes(txid) for txid in answer["txids"]]
    return Snapshot(answer["mempool_sequence"], txids, monotonic_us(), wall_us(), node_began_after_s)


def ask_entries(client: RpcClient, questions: Sequence[Question]) -> list[Answer]:
    """Ask for mempool entries, and for the bodies that are missing, in one go."""
    calls: list[tuple[Any, ...]] = [("getmempoolentry", hash_hex(question.txid)) for question in questions]
    bodyless = [question for question in questions if question.needs_body]
    calls += [("getrawtransaction", hash_hex(question.txid)) for question in bodyless]
    results = client.batch(calls)
    bodies = dict(zip((question.txid for question in bodyless), results[len(questions) :], strict=True))
    return [
        Answer(question.txid, result, bodies.get(question.txid))
        for question, result in zip(questions, results, strict=False)
    ]


def ask_outputs(client: RpcClient, questions: Sequence[OutputQuestion]) -> list[Any]:
    """Ask for confirmed outputs, whether or not the mempool spends them."""
    return client.batch(
        [("gettxout", hash_hex(question.txid), question.output, False) for question in questions]
    )


def ask_block(client: RpcClient, block_hash: bytes, *, raw: bool) -> BlockAnswer:
    """Ask for a block with the outputs its transactions spent, and for its bytes.

    When the node has lost the undo data, the answer has the txids of the transactions and no more of them.
    """
    name = hash_hex(block_hash)
    try:
        verbose = client.call("getblock", name, 3, without=UNREAD)
    except RpcError as error:
        if error.code != INTERNAL_ERROR:
            raise
        verbose = client.call("getblock", name, 1)
        verbose["tx"] = [{"txid": txid} for txid in verbose["tx"]]
    return BlockAnswer(verbose, bytes.fromhex(client.call("getblock", name, 0)) if raw else None)


def ask_tip(client: RpcClient) -> bytes:
    """Return the hash of the node's tip."""
    return hash_bytes(client.call("getbestblockhash"))


def ask_behind(client: RpcClient) -> bool:
    """Return whether the node knows headers of blocks that it has not connected."""
    state = client.call("getblockchaininfo")
    return bool(state["headers"] > state["blocks"])
