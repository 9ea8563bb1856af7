"""Lists the topics of the report in the order of the page, and reads the rows that they need."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from analysis.report import data
from analysis.report.sections import (
    attribution,
    concentration,
    coverage,
    empty,
    feerate,
    halving,
    hashrate,
    luck,
    methods,
    network,
    policy,
    revenue,
    share,
    template_audit,
    user_transactions,
)
from analysis.report.topic import Topic

TOPICS: Final[tuple[Topic, ...]] = (
    share.TOPIC,
    concentration.TOPIC,
    luck.TOPIC,
    hashrate.TOPIC,
    revenue.TOPIC,
    halving.TOPIC,
    empty.TOPIC,
    feerate.TOPIC,
    template_audit.TOPIC,
    policy.TOPIC,
    user_transactions.TOPIC,
    network.TOPIC,
    attribution.TOPIC,
    coverage.TOPIC,
)
METHODS: Final[tuple[Topic, ...]] = (methods.METHODS, methods.RUN)
READS: Final[Mapping[str, data.Read]] = MappingProxyType(
    {name: read for topic in TOPICS for name, read in topic.reads.items()}
)


def read_marts(database: Path) -> data.Marts:
    """Read from a built database all rows that the topics show.

    Raises ReportError, which says what is missing and what to run, if the database cannot be used.
    """
    return data.read(database, READS)
