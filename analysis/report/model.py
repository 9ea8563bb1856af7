"""What the report is made of, as data: sections of figures and tables, which one template draws.

A new section is a new value, not new HTML. All text here is plain text, and the template escapes it.
Only the panels of a figure are markup; all of them are drawn by `analysis.report.charts.svg`.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from markupsafe import Markup

Kind = Literal["number", "text", "long", "code"]  # a long text may wrap, and so may code


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The head of a table column. Columns with the same `group` stand under one head."""

    label: str
    unit: str = ""
    group: str = ""
    kind: Kind = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One table row: its head, a colour that marks it, and one cell for each further column."""

    head: str
    cells: Sequence[str]
    colour: str = ""
    is_total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a caption. A folded table stays closed until the reader opens it.

    `records` are the unchanged rows of the mart, for the CSV; `n_records` is how many rows the mart has.
    `mart` is empty for a table that is not made from one mart.
    """

    table_id: str
    caption: str
    head: str
    columns: Sequence[Column]
    rows: Sequence[TableRow]
    mart: str
    records: Sequence[Mapping[str, Any]]
    n_records: int | None = None
    note: str = ""
    is_folded: bool = False

    kind: ClassVar[str] = "table"

    @property
    def classes(self) -> list[str]:
        """Give the CSS classes of each column: its kind, and `starts` on the first column of a group."""
        before = ["", *(column.group for column in self.columns)]
        return [
            f"{column.kind} starts" if column.group and column.group != group else column.kind
            for column, group in zip(self.columns, before, strict=False)
        ]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Give the upper line of heads as (label, number of columns); empty where no column has a group."""
        runs = itertools.groupby(self.columns, key=lambda column: column.group)
        groups = [(label, len(list(run))) for label, run in runs]
        return groups if any(label for label, _ in groups) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One drawing. `narrow` is the version for narrow screens; without it `wide` serves both."""

    title: str
    wide: Markup
    narrow: Markup | None = None
    colour: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendKey:
    """One line of a legend: what marks of a colour and shape stand for."""

    label: str
    colour: str
    shape: Literal["line", "dashed", "dotted", "dot", "ring", "diamond", "bar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One or more panels with a title and a caption that says how to read them.

    `marts` names the marts that the numbers come from; the page links to their methods. `rests_on` says how
    much was observed.
    """

    figure_id: str
    title: str
    caption: str
    panels: Sequence[Panel]
    marts: Sequence[str]
    rests_on: str
    legend: Sequence[LegendKey] = ()
    layout: Literal["single", "pair", "grid"] = "single"

    kind: ClassVar[str] = "figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A term and its meaning, in paragraphs. Links can lead to a term that has an anchor."""

    term: str
    paragraphs: Sequence[str]
    anchor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionList:
    """A list of terms and their meanings."""

    list_id: str
    terms: Sequence[Definition]

    kind: ClassVar[str] = "definitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The body of a section. `missing` says in one sentence each what the data does not allow, and why."""

    parts: Sequence[Figure | Table | DefinitionList]
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of the page: its question, how it is answered, and its figures and tables in order."""

    section_id: str
    title: str
    question: str
    intro: str
    parts: Sequence[Figure | Table | DefinitionList]
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The headline answer to one question. `section` is the id of the section with the details."""

    section: str
    question: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The whole report: what was measured, the headline answers, and the sections."""

    title: str
    lede: str
    facts: Sequence[tuple[str, str]]
    findings: Sequence[Finding]
    sections: Sequence[Section]
