"""Sections: how the numbers come about, and what was run."""

import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.catalog import Model, load_catalog
from analysis.report.data import Marts
from analysis.report.model import Column, Definitions, Entry, Section, Table, TableRow
from analysis.report.text import printable

MAX_VALUE_LENGTH: Final = 600


# What the sections say without explaining it.
TERMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "95\u00a0% interval": (
            "If the measurement were repeated many times, 95\u00a0% of such intervals would hold the true "
            "value. It covers chance alone, not wrong attribution or missed blocks."
        ),
        "Than the others": (
            "A pool's blocks against those of all other pools together: Fisher's exact test of empty blocks, "
            "the Mann-Whitney test of the parts of transactions that each block took, where ranks and means "
            "agree on the direction. A pool is named where the test is below 5\u00a0% after Holm's "
            "correction for the number of pools compared. Pools with fewer than 5 blocks are not compared."
        ),
        "Feerate": "Fee per virtual size, in sat/vB. Plain feerate is a transaction's own.",
        "Package feerate": (
            "A transaction's mining score is the lower of its own feerate and of the feerate of it with all "
            "its ancestors; its package feerate is the highest score among it and its waiting descendants. "
            "So a parent counts for the sake of a child that pays for both."
        ),
        "Active chain": (
            "The branch of most work that the dataset shows. Blocks beside it are stale: they are kept, and "
            "not counted in shares."
        ),
        "Arrival": (
            "The moment at which a node announced a block to us, on our clock. A block that was fetched "
            "later has none, and counts in no interval."
        ),
        "Not enough data": "Too few blocks for a number. Nothing is estimated in its place.",
    }
)


def methods_section(_marts: Marts) -> Section:
    """Quote what the SQL of each mart says of its method, so that page and query cannot differ."""
    models = load_catalog().by_name
    entries = [
        Entry(
            term=f"{mart}: {model.summary}",
            paragraphs=[*_paragraphs(model.method or ""), *_parameters(model)],
            entry_id=f"method-{mart}",
        )
        for mart, model in sorted(models.items())
        if model.layer == "marts"
    ]
    terms = [Entry(term=term, paragraphs=[text]) for term, text in TERMS.items()]
    return Section(
        section_id="methods",
        title="Methods and definitions",
        question="How do these numbers come about?",
        intro=(
            "Every number above is read from a table that one SQL file makes. What follows is what those "
            "files say; `pool-analysis show NAME` prints a table, and `pool-analysis list` names them all."
        ),
        parts=[
            Definitions(list_id="terms", entries=terms),
            Definitions(list_id="marts", entries=entries),
        ],
    )


def _parameters(model: Model) -> list[str]:
    """Say which numbers the query takes, and what for."""
    if not model.parameters:
        return []
    named = [f"{name} = {given.value}: {given.doc}" for name, given in model.parameters.items()]
    return [f"Parameters: {'; '.join(named)}"]


def run_section(marts: Marts) -> Section:
    """Show the run manifest."""
    return Section(
        section_id="run",
        title="Run manifest",
        question="What was run?",
        intro="The same dataset, rules and versions give the same numbers.",
        parts=[
            Table(
                table_id="run-table",
                caption="Versions, nodes, rules and dataset",
                head="What",
                columns=[Column(label="Value", kind="long")],
                rows=[
                    TableRow(
                        head=printable(key).replace("_", " "),
                        cells=[printable(value, max_length=MAX_VALUE_LENGTH)],
                    )
                    for key, value in marts.manifest.items()
                ],
                mart="run_manifest",
                records=[{"key": key, "value": value} for key, value in marts.manifest.items()],
            )
        ],
    )


def _paragraphs(text: str) -> list[str]:
    """Split the text of a SQL head at empty lines and join its lines."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return [" ".join(part.split()) for part in parts if part.strip()]
