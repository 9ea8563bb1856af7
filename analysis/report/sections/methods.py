"""Makes the last two sections of the report: how the numbers are computed, and what was run."""

import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.catalog import Model, load_catalog
from analysis.report.data import Marts
from analysis.report.model import Definition, DefinitionList, SectionContent, Table, TableColumn, TableRow
from analysis.report.text import printable
from analysis.report.topic import Topic

MAX_VALUE_LENGTH: Final = 600
# Terms that the sections use without an explanation.
TERMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "95\u00a0% interval": (
            "If the measurement were repeated many times, 95\u00a0% of such intervals would contain the "
            "true value. An interval covers chance only, not wrong attribution or missed blocks."
        ),
        "Than the others": (
            "The blocks of one pool are compared with those of all other pools together: by Fisher's "
            "exact test for empty blocks, and by the Mann-Whitney test for the share of transactions "
            "that each block took, if ranks and means agree on the direction. A pool is named if the "
            "test is below 5\u00a0% after Holm's correction for the number of pools compared. Pools with "
            "fewer than 5 blocks are not compared."
        ),
        "Feerate": "Fee divided by virtual size, in sat/vB. Plain feerate is that of a transaction alone.",
        "Package feerate": (
            "The mining score of a transaction is its own feerate or the feerate of it together with "
            "all its ancestors, whichever is lower. Its package feerate is the highest score among it "
            "and its waiting descendants. So a parent profits from a child that pays for both."
        ),
        "What a pool runs": (
            "What the blocks of a pool show: kinds of transactions that it mines and passes over, signals, "
            "header times, and candidates for payments elsewhere. None of it proves an intention, a "
            "program or a contract. A transaction may never have reached the pool. A miner may have chosen "
            "the template in the pool's place. A signal is a statement. A low feerate may be the pool's "
            "own payment or a promise kept for free. What was never offered to our nodes shows nothing."
        ),
        "Active chain": (
            "The branch with the most work in the dataset. Blocks on other branches are stale: they "
            "are kept, but not counted in shares."
        ),
        "Arrival": (
            "The moment when a node announced a block to us, on our clock. A block that was fetched "
            "later has no arrival, and counts in no interval."
        ),
    }
)


def _methods(_marts: Marts) -> SectionContent:
    """Return the section on methods: each mart's method, quoted from its SQL file, and the terms."""
    models = load_catalog().by_name
    marts = [
        Definition(
            term=f"{mart}: {model.summary}",
            paragraphs=[*_paragraphs(model.method or ""), *_parameters(model)],
            anchor=f"method-{mart}",
        )
        for mart, model in sorted(models.items())
        if model.layer == "marts"
    ]
    terms = [Definition(term=term, paragraphs=[text]) for term, text in TERMS.items()]
    return SectionContent(
        parts=[
            DefinitionList(list_id="terms", caption="Terms", terms=terms),
            DefinitionList(list_id="marts", caption="How each table is made", terms=marts),
        ]
    )


def _parameters(model: Model) -> list[str]:
    """Return one line with the parameters of a query, their values and purposes; an empty list for none."""
    if not model.parameters:
        return []
    named = [f"{name} = {given.value}: {given.doc}" for name, given in model.parameters.items()]
    return [f"Parameters: {'; '.join(named)}"]


def _run(marts: Marts) -> SectionContent:
    """Return the table of the run manifest: versions, nodes, rules and dataset."""
    return SectionContent(
        parts=[
            Table(
                table_id="run-table",
                caption="Versions, nodes, rules and dataset",
                head="What",
                columns=[TableColumn(label="Value", kind="long")],
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
    """Split a text at its empty lines; return the paragraphs, each on one line."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return [" ".join(part.split()) for part in parts if part.strip()]


METHODS: Final = Topic(
    section_id="methods",
    title="Methods and definitions",
    question="How are these numbers computed?",
    intro=(
        "Every number above is read from a table, and one SQL file makes each table. The texts below are "
        "quoted from those files. `pool-analysis list` names all tables, and `pool-analysis show NAME` "
        "prints one."
    ),
    content=_methods,
)
RUN: Final = Topic(
    section_id="run",
    title="Run manifest",
    question="What was run?",
    intro="The same dataset, rules and versions give the same numbers.",
    content=_run,
)
