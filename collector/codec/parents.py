"""Find the parents of transactions inside their block: the earlier transactions that they spend from."""

from typing import Final, NamedTuple

import numpy as np

from collector.codec.arrays import Bytes, Integers
from collector.codec.walk import Layout, read_u64
from gpuhash.compiled import compiler

compiled = compiler(__package__)

FREE: Final = -1
WORDS: Final = 4  # a txid is four words of 8 bytes


class TxidTable(NamedTuple):
    """Is a hash table from txid to position in the block."""

    words: Integers  # uint64[n, 4]: the txids
    slots: (
        Integers  # int32[2^k]: position in the block, or FREE; a search begins at the slot of the first word
    )


def in_block_parents(data: Bytes, layout: Layout, txids: Bytes) -> tuple[Integers, Integers]:
    """Return the distinct parents of each transaction inside its block.

    The result is limits int32[n_txs + 1] and parents int32. The parents of transaction k are
    parents[limits[k]:limits[k + 1]]: positions in the block, ascending.
    """
    limits = np.zeros(len(layout.txs) + 1, np.int32)
    parents = np.empty(len(layout.spends), np.int32)
    largest = int(layout.blocks["n_tx"].max(initial=1))
    table = TxidTable(
        np.ascontiguousarray(txids).view(np.uint64).reshape(-1, WORDS),
        np.empty(1 << (2 * largest - 1).bit_length(), np.int32),
    )
    n_parents = _find_parents(data, layout, table, limits, parents)
    return limits, parents[:n_parents]


@compiled
def _find_parents(
    data: Bytes, layout: Layout, all_ids: TxidTable, limits: Integers, parents: Integers
) -> int:
    used = 0
    for i in range(len(layout.blocks)):
        first, n_tx = layout.blocks[i].first_tx, layout.blocks[i].n_tx
        # Use as few slots as the block needs: a small block must not clear the slots of the largest.
        n_slots = 2
        while n_slots < 2 * n_tx:
            n_slots *= 2
        table = TxidTable(all_ids.words[first : first + n_tx], all_ids.slots[:n_slots])
        if n_tx > 1:
            _fill(table)
        for k in range(n_tx):
            begin = used
            tx = layout.txs[first + k]
            if n_tx > 1:
                for spend in range(tx.first_input, tx.first_input + tx.n_inputs):
                    found = _find(table, data, layout.spends[spend])
                    if 0 <= found < k:
                        used = _insert(parents, begin, used, found)
            limits[first + k + 1] = used
    return used


@compiled
def _fill(table: TxidTable) -> None:
    """Enter the txids of a block into the hash table; of equal txids the last one stays."""
    slots, words = table.slots, table.words
    slots[:] = FREE
    mask = len(slots) - 1
    for k in range(len(words)):
        slot = np.int64(words[k, 0] & np.uint64(mask))
        while slots[slot] != FREE and not _is_same(words, slots[slot], k):
            slot = (slot + 1) & mask
        slots[slot] = k


@compiled
def _find(table: TxidTable, data: Bytes, pos: int) -> int:
    """Return the position in the block of the transaction whose txid is at byte `pos` of `data`, or FREE."""
    mask = len(table.slots) - 1
    word = read_u64(data, pos)
    slot = np.int64(word & np.uint64(mask))
    while table.slots[slot] != FREE:
        k = table.slots[slot]
        if table.words[k, 0] == word and _is_at(table.words, k, data, pos):
            return int(k)
        slot = (slot + 1) & mask
    return FREE


@compiled
def _is_same(words: Integers, k: int, other: int) -> bool:
    """Return whether transactions k and `other` have the same txid."""
    n_same = 0
    for i in range(WORDS):
        n_same += words[k, i] == words[other, i]
    return n_same == WORDS


@compiled
def _is_at(words: Integers, k: int, data: Bytes, pos: int) -> bool:
    """Return whether the txid of transaction k is at byte `pos` of the data."""
    n_same = 0
    for i in range(WORDS):
        n_same += words[k, i] == read_u64(data, pos + 8 * i)
    return n_same == WORDS


@compiled
def _insert(values: Integers, begin: int, end: int, value: int) -> int:
    """Insert value into the sorted values[begin:end] unless it is there; return the new end.

    `values` must have an element at `end`, which may be overwritten.
    """
    at = end
    while at > begin and values[at - 1] > value:
        at -= 1
    if at > begin and values[at - 1] == value:
        return end
    for k in range(end, at, -1):
        values[k] = values[k - 1]
    values[at] = value
    return end + 1
