"""Return the results as metrics for Prometheus at /metrics, and what became of the webhooks' events.

Labels are kinds of events, windows and pools of our rules: nothing that a stranger chooses.
"""

import datetime as dt
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from analysis.serve.events import TITLES, events
from analysis.serve.lookups import covered
from analysis.serve.results import Reader
from analysis.serve.webhooks import Webhook

PREFIX = "pool_analysis_"


class _Families(Collector):
    """Yields the metric families of one answer to Prometheus."""

    def __init__(self, reader: Reader, webhooks: Sequence[Webhook]) -> None:
        self._reader = reader
        self._webhooks = webhooks

    def collect(self) -> Iterator[Metric]:
        yield from self._of_events()
        yield from self._of_results()
        if self._webhooks:
            deliveries = CounterMetricFamily(
                f"{PREFIX}webhook_events",
                "Events by what became of them; failed counts tries.",
                labels=["webhook", "outcome"],
            )
            for number, webhook in enumerate(self._webhooks, 1):
                for outcome in ("sent", "failed", "dropped"):
                    deliveries.add_metric([str(number), outcome], webhook.counts[outcome])
            yield deliveries

    def _of_events(self) -> Iterator[Metric]:
        found = events(self._reader)
        number = GaugeMetricFamily(f"{PREFIX}events", "Events in the results, by kind.", labels=["kind"])
        newest = GaugeMetricFamily(
            f"{PREFIX}event_newest_timestamp_seconds", "When the newest event happened.", labels=["kind"]
        )
        for kind in TITLES:
            times = [each.happened_at for each in found if each.kind == kind]
            number.add_metric([kind], len(times))
            dated = [at for at in times if at is not None]
            if dated:
                newest.add_metric([kind], max(dated).timestamp())
        yield from (number, newest)

    def _of_results(self) -> Iterator[Metric]:
        share = GaugeMetricFamily(
            f"{PREFIX}pool_share_ratio", "Share of the blocks, 0..1.", labels=["pool", "window"]
        )
        low = GaugeMetricFamily(
            f"{PREFIX}pool_share_low_ratio", "Lower end of its 95 % interval.", labels=["pool", "window"]
        )
        rows = self._reader.rows(
            "SELECT pool, time_window, share_ratio, share_low_ratio FROM pool_share_window ORDER BY ALL"
        )
        for row in rows:
            labels = [row["pool"], row["time_window"]]
            share.add_metric(labels, row["share_ratio"])
            if row["share_low_ratio"] is not None:
                low.add_metric(labels, row["share_low_ratio"])
        observed = GaugeMetricFamily(
            f"{PREFIX}observed_ratio", "Part of the time that was observed.", labels=["node", "topic"]
        )
        for row in covered(self._reader):
            if row["observed_ratio"] is not None:
                observed.add_metric([row["node"], row["topic"]], row["observed_ratio"])
        yield from (share, low, observed)
        built_at = self._reader.facts.get("built_at")
        if built_at:
            built = GaugeMetricFamily(f"{PREFIX}build_timestamp_seconds", "When the results were built.")
            built.add_metric([], dt.datetime.fromisoformat(built_at).timestamp())
            yield built


def metrics(reader: Reader, webhooks: Sequence[Webhook]) -> bytes:
    """Return the metrics of the newest build in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(reader, webhooks))
    return generate_latest(registry)
