"""Record every transaction that a scenario sent, and what became of it.

The sender and the pools share the records under one lock, so that no transaction is replaced or mined while a
pool looks at the mempool.
"""

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from collector.errors import RegtestError, RpcError
from collector.node.rpc import RpcClient
from collector.regtest.block_assembly import Candidate, MempoolView
from collector.regtest.mining import MinedBlock, submit
from collector.regtest.scripts import COIN_KINDS
from collector.regtest.traffic import PlannedTx


@dataclass(slots=True, kw_only=True)
class SentTx:
    """Describes a transaction that the node accepted, and whether it was replaced or mined since."""

    planned: PlannedTx
    candidate: Candidate
    sent_at_ns: int  # time.time_ns() just before sendrawtransaction
    replaced_by: str | None = None
    mined_height: int | None = None


class SentTransactions:
    """Holds all transactions sent, by txid in display order, and a lock over them."""

    def __init__(self) -> None:
        self.by_txid: dict[str, SentTx] = {}
        self._arrivals = itertools.count()
        self._lock = threading.Lock()

    def send(self, rpc: RpcClient, planned: PlannedTx) -> bool:
        """Send one transaction to the node and return True.

        It is not sent, and False is returned, if it would replace a transaction that is mined already.
        """
        transaction = planned.payment.transaction
        with self._lock:
            original = self.by_txid[planned.replaces] if planned.replaces is not None else None
            if original is not None and original.mined_height is not None:
                return False
            sent_at_ns = time.time_ns()
            try:
                rpc.call("sendrawtransaction", transaction.raw.hex(), 0)
            except RpcError as error:
                raise RegtestError(
                    f"the node refused a transaction of kind {planned.kind}, "
                    f"{planned.payment.feerate_sat_vb:.2f} sat/vB: {error}"
                ) from error
            if original is not None:
                original.replaced_by = planned.txid
            candidate = Candidate(
                txid=planned.txid,
                raw=transaction.raw,
                fee_sat=planned.payment.fee_sat,
                vsize_vb=transaction.vsize_vb,
                weight_wu=transaction.weight_wu,
                parents=planned.parents,
                arrival=next(self._arrivals),
                is_planted=planned.kind == "planted_low",
                has_anchor=any(output.script == COIN_KINDS["p2a"].script for output in transaction.outputs),
            )
            self.by_txid[planned.txid] = SentTx(planned=planned, candidate=candidate, sent_at_ns=sent_at_ns)
        return True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold the lock of the sent transactions, so that none is sent during the `with` block."""
        with self._lock:
            yield

    def view(self, rpc: RpcClient) -> MempoolView:
        """Return those transactions of the node's mempool that we sent, by txid; call it inside `paused`."""
        return {
            txid: self.by_txid[txid].candidate for txid in rpc.call("getrawmempool") if txid in self.by_txid
        }

    def take_back(self, txids: Iterable[str]) -> None:
        """Move transactions of losing blocks to the end of the order of arrival; call it inside `paused`."""
        for txid in txids:
            sent = self.by_txid[txid]
            sent.candidate = replace(sent.candidate, arrival=next(self._arrivals))

    def mine(self, rpc: RpcClient, block: MinedBlock, txids: Iterable[str]) -> tuple[int, int]:
        """Submit a block and record `txids` as mined; call it inside `paused`.

        Returns when it was handed to the node and when the node had accepted it, in nanoseconds since 1970.
        """
        handed_over_ns = time.time_ns()
        submit(rpc, block)
        accepted_ns = time.time_ns()
        for txid in txids:
            self.by_txid[txid].mined_height = block.height
        return handed_over_ns, accepted_ns
