"""Ask /metrics of a running collector for the state of its nodes."""

from typing import Final

from collector.loopback import is_loopback

TIMEOUT_S: Final = 2.0
PREFIX: Final = "pool_collector_"
SHOWN: Final = (
    "in_step",
    "rpc_away",
    "mempool_transactions",
    "queued_messages",
    "waiting_messages",
    "oldest_waiting_seconds",
    "last_message_timestamp_seconds",
    "store_blocked",
    "store_waiting_files",
    "store_waiting_bytes",
    "store_complete_timestamp_seconds",
)
PROCESS: Final = ""  # the metrics that belong to no node


def ask_metrics(address: str) -> dict[str, dict[str, float]]:
    """Map each node to its metrics named in SHOWN (without their prefix), from /metrics at `address`.

    Of several values of one node, such as those of its topics, the largest stands. Returns an empty dict if
    no collector answers. The address comes from the dataset, which a stranger may have made. So only this
    machine is asked.
    """
    url = metrics_url(address)
    if url is None:
        return {}
    import requests  # noqa: PLC0415 - loads slowly, and most datasets have no running collector
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - the same

    try:
        with requests.Session() as session:
            session.trust_env = False  # a proxy cannot reach this machine's own loopback
            answer = session.get(url, timeout=TIMEOUT_S, allow_redirects=False)
        answer.raise_for_status()
    except (requests.RequestException, ValueError):
        return {}
    try:
        families = list(text_string_to_metric_families(answer.text))
    except Exception:  # noqa: BLE001 - the parser raises whatever the text of another service leads it to
        return {}
    found: dict[str, dict[str, float]] = {}
    for family in families:
        name = family.name.removeprefix(PREFIX)
        if name not in SHOWN:
            continue
        for sample in family.samples:
            node = found.setdefault(sample.labels.get("node", PROCESS), {})
            node[name] = max(sample.value, node.get(name, sample.value))  # of several topics, the newest
    return found


def metrics_url(address: str) -> str | None:
    """Return the URL of /metrics at `address`, or None unless `address` is a loopback host and a port."""
    host, _, port = address.rpartition(":")
    is_ours = is_loopback(host.strip("[]")) and port.isascii() and port.isdigit()
    return f"http://{address}/metrics" if is_ours else None
