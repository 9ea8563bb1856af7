"""Plants a small world of three days in which every text that strangers choose is hostile."""

import json
from typing import Any

EVIL = "<script>document.title='owned'</script>"
POOL_NAME = "<img src=x onerror=document.title='owned'>\"'&"
NODE = "n\"><script>document.title='owned'</script>"
DAY_S = 86_400
RULES = f"""name = {json.dumps(POOL_NAME)}
link = "https://evil.example/"
rules = [{{ tag = "/Alpha/", source = "a test" }}]
"""
COINBASES = {
    "b1": "/Alpha/",
    "b2": f"\x03\x1b[31m{EVIL}/Beta/",
    "b3": f"/Alpha/{EVIL}",
    "b4": "/Alpha/",
    "s4": "",
}
PARENTS = {"b2": "b1", "b3": "b2", "b4": "b3", "s4": "b3"}
TIMES = {"b1": 10, "b2": DAY_S, "b3": DAY_S + 100, "b4": 3 * DAY_S, "s4": 3 * DAY_S + 5}
# When each transaction entered, and its fee.
WAITING = {
    "quick": (DAY_S - 90, 4000),
    "slow": (DAY_S - 90, 300),
    "old": (DAY_S - 80, 500),
    "new": (DAY_S - 70, 900),
    "late": (DAY_S - 1, 4000),
}
TEMPLATE_AT = DAY_S - 60
Tables = dict[str, list[dict[str, Any]]]


def tables() -> Tables:
    """Return the rows: `slow` waits through blocks 2 and 3, `old` is replaced by `new`, `s4` is stale."""
    found = chain() | mempool()
    for rows in found.values():
        for row in rows:
            row.setdefault("node", NODE)
    for row in (*found["blocks"], *found["transactions"]):
        del row["node"]
    return found


def chain() -> Tables:
    """Return blocks, their transactions and their arrivals."""
    blocks = [
        {
            "block_hash": name,
            "height": int(name[1]),
            "coinbase_script": coinbase,
            "header_time": TIMES[name],
            "fees_sat": 1000,
            "subsidy_sat": 5_000_000_000,
        }
        | ({"prev_hash": PARENTS[name]} if name in PARENTS else {})
        for name, coinbase in COINBASES.items()
    ]
    arrivals = [
        {"block_hash": name, "height": int(name[1]), "event": event, "event_at": time}
        for name, time in TIMES.items()
        for event in ("seen", "connected")
        if event == "seen" or name != "s4"
    ]
    taken = (("b2", "quick", 4000), ("b2", "unseen", 3000), ("b4", "slow", 300))
    transactions = [
        {"block_hash": block, "txid": txid, "fee_sat": fee, "vsize_vb": 100, "weight_wu": 400}
        for block, txid, fee in taken
    ]
    return {"blocks": blocks, "block_arrivals": arrivals, "transactions": transactions}


def mempool() -> Tables:
    """Return what entered and left the mempool, one template, and four days of observation."""
    removed = {"event": "R", "hash": "old", "received_at": DAY_S - 70.1}
    events = [
        {"event": "C", "hash": name, "received_at": time} for name, time in TIMES.items() if name != "s4"
    ]
    promised = ((1, "quick", 4000), (2, "new", 900))
    return {
        "nodes": [{"started_at": 0}],
        "mempool_events": [*events, removed | {"removal_reason": "replaced", "replaced_by": "new"}],
        "mempool_txs": [
            {"txid": txid, "entered_at": time, "fee_sat": fee, "vsize_vb": 100, "weight_wu": 400}
            for txid, (time, fee) in WAITING.items()
        ],
        "templates": [
            {"taken_at": TEMPLATE_AT, "prev_hash": "b1", "height": 2, "n_tx": 2, "trigger": "timer"}
        ],
        "template_txs": [
            {"taken_at": TEMPLATE_AT, "tx_index": index, "txid": txid, "fee_sat": fee, "weight_wu": 400}
            for index, txid, fee in promised
        ],
        "coverage": [
            {"topic": topic, "from_at": 0, "to_at": 4 * DAY_S}
            for topic in ("sequence", "rawtx", "rawblock", "mempool")
        ],
    }
