"""Makes the report from the rows of the marts, and writes it as one HTML file.

The file is replaced in one step, so a reader finds either the whole old report or the whole new one.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.errors import ReportError
from analysis.report.data import Marts, Row
from analysis.report.findings import answers, findings
from analysis.report.headline import headlines
from analysis.report.model import Page, Source
from analysis.report.saved_files import csv_download, svg_download, write_figures
from analysis.report.sections import METHODS, read_marts
from analysis.report.text import NOTHING, count, listed, plural, printable, span
from collector.dataset.files import USER_FILE_MODE, why_unwritable, write_atomically

DOCTYPE: Final = b"<!doctype html>"
_CODE: Final = re.compile(r"`([^`]+)`")
SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {"observed": "observed by our nodes", "backfilled": "backfilled from block files of a node"}
)
CHAINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "main": "Bitcoin mainnet",
        "test": "testnet3",
        "testnet4": "testnet4",
        "signet": "signet",
        "regtest": "regtest, a private test chain",
    }
)


def write(database: Path, out: Path, *, figures: Path | None = None) -> Path:
    """Write the report of a built database to the file `out`, replace an older file, and return its path.

    With a folder `figures`, every figure is also written there as SVG and PNG, and every table as CSV.
    Raises ReportError if the database lacks a mart or a file cannot be written.
    """
    return write_page(page(read_marts(database)), out, figures=figures)


def write_page(content: Page, out: Path, *, figures: Path | None = None) -> Path:
    """Write the content of a report to the file `out`, as `write` does, and return its path.

    Raises ReportError if a file cannot be written, or if `out` holds something other than an HTML page.
    """
    _refuse_other_file(out)
    text = render(content)
    if figures is not None:
        write_figures(content, figures)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, lambda sink: sink.write(text.encode()), mode=USER_FILE_MODE)
    except OSError as error:
        raise ReportError(
            f"{out} cannot be written ({why_unwritable(error)}); choose another --out"
        ) from error
    return out


def _refuse_other_file(out: Path) -> None:
    """Raise ReportError where a report would replace a file that is no HTML page, such as the database."""
    if not out.is_file():
        return
    try:
        with out.open("rb") as file:
            begin = file.read(len(DOCTYPE))
    except OSError:  # writing tells why
        return
    if begin and begin.lower() != DOCTYPE:
        raise ReportError(f"{out} is no HTML page, so it is not replaced; choose another --out, or remove it")


def page(marts: Marts) -> Page:
    """Return the whole content of the report as a Page, still without HTML, from the rows of the marts."""
    sections, unanswered = answers(marts)
    return Page(
        title="Bitcoin mining pools, measured",
        lede=lede(marts),
        facts=facts(marts),
        sources=sources(marts),
        headlines=headlines(marts),
        findings=findings(sections),
        sections=sections,
        unanswered=unanswered,
        methods=[topic.section(marts)[0] for topic in METHODS],
    )


def render(content: Page) -> str:
    """Return the content of a report as one HTML text. Every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader("analysis.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"csv_download": csv_download, "svg_download": svg_download, "prose": prose}
    environment.globals |= {"has_plots": False, "json_of": ""}  # only a server offers the library and answers
    script = (resources.files("analysis.report") / "templates" / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html.j2").render(
        page=content,
        script=Markup(script),  # noqa: S704 - our own file
        script_hash=f"sha256-{digest}",
    )


def prose(text: str) -> Markup:
    """Return a text escaped for HTML; each part between backticks is code whose words are never broken."""
    return Markup(_CODE.sub(_code, str(escape(text))))  # noqa: S704 - escaped first


def _code(found: re.Match[str]) -> str:
    words = " ".join(f"<span>{word}</span>" for word in found[1].split())
    return f"<code>{words}</code>"


def lede(marts: Marts) -> str:
    """Return the report's opening text: the blocks (number, chain, time), who watched, what is missing."""
    window = marts.window
    blocks = plural(window["n_blocks"], "block")
    if window["first_time"] is not None:
        times = f", found {span(window['first_time'], window['last_time'])}"
    else:
        times = ""
    nodes = sorted({row["node"] for row in marts.coverage})
    names = listed([printable(node) for node in nodes])
    watched = f"; watched through the {'node' if len(nodes) == 1 else 'nodes'} {names}" if nodes else ""
    return f"{blocks} of {_chain(marts)}{times}{watched}.{_without_pool(marts)}"


def _without_pool(marts: Marts) -> str:
    """Return a sentence on the blocks of which only a header or an arrival is known; empty if there are none.

    Nobody says who mined such blocks, so they count in no share.
    """
    n_blocks = marts.window["n_blocks"]
    lacking = n_blocks - next((row["total_block_count"] for row in marts.shares), 0)
    if not lacking:
        return ""
    whose = "all of them" if lacking == n_blocks else f"{count(lacking)} of them"
    return f" Of {whose} only a header or an arrival is known, not who mined it: they count in no share."


def _chain(marts: Marts) -> str:
    chain = marts.manifest.get("chain", "an unnamed chain")
    return CHAINS.get(chain, printable(chain))


def facts(marts: Marts) -> list[tuple[str, str]]:
    """Return the facts for the head of the report as (label, value): chain, heights, times and counts."""
    window = marts.window
    known = [("Chain", _chain(marts)), ("Heights", _heights(window))]
    if window["first_time"] is not None:
        known.append(("Header times", span(window["first_time"], window["last_time"])))
    if window["first_at"] is not None:
        known.append(("Arrivals", span(window["first_at"], window["last_at"])))
    n_pools = sum(1 for row in marts.shares if row["block_count"] and not row["is_unknown"])
    return [
        *known,
        ("Blocks", f"{_of_heights(window)}, {count(window['n_stale'])} stale"),
        ("Pools named", count(n_pools)),
    ]


def sources(marts: Marts) -> list[Source]:
    """Return who reported the blocks (our nodes, a backfill, or others by name), with counts and dates."""
    return [
        Source(
            name=source_name(row["told_by"]),
            n_blocks=plural(row["n_blocks"], "block"),
            heights=_heights(row),
            times=_times(row),
        )
        for row in marts.sources
    ]


def source_name(told_by: str) -> str:
    """Return in words who reported a block, by the mart's column `told_by`: `observed by our nodes`."""
    return SOURCES.get(told_by) or f"reported by {printable(told_by)}"


def _times(source: Row) -> str:
    """Return a text on when a source's blocks were found: by arrivals if known, else header times."""
    if source["first_arrival"] is not None:
        return f"arrivals {span(source['first_arrival'], source['last_arrival'])}"
    if source["first_time"] is not None:
        return f"header times {span(source['first_time'], source['last_time'])}"
    return ""


def _of_heights(window: Row) -> str:
    """Return a text with the number of active blocks and, if some heights have no block, of heights."""
    n_blocks, first, last = window["n_blocks"], window["first_height"], window["last_height"]
    if first is None or last - first + 1 == n_blocks:
        return f"{count(n_blocks)} active"
    return f"{count(n_blocks)} active (of {plural(last - first + 1, 'height')})"


def _heights(row: Row) -> str:
    first, last = row["first_height"], row["last_height"]
    return NOTHING if first is None else f"{count(first)} to {count(last)}"
