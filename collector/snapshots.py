"""What is asked of the node on a timer: block templates and the size of its mempool."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from collector.rpc import RpcClient, satoshi
from collector.schema import hash_bytes

Row = dict[str, Any]


class Template(NamedTuple):
    """An answer of getblocktemplate and when it came."""

    answer: Mapping[str, Any]
    taken_us: int
    request_us: int


class Stats(NamedTuple):
    """An answer of getmempoolinfo and when it came."""

    answer: Mapping[str, Any]
    taken_us: int


def take_template(client: RpcClient, chain: str) -> Template:
    """Ask for a template; on signet the node wants to hear that we know its rule."""
    rules = ["segwit", "signet"] if chain == "signet" else ["segwit"]
    began_ns = time.monotonic_ns()
    answer = client.call("getblocktemplate", {"rules": rules})
    request_us = (time.monotonic_ns() - began_ns) // 1000
    return Template(answer, time.time_ns() // 1000, request_us)


def take_stats(client: RpcClient) -> Stats:
    """Ask for the size of the mempool."""
    answer = client.call("getmempoolinfo")
    return Stats(answer, time.time_ns() // 1000)


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
    }
