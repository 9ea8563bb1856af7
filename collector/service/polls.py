"""Ask the node on a timer for block templates, for the size of its mempool, and for the chain tips it knows.

At most one request of each kind is open. So none pile up while the node does not answer, and the first answer
after it is back describes the node as it is then.
"""

import time
from functools import partial
from typing import Final, NamedTuple

import structlog

from collector.clock import wall_us
from collector.config import Settings
from collector.dataset.rows import MempoolStatsRow, TemplateRow, TemplateTxRow
from collector.errors import NodeError
from collector.journal.batches import Batches
from collector.mempool.sync import MempoolContents
from collector.node.answers import (
    LATEST_TIME_S,
    MOST_COUNT,
    MOST_NUMBER,
    Fields,
    read_integer,
)
from collector.node.request_threads import NodeRequests
from collector.node.rpc import RpcClient, without
from collector.service.chain_tips import ChainTips

UNREAD: Final = frozenset({"data", "hash"})  # of each template transaction: its bytes and its wtxid
log = structlog.get_logger(__name__)


class TemplateRows(NamedTuple):
    """Holds the row of a template in `templates`, and its rows in `template_txs`."""

    template: TemplateRow
    transactions: list[TemplateTxRow]


def ask_template(client: RpcClient, origin: tuple[str, str], chain: str, trigger: str) -> TemplateRows:
    """Ask the node for a block template, and return its rows of `templates` and `template_txs`.

    On signet the request also names the signet rule. `origin` is (node, session); `trigger` says what caused
    the request: "tip" or "timer". Raises NodeError for an answer of a wrong form.
    """
    rules = ["segwit", "signet"] if chain == "signet" else ["segwit"]
    began_ns = time.monotonic_ns()
    answer = client.call("getblocktemplate", {"rules": rules}, kept=without(UNREAD))
    request_us = (time.monotonic_ns() - began_ns) // 1000
    node, session = origin
    taken_us = wall_us()
    template = Fields("getblocktemplate", answer)
    found = [Fields("getblocktemplate: transaction", each) for each in template.list("transactions")]
    transactions: list[TemplateTxRow] = [
        {
            "node": node,
            "session": session,
            "taken_at": taken_us,
            "tx_index": index,
            "txid": each.hash("txid"),
            "fee_sat": each.integer("fee", least=-MOST_NUMBER),  # prioritisetransaction may lower it
            "weight_wu": each.integer("weight", most=MOST_COUNT),
            "n_sigops": each.integer("sigops", most=MOST_COUNT),
            "parents": [
                read_integer("getblocktemplate: depends", parent, most=MOST_COUNT)
                for parent in each.list("depends")
            ],
        }
        for index, each in enumerate(found, start=1)
    ]
    row: TemplateRow = {
        "node": node,
        "session": session,
        "taken_at": taken_us,
        "request_us": request_us,
        "trigger": trigger,
        "height": template.integer("height", most=MOST_COUNT),
        "prev_hash": template.hash("previousblockhash"),
        "node_time": template.integer("curtime", most=LATEST_TIME_S),
        "n_tx": len(transactions),
        "weight_wu": sum(each["weight_wu"] for each in transactions),
        "n_sigops": sum(each["n_sigops"] for each in transactions),
        "fees_sat": sum(each["fee_sat"] for each in transactions),
        "coinbase_value_sat": template.integer("coinbasevalue"),
    }
    return TemplateRows(row, transactions)


def ask_stats(client: RpcClient, origin: tuple[str, str]) -> MempoolStatsRow:
    """Ask the node for its time and the size of its mempool; return a row of `mempool_stats`.

    The row has no feerate histogram yet. `origin` is (node, session). Raises NodeError for an answer of a
    wrong form.
    """
    clock_offset_us = client.clock_offset_us()
    asked_us = wall_us()  # what happens after it may be missing from the answer, what happened before is not
    info = Fields("getmempoolinfo", client.call("getmempoolinfo"))
    return {
        "node": origin[0],
        "session": origin[1],
        "taken_at": asked_us,
        "n_tx": info.integer("size"),
        "vsize_vb": info.integer("bytes"),
        "usage_bytes": info.integer("usage"),
        "max_usage_bytes": info.integer("maxmempool"),
        "fees_sat": info.satoshi("total_fee"),
        "min_feerate_sat_vb": info.satoshi("mempoolminfee") / 1000,
        "histogram": [],
        "clock_offset_us": clock_offset_us,
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
        """Make the request for a block template due now, and then the one for chain tips."""
        self._is_new_tip = True
        self._tips.ask_soon()

    def ask_on_time(self) -> None:
        """Ask the node for a template, statistics and chain tips if due, one request of each at a time.

        Chain tips wait until no template is open, so that the node is not kept from making it.
        """
        now_s = time.monotonic()
        if not self._is_template_open and (self._is_new_tip or now_s >= self._template_due_s):
            trigger, self._is_new_tip = "tip" if self._is_new_tip else "timer", False
            self._template_due_s = now_s + self._template_interval_s
            self._is_template_open = True
            request = partial(ask_template, origin=self._origin, chain=self._chain, trigger=trigger)
            self._requests.template.ask(request, self._on_template, self._no_template)
        if not self._is_stats_open and now_s >= self._stats_due_s:
            self._stats_due_s = now_s + self._stats_interval_s
            self._is_stats_open = True
            request_stats = partial(ask_stats, origin=self._origin)
            self._requests.mempool.ask(request_stats, self._on_stats, self._no_stats)
        if not self._is_template_open:
            self._tips.ask_on_time()

    def _on_template(self, rows: TemplateRows) -> None:
        self._is_template_open = False
        self._template_error = ""
        self._batches.add_independent("templates", [rows.template])
        self._batches.add_independent("template_txs", rows.transactions)

    def _no_template(self, error: NodeError) -> None:
        """Log why the node refuses a template; a refusal is normal while the node syncs or has no peers."""
        self._is_template_open = False
        if str(error) != self._template_error:
            log.warning("template.refused", node=self._origin[0], reason=str(error))
        self._template_error = str(error)

    def _on_stats(self, row: MempoolStatsRow) -> None:
        self._is_stats_open = False
        row["histogram"] = self._contents.histogram()
        self._batches.add_independent("mempool_stats", [row])

    def _no_stats(self, error: NodeError) -> None:
        self._is_stats_open = False
        log.warning("stats.refused", node=self._origin[0], reason=str(error))
