"""Ask the node on a timer for block templates, for the size of its mempool, and for the chain tips it knows.

At most one request of each kind is open. So none pile up while the node does not answer, and the first answer
after it is back describes the node as it is then.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from collector.clock import wall_us
from collector.config import Settings
from collector.dataset.rows import HistogramItem, MempoolStatsRow, TemplateRow, TemplateTxRow
from collector.dataset.schema import hash_bytes, satoshi
from collector.errors import NodeError
from collector.journal.batches import Batches
from collector.mempool.sync import MempoolContents
from collector.node.request_threads import NodeRequests
from collector.node.rpc import RpcClient
from collector.service.chain_tips import ChainTips

UNREAD: Final = frozenset({"data", "hash"})  # of each template transaction: its bytes and its wtxid
log = structlog.get_logger(__name__)


class Template(NamedTuple):
    """Holds an answer of getblocktemplate and when it came."""

    answer: Mapping[str, Any]
    taken_us: int
    request_us: int  # how long the node took to answer


class Stats(NamedTuple):
    """Holds an answer of getmempoolinfo, when it came, and our clock minus the node's at that moment."""

    answer: Mapping[str, Any]
    taken_us: int
    clock_offset_us: int | None


def ask_template(client: RpcClient, chain: str) -> Template:
    """Ask the node for a block template; on signet the request must also name the signet rule."""
    rules = ["segwit", "signet"] if chain == "signet" else ["segwit"]
    began_ns = time.monotonic_ns()
    answer = client.call("getblocktemplate", {"rules": rules}, without=UNREAD)
    request_us = (time.monotonic_ns() - began_ns) // 1000
    return Template(answer, wall_us(), request_us)


def ask_stats(client: RpcClient) -> Stats:
    """Ask the node for its time and for the size of its mempool."""
    clock_offset_us = client.clock_offset_us()
    answer = client.call("getmempoolinfo")
    return Stats(answer, wall_us(), clock_offset_us)


def template_rows(
    origin: tuple[str, str], trigger: str, template: Template
) -> tuple[TemplateRow, list[TemplateTxRow]]:
    """Return a template's row of the table `templates` and its rows of `template_txs`.

    `origin` is (node, session); `trigger` says what caused the request: "tip" or "timer".
    """
    node, session = origin
    answer, transactions = template.answer, template.answer["transactions"]
    row: TemplateRow = {
        "node": node,
        "session": session,
        "taken_at": template.taken_us,
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
            "node": node,
            "session": session,
            "taken_at": template.taken_us,
            "tx_index": index,
            "txid": hash_bytes(transaction["txid"]),
            "fee_sat": transaction["fee"],
            "weight_wu": transaction["weight"],
            "n_sigops": transaction["sigops"],
            "parents": transaction["depends"],
        }
        for index, transaction in enumerate(transactions, start=1)
    ]


def stats_row(origin: tuple[str, str], stats: Stats, histogram: list[HistogramItem]) -> MempoolStatsRow:
    """Return a row of `mempool_stats`; `origin` is (node, session), `histogram` our mempool by feerate."""
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
    """Asks one node on a timer for templates, mempool statistics and chain tips; makes rows of the answers.

    `contents` is our copy of the mempool, from which the feerate histogram of the statistics is made.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        settings: Settings,
        *,
        requests: NodeRequests,
        batches: Batches,
        contents: MempoolContents,
    ) -> None:
        self._origin = origin
        self._chain = settings.chain
        self._requests = requests
        self._batches = batches
        self._contents = contents
        self._template_interval_s = settings.template_interval_s
        self._stats_interval_s = settings.stats_interval_s
        self._tips = ChainTips(origin, settings.chain_tips_interval_s, requests=requests, batches=batches)
        self._template_due_s = self._stats_due_s = time.monotonic()
        self._is_template_open = self._is_stats_open = False
        self._is_new_tip = False
        self._template_error = ""

    def tip_changed(self) -> None:
        """Request a template at the next call of `ask_on_time`, and chain tips after it, though not due."""
        self._is_new_tip = True
        self._tips.ask_soon()

    def ask_on_time(self) -> None:
        """Ask for what is due, unless a request of its kind is unanswered.

        Chain tips wait until no template is open, so that the node is not kept from making it.
        """
        now_s = time.monotonic()
        if not self._is_template_open and (self._is_new_tip or now_s >= self._template_due_s):
            trigger, self._is_new_tip = "tip" if self._is_new_tip else "timer", False
            self._template_due_s = now_s + self._template_interval_s
            self._is_template_open = True
            request = partial(ask_template, chain=self._chain)
            self._requests.template.ask(request, partial(self._on_template, trigger), self._no_template)
        if not self._is_stats_open and now_s >= self._stats_due_s:
            self._stats_due_s = now_s + self._stats_interval_s
            self._is_stats_open = True
            self._requests.mempool.ask(ask_stats, self._on_stats, self._no_stats)
        if not self._is_template_open:
            self._tips.ask_on_time()

    def _on_template(self, trigger: str, template: Template) -> None:
        self._is_template_open = False
        self._template_error = ""
        row, transactions = template_rows(self._origin, trigger, template)
        self._batches.add_independent("templates", [row])
        self._batches.add_independent("template_txs", transactions)

    def _no_template(self, error: NodeError) -> None:
        """Log why the node refuses a template; that is normal while the node syncs or has no peers."""
        self._is_template_open = False
        if str(error) != self._template_error:
            log.warning("template.refused", node=self._origin[0], reason=str(error))
        self._template_error = str(error)

    def _on_stats(self, stats: Stats) -> None:
        self._is_stats_open = False
        row = stats_row(self._origin, stats, self._contents.histogram())
        self._batches.add_independent("mempool_stats", [row])

    def _no_stats(self, error: NodeError) -> None:
        self._is_stats_open = False
        log.warning("stats.refused", node=self._origin[0], reason=str(error))
