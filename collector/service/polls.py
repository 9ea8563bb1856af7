"""What is asked of the node on a timer: block templates and the size of its mempool.

One question of a kind at a time: while the node does not answer none piles up, and the first answer after it
has come back is of then.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from collector.clock import wall_us
from collector.codec.amounts import satoshi
from collector.config import Settings
from collector.dataset.schema import hash_bytes
from collector.errors import NodeError
from collector.journal.batches import Batches
from collector.node.request_threads import NodeRequests
from collector.node.rpc import RpcClient

Row = dict[str, Any]
UNREAD: Final = frozenset({"data", "hash"})  # of each transaction: its bytes and its wtxid
log = structlog.get_logger(__name__)


class Template(NamedTuple):
    """An answer of getblocktemplate and when it came."""

    answer: Mapping[str, Any]
    taken_us: int
    request_us: int


class Stats(NamedTuple):
    """An answer of getmempoolinfo, when it came, and our clock minus the node's then."""

    answer: Mapping[str, Any]
    taken_us: int
    clock_offset_us: int | None


def take_template(client: RpcClient, chain: str) -> Template:
    """Ask for a template; on signet the node wants to hear that we know its rule."""
    rules = ["segwit", "signet"] if chain == "signet" else ["segwit"]
    began_ns = time.monotonic_ns()
    answer = client.call("getblocktemplate", {"rules": rules}, without=UNREAD)
    request_us = (time.monotonic_ns() - began_ns) // 1000
    return Template(answer, wall_us(), request_us)


def take_stats(client: RpcClient) -> Stats:
    """Ask for the size of the mempool, and for the time."""
    clock_offset_us = client.clock_offset_us()
    answer = client.call("getmempoolinfo")
    return Stats(answer, wall_us(), clock_offset_us)


def template_rows(origin: tuple[str, str], trigger: str, template: Template) -> tuple[Row, list[Row]]:
    """Return the row of `templates` and the rows of `template_txs`; `origin` is node and session."""
    answer, transactions = template.answer, template.answer["transactions"]
    key = {"node": origin[0], "session": origin[1], "taken_at": template.taken_us}
    row = {
        **key,
        "request_us": template.request_us,
        "trigger": trigger,
        "height": answer["height"],
        "prev_hash": hash_bytes(answer["previousblockhash"]),
        "node_time": answer["curtime"],
        "n_tx": len(transactions),
        "weight_wu": sum(transaction["weight"] for transaction in transactions),
        "n_sigops": sum(transaction["sigops"] for transaction in transactions),
        "fees_sat": sum(transaction["fee"] for transaction in transactions),
        "coinbase_value_sat": answer["coinbasevalue"],
    }
    return row, [
        {
            **key,
            "tx_index": index,
            "txid": hash_bytes(transaction["txid"]),
            "fee_sat": transaction["fee"],
            "weight_wu": transaction["weight"],
            "n_sigops": transaction["sigops"],
            "parents": transaction["depends"],
        }
        for index, transaction in enumerate(transactions, start=1)
    ]


def stats_row(origin: tuple[str, str], stats: Stats, histogram: list[Row]) -> Row:
    """Return the row of `mempool_stats`; `origin` is node and session."""
    answer = stats.answer
    return {
        "node": origin[0],
        "session": origin[1],
        "taken_at": stats.taken_us,
        "n_tx": answer["size"],
        "vsize_vb": answer["bytes"],
        "usage_bytes": answer["usage"],
        "max_usage_bytes": answer["maxmempool"],
        "fees_sat": satoshi(answer["total_fee"]),
        "min_feerate_sat_vb": satoshi(answer["mempoolminfee"]) / 1000,
        "histogram": histogram,
        "clock_offset_us": stats.clock_offset_us,
    }


class Polls:
    """The templates and statistics of one node and session.

    `histogram` returns the feerates of what is in our copy of the mempool.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        settings: Settings,
        *,
        lanes: NodeRequests,
        batches: Batches,
        histogram: Callable[[], list[Row]],
    ) -> None:
        self._origin = origin
        self._chain = settings.chain
        self._lanes = lanes
        self._batches = batches
        self._histogram = histogram
        self._template_interval_s = settings.template_interval_s
        self._stats_interval_s = settings.stats_interval_s
        self._template_due_s = self._stats_due_s = time.monotonic()
        self._is_template_open = self._is_stats_open = False
        self._is_new_tip = False
        self._template_error = ""

    def tip_changed(self) -> None:
        """Have a template taken as soon as may be."""
        self._is_new_tip = True

    def ask_on_time(self) -> None:
        """Ask for what is due."""
        now_s = time.monotonic()
        if not self._is_template_open and (self._is_new_tip or now_s >= self._template_due_s):
            trigger, self._is_new_tip = "tip" if self._is_new_tip else "timer", False
            self._template_due_s = now_s + self._template_interval_s
            self._is_template_open = True
            question = partial(take_template, chain=self._chain)
            self._lanes.template.ask(question, partial(self._on_template, trigger), self._no_template)
        if not self._is_stats_open and now_s >= self._stats_due_s:
            self._stats_due_s = now_s + self._stats_interval_s
            self._is_stats_open = True
            self._lanes.mempool.ask(take_stats, self._on_stats, self._no_stats)

    def _on_template(self, trigger: str, template: Template) -> None:
        self._is_template_open = False
        self._template_error = ""
        row, transactions = template_rows(self._origin, trigger, template)
        self._batches.add_independent("templates", [row])
        self._batches.add_independent("template_txs", transactions)

    def _no_template(self, error: NodeError) -> None:
        """Go on without templates: a node that is syncing or has no peers gives none."""
        self._is_template_open = False
        if str(error) != self._template_error:
            log.warning("template.refused", node=self._origin[0], reason=str(error))
        self._template_error = str(error)

    def _on_stats(self, stats: Stats) -> None:
        self._is_stats_open = False
        self._batches.add_independent("mempool_stats", [stats_row(self._origin, stats, self._histogram())])

    def _no_stats(self, error: NodeError) -> None:
        self._is_stats_open = False
        log.warning("stats.refused", node=self._origin[0], reason=str(error))
