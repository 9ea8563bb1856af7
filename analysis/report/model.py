"""What a report is made of, as data: sections of figures and tables that one template draws.

A new section is a new value, not new markup. All text here is plain text: the template escapes it.
Only the panels of a figure are markup, and they come from `analysis.report.charts.svg` alone.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from markupsafe import Markup

from analysis.report.findings import Finding

Kind = Literal["number", "text", "long", "code"]  # long text may wrap, and so may code, which has no words


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Head of one table column; columns with the same `group` stand under one head."""

    label: str
    unit: str = ""
    group: str = ""
    kind: Kind = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row: its head, a colour to tell it by, and a cell per further column."""

    head: str
    cells: Sequence[str]
    colour: str = ""
    is_total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a caption; `is_folded` hides a long one until it is asked for.

    `records` are the rows of the mart as they are, which the CSV holds, `n_records` how many the mart has. A
    table that is not of one mart names none.
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
        """Give the CSS classes of each column: its kind, and whether it begins a group."""
        before = ["", *(column.group for column in self.columns)]
        return [
            f"{column.kind} starts" if column.group and column.group != group else column.kind
            for column, group in zip(self.columns, before, strict=False)
        ]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Give the upper line of heads, as (label, columns); empty where no column has a group."""
        runs = itertools.groupby(self.columns, key=lambda column: column.group)
        groups = [(label, len(list(run))) for label, run in runs]
        return groups if any(label for label, _ in groups) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One drawing, in a version for wide and one for narrow screens, or one for both."""

    title: str
    wide: Markup
    narrow: Markup | None = None
    colour: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """What a mark of a colour and a shape stands for."""

    label: str
    colour: str
    shape: Literal["line", "dashed", "dotted", "dot", "ring", "diamond", "bar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Panels under one caption, which says how to read them.

    `marts` are where the numbers are from, and so which methods apply; `rests_on` says how much was observed.
    """

    figure_id: str
    title: str
    caption: str
    panels: Sequence[Panel]
    marts: Sequence[str]
    rests_on: str
    legend: Sequence[LegendEntry] = ()
    layout: Literal["single", "pair", "grid"] = "single"

    kind: ClassVar[str] = "figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A term and what it means, in paragraphs; with an id it can be linked to."""

    term: str
    paragraphs: Sequence[str]
    entry_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Terms and what they mean."""

    list_id: str
    entries: Sequence[Entry]

    kind: ClassVar[str] = "definitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One question of the report: what was done, then what came out, in the order of `parts`."""

    section_id: str
    title: str
    question: str
    intro: str
    parts: Sequence[Figure | Table | Definitions]
    missing: Sequence[str] = ()  # what could not be shown, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The whole report: what was measured, the findings, the sections."""

    title: str
    lede: str
    facts: Sequence[tuple[str, str]]
    findings: Sequence[Finding]
    sections: Sequence[Section]
