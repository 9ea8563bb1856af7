"""Test what the recent blocks say of a transaction when its block leaves the chain and comes back."""

from collector.blocks.recent import RecentBlock, RecentBlocks

TXID = b"\7" * 32


def block(prev_hash: bytes, height: int, *txids: bytes) -> RecentBlock:
    """Return a block with these transactions, each with a fee of 1 sat."""
    return RecentBlock(height, prev_hash, 0, dict.fromkeys(txids, 1), {})


def test_a_disconnected_block_mines_nothing_until_it_is_back() -> None:
    """Its transactions keep their fees; as an ancestor of the tip it counts as connected again."""
    recent = RecentBlocks()
    recent.note_disconnected(b"a")  # before the node has described it
    recent.add(b"a", block(b"z", 5, TXID))
    assert recent.block_with(TXID) == b"a"
    assert recent.connected_block_with(TXID) is None
    recent.add(b"b", block(b"a", 6))
    recent.note_tip(b"b")
    assert recent.connected_block_with(TXID) == b"a"


def test_the_connected_one_of_two_blocks_is_found() -> None:
    """When both branches have a transaction, the block that is still connected is the one that mined it."""
    recent = RecentBlocks()
    recent.add(b"a", block(b"z", 5, TXID))
    recent.add(b"b", block(b"z", 5, TXID))
    recent.note_disconnected(b"a")
    assert recent.connected_block_with(TXID) == b"b"
