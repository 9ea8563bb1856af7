"""Compare each new block with the node's newest template for its height, from committed rows.

It says at once how many of the promised transactions a block has taken and how many it has passed over. The
mart `template_audit_block` gives reasons for each of them later.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

MAX_TEMPLATES: Final = 3  # of each node: on the old tip, on the new one, and one between two tips
MAX_BLOCKS: Final = 16  # whose transactions have not come yet
MATCHED_TABLES: Final = frozenset({"templates", "template_txs", "blocks", "transactions"})


class _Template:
    """Holds the newest template of a node on one block, and the hashes of what it promises."""

    def __init__(self, taken_at: int) -> None:
        self.taken_at = taken_at
        self.prev_hash: bytes | None = None  # until the row of `templates` has come
        self.txids: set[bytes] = set()


class TemplateMatches:
    """Keeps the newest templates of each node, and compares blocks with them as their rows come."""

    def __init__(self) -> None:
        self._templates: dict[str, list[_Template]] = defaultdict(list)
        self._blocks: dict[bytes, tuple[bytes, int]] = {}  # previous hash and height, by block hash

    def take(self, table: str, rows: Sequence[Mapping[str, Any]] | pa.RecordBatch) -> list[dict[str, Any]]:
        """Take committed rows of a table; return one match for each node whose template a block follows.

        A match has the node, the block's hash and height, the template's time in microseconds since 1970 UTC,
        and the numbers of transactions that were promised, that are promised and in the block, and that are
        in the block but not promised. The coinbase counts in none. Rows of a block come before those of its
        transactions.
        """
        if table == "templates":
            for row in _dicts(rows):
                self._template(row).prev_hash = row["prev_hash"]
        elif table == "template_txs":
            for row in _dicts(rows):
                self._template(row).txids.add(row["txid"])
        elif table == "blocks":
            for row in _dicts(rows):
                self._blocks[row["block_hash"]] = row["prev_hash"], row["height"]
            while len(self._blocks) > MAX_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
        elif table == "transactions":
            return [match for each in _by_block(rows) for match in self._compare(*each)]
        return []

    def _template(self, row: Mapping[str, Any]) -> _Template:
        """Return the kept block template to which a row belongs; if there is none, add it.

        A new template takes the place of the node's earlier one on the same block.
        """
        kept = self._templates[row["node"]]
        if not kept or kept[-1].taken_at != row["taken_at"]:
            if len(kept) > 1 and kept[-1].prev_hash == kept[-2].prev_hash:
                del kept[-2]
            kept.append(_Template(row["taken_at"]))
            del kept[:-MAX_TEMPLATES]
        return kept[-1]

    def _compare(self, block_hash: bytes, txids: set[bytes]) -> Iterator[dict[str, Any]]:
        prev_hash, height = self._blocks.pop(block_hash, (None, None))
        if prev_hash is None:
            return
        for node, kept in self._templates.items():
            template = next((each for each in reversed(kept) if each.prev_hash == prev_hash), None)
            if template is not None:
                n_matched = len(txids & template.txids)
                yield {
                    "node": node,
                    "block_hash": block_hash,
                    "height": height,
                    "taken_at": template.taken_at,
                    "n_promised": len(template.txids),
                    "n_matched": n_matched,
                    "n_extra": len(txids) - n_matched,
                }


def _dicts(rows: Sequence[Mapping[str, Any]] | pa.RecordBatch) -> Sequence[Mapping[str, Any]]:
    return rows.to_pylist() if isinstance(rows, pa.RecordBatch) else rows


def _by_block(rows: Sequence[Mapping[str, Any]] | pa.RecordBatch) -> Iterator[tuple[bytes, set[bytes]]]:
    """Yield the hash of each block, and its transactions' hashes without that of the coinbase."""
    if isinstance(rows, pa.RecordBatch):
        rows = rows.select(["block_hash", "tx_index", "txid"]).to_pylist()
    txids: dict[bytes, set[bytes]] = defaultdict(set)
    for row in rows:
        found = txids[row["block_hash"]]
        if row["tx_index"] > 0:
            found.add(row["txid"])
    yield from txids.items()
