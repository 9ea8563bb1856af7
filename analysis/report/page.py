"""Makes the report from the rows of the marts, and writes it as one HTML file.

The file is replaced in one step, so a reader finds either the whole old report or the whole new one.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.errors import ReportError
from analysis.report.data import Marts
from analysis.report.export import csv_download, svg_download, write_figures
from analysis.report.findings import findings
from analysis.report.model import Page
from analysis.report.sections import TOPICS, read_marts
from analysis.report.text import count, listed, plural, printable, span
from collector.dataset.files import USER_FILE_MODE, write_atomically

_CODE: Final = re.compile(r"`([^`]+)`")
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
    content = page(read_marts(database))
    text = render(content)
    if figures is not None:
        write_figures(content, figures)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, lambda sink: sink.write(text.encode()), mode=USER_FILE_MODE)
    except OSError as error:
        raise ReportError(f"{out} cannot be written ({error.strerror}); choose another --out") from error
    return out


def page(marts: Marts) -> Page:
    """Make the whole content of the report, still without HTML, from the rows that were read of the marts."""
    return Page(
        title="Bitcoin mining pools, measured",
        lede=lede(marts),
        facts=facts(marts),
        findings=findings(marts),
        sections=[topic.section(marts) for topic in TOPICS],
    )


def render(content: Page) -> str:
    """Render the content of a report as HTML. Every text is escaped."""
    environment = Environment(
        loader=PackageLoader("analysis.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"csv_download": csv_download, "svg_download": svg_download, "prose": prose}
    return environment.get_template("report.html.j2").render(page=content)


def prose(text: str) -> Markup:
    """Escape a text for HTML, and turn each part between backticks into code whose words are never broken."""
    return Markup(_CODE.sub(_code, str(escape(text))))  # noqa: S704 - escaped first


def _code(found: re.Match[str]) -> str:
    words = " ".join(f"<span>{word}</span>" for word in found[1].split())
    return f"<code>{words}</code>"


def lede(marts: Marts) -> str:
    """Write the lead sentence of the report: how many blocks of which chain, and which nodes watched it."""
    blocks = plural(marts.window["n_blocks"], "block")
    nodes = sorted({row["node"] for row in marts.coverage})
    names = listed([printable(node) for node in nodes])
    watched = f", watched through the {'node' if len(nodes) == 1 else 'nodes'} {names}" if nodes else ""
    return f"{blocks} of {_chain(marts)}{watched}."


def _chain(marts: Marts) -> str:
    chain = marts.manifest.get("chain", "an unnamed chain")
    return CHAINS.get(chain, printable(chain))


def facts(marts: Marts) -> list[tuple[str, str]]:
    """Return the facts for the head of the page as (label, value): chain, heights, times and counts."""
    window = marts.window
    named = [("Chain", _chain(marts))]
    if window["first_height"] is not None:
        named.append(("Heights", f"{count(window['first_height'])} to {count(window['last_height'])}"))
    return [
        *named,
        ("First to last arrival", span(window["first_at"], window["last_at"])),
        ("Blocks", count(window["n_blocks"])),
        ("Stale blocks", count(window["n_stale"])),
        (
            "Pools named",
            count(sum(1 for row in marts.shares if row["block_count"] and not row["is_unknown"])),
        ),
    ]
