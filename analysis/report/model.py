"""Defines the report as data: a page has sections, and a section has figures and tables.

One HTML template draws all of it, so a new section is a new value and needs no new HTML. All text here is
plain text, and the template escapes it. Only the panels of a figure are markup; `analysis.report.charts.svg`
draws all of them.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from markupsafe import Markup

from analysis.report.plot import Plot

MAX_PANELS: Final = 2  # drawings of a section that are seen without opening anything: one row
MAX_BESIDE: Final = 4  # columns of a table beside a chart
Kind = Literal["number", "text", "long", "code"]  # a long text may wrap, and so may code


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """Describes one column of a table: its head, its unit, and what kind of values its cells hold.

    Neighbouring columns with the same `group` get one common head above their own heads. Raises ValueError
    without a label: a reader who hears the page could not tell the column, nor sort by it.
    """

    label: str
    unit: str = ""
    group: str = ""
    kind: Kind = "number"

    def __post_init__(self) -> None:
        if not self.label:
            raise ValueError("a column of a table needs a label")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """Holds one row of a table: the text of its first cell (`head`) and of the other cells, in column order.

    `values` are what the cells are sorted by, a number or a text each; without them the texts are used.
    `colour` is a CSS colour for a mark before the head, and empty for no mark.
    """

    head: str
    cells: Sequence[str]
    values: Sequence[float | str | None] = ()
    colour: str = ""
    is_total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Holds a table with a caption. The page shows the first `n_shown` rows, and the others on request.

    The first table of a section is unfolded, unless it has `is_folded` and a figure shows its numbers. Tables
    with `is_folded` come after those without it. `records` are the unchanged rows of the mart, for the CSV;
    `n_records` is how many rows the mart has. `mart` is empty for a table that is not made from one mart.
    """

    table_id: str
    caption: str
    head: str
    columns: Sequence[TableColumn]
    rows: Sequence[TableRow]
    mart: str
    records: Sequence[Mapping[str, Any]]
    n_records: int | None = None
    note: str = ""
    is_folded: bool = False

    kind: ClassVar[str] = "table"
    n_shown: ClassVar[int] = 6

    @property
    def classes(self) -> list[str]:
        """Return the CSS classes of each column: its kind, and `starts` on the first column of a group."""
        before = ["", *(column.group for column in self.columns)]
        return [
            f"{column.kind} starts" if column.group and column.group != group else column.kind
            for column, group in zip(self.columns, before, strict=False)
        ]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Return the upper line of column heads as (label, number of columns).

        The list is empty if no column has a group.
        """
        runs = itertools.groupby(self.columns, key=lambda column: column.group)
        groups = [(label, len(list(run))) for label, run in runs]
        return groups if any(label for label, _ in groups) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Holds one SVG drawing: `wide`, and optionally `narrow`, a second version for narrow screens.

    `plot` has its numbers, where the x axis is one that a reader can zoom into. `wide` is empty if there was
    nothing to draw.
    """

    title: str
    wide: Markup = Markup("")  # noqa: RUF009 - a text, which nobody can change
    narrow: Markup | None = None
    colour: str = ""
    plot: Plot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendKey:
    """Describes one line of a legend: the colour and shape of a mark, and a label with its meaning."""

    label: str
    colour: str
    shape: Literal["line", "dashed", "dotted", "dot", "ring", "diamond", "bar", "hatch", "frame"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Holds one or more drawings with a title and a caption that says how to read them.

    `marts` names the marts that the numbers come from; the page links to their methods. `rests_on` is a
    sentence on which blocks, and how much observed time, the figure is based. With a `choice`, such as "Time
    window", the page shows one panel at a time, and the reader chooses by the titles of the panels. A figure
    with `is_folded` comes after those without it, and the page hides it until the reader unfolds it.
    """

    figure_id: str
    title: str
    caption: str
    panels: Sequence[Panel]
    marts: Sequence[str]
    rests_on: str
    legend: Sequence[LegendKey] = ()
    layout: Literal["single", "pair", "grid", "full"] = "single"
    choice: str = ""
    is_folded: bool = False

    kind: ClassVar[str] = "figure"

    @property
    def n_seen(self) -> int:
        """Return how many panels of the figure are visible at a time: one if the reader chooses, else all."""
        return 1 if self.choice else len(self.panels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Holds a term and its meaning, in paragraphs. Links on the page can lead to a term with an `anchor`."""

    term: str
    paragraphs: Sequence[str]
    anchor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionList:
    """Holds a list of terms and their meanings."""

    list_id: str
    caption: str
    terms: Sequence[Definition]

    kind: ClassVar[str] = "definitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Holds a question without an answer, which data it lacks, and the command that brings these data."""

    question: str
    lacks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionContent:
    """Holds the figures and tables of a section, and in `missing` which data the parts left out lack.

    A plain text in `missing` is about the question of the section itself.
    """

    parts: Sequence[Figure | Table | DefinitionList]
    missing: Sequence[Unanswered | str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Holds one section of the page: its question, the findings that answer it, figures and tables."""

    section_id: str
    title: str
    question: str
    intro: str
    parts: Sequence[Figure | Table | DefinitionList]
    findings: Sequence[str] = ()

    @property
    def figures(self) -> list[Figure]:
        """Return the figures that the report's page shows unfolded: the first ones, up to 2 panels in all.

        At least one is shown.
        """
        sizes = itertools.accumulate(figure.n_seen for figure in self._figures if not figure.is_folded)
        n_shown = max(1, sum(size <= MAX_PANELS for size in sizes))
        return self._figures[:n_shown]

    @property
    def first_tables(self) -> list[Table | DefinitionList]:
        """Return the tables that the report's page shows unfolded: the first one, or none."""
        first = self.tables[:1]
        return [part for part in first if not (self.figures and isinstance(part, Table) and part.is_folded)]

    @property
    def folded_tables(self) -> list[Table | DefinitionList]:
        """Return the tables that stay folded until a reader opens them: all but `first_tables`."""
        return self.tables[len(self.first_tables) :]

    @property
    def fits_one_row(self) -> bool:
        """Return whether the findings, one narrow chart and a table of few columns fit side by side."""
        narrow = [figure for figure in self.figures if figure.layout != "full"]
        table = next(iter(self.first_tables), None)
        if [(figure.layout, figure.n_seen) for figure in narrow] != [("single", 1)]:
            return False
        if not isinstance(table, Table) or len(table.columns) > MAX_BESIDE:
            return False
        return not any(column.kind in ("long", "code") for column in table.columns)

    @property
    def folded_figures(self) -> list[Figure]:
        """Return the figures that the report's page hides until a reader unfolds them: all but `figures`."""
        return self._figures[len(self.figures) :]

    @property
    def _figures(self) -> list[Figure]:
        found = [part for part in self.parts if isinstance(part, Figure)]
        return sorted(found, key=lambda figure: figure.is_folded)

    @property
    def tables(self) -> list[Table | DefinitionList]:
        """Return the tables and lists of the section; those that start folded come last."""
        found = [part for part in self.parts if not isinstance(part, Figure)]
        return sorted(found, key=lambda part: isinstance(part, Table) and part.is_folded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """Holds one headline number: its name, the number, its interval, a note, and a small chart.

    `section` is the id of the section behind the number.
    """

    section: str
    label: str
    value: str
    interval: str
    note: str
    chart: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Holds the sentences that answer a question of the report, and the id of the section behind them."""

    section: str
    question: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Describes the blocks that one source reports: its name, and their number, heights and times.

    All are texts; `times` says whether the times are arrivals or header times, and is empty if there are
    none.
    """

    name: str
    n_blocks: str
    heights: str
    times: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Holds the whole report. `facts` are (label, value) pairs for the head of the page.

    `sections` are the questions with data, `unanswered` those without. `methods` says how it was computed.
    """

    title: str
    lede: str
    facts: Sequence[tuple[str, str]]
    sources: Sequence[Source]
    headlines: Sequence[Headline]
    findings: Sequence[Finding]
    sections: Sequence[Section]
    unanswered: Sequence[Unanswered]
    methods: Sequence[Section]
