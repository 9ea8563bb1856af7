"""Put the page together and write it as one file that is either old or new, never half."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.errors import ReportError
from analysis.report.data import Marts, read
from analysis.report.export import csv_download, svg_download, write_figures
from analysis.report.findings import findings
from analysis.report.model import Page, Section
from analysis.report.sections.audit import audit_section
from analysis.report.sections.concentration import concentration_section
from analysis.report.sections.coverage import coverage_section
from analysis.report.sections.empty import empty_section
from analysis.report.sections.feerate import feerate_section
from analysis.report.sections.halving import halving_section
from analysis.report.sections.hashrate import hashrate_section
from analysis.report.sections.methods import methods_section, run_section
from analysis.report.sections.network import network_section
from analysis.report.sections.quality import quality_section
from analysis.report.sections.revenue import revenue_section
from analysis.report.sections.share import share_section
from analysis.report.sections.users import users_section
from analysis.report.text import count, listed, plural, printable, span
from collector.dataset.atomic_write import USER_FILE_MODE, write_atomically

SECTIONS: Final[tuple[Callable[[Marts], Section], ...]] = (
    share_section,
    concentration_section,
    hashrate_section,
    revenue_section,
    halving_section,
    empty_section,
    feerate_section,
    audit_section,
    users_section,
    network_section,
    quality_section,
    coverage_section,
    methods_section,
    run_section,
)

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
    """Write the report of a built database to `out`, over what was there, and give its path.

    `figures` is a folder for every figure as SVG and PNG and every table as CSV. Raises ReportError where the
    database lacks what is shown, or a file cannot be written.
    """
    content = page(read(database))
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
    """Make all that the page shows."""
    return Page(
        title="Bitcoin mining pools, measured",
        lede=lede(marts),
        facts=facts(marts),
        findings=findings(marts),
        sections=[section(marts) for section in SECTIONS],
    )


def render(content: Page) -> str:
    """Render a page as HTML; every text is escaped."""
    environment = Environment(
        loader=PackageLoader("analysis", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"csv_download": csv_download, "svg_download": svg_download, "prose": prose}
    return environment.get_template("report.html.j2").render(page=content)


def prose(text: str) -> Markup:
    """Escape a text and set what stands between backticks as code, of which no line ends within a word."""
    return Markup(_CODE.sub(_code, str(escape(text))))  # noqa: S704 - escaped first


def _code(found: re.Match[str]) -> str:
    words = " ".join(f"<span>{word}</span>" for word in found[1].split())
    return f"<code>{words}</code>"


def lede(marts: Marts) -> str:
    """Say in one sentence what was measured."""
    blocks = plural(marts.window["n_blocks"], "block")
    nodes = sorted({row["node"] for row in marts.coverage})
    names = listed([printable(node) for node in nodes])
    watched = f", watched through the {'node' if len(nodes) == 1 else 'nodes'} {names}" if nodes else ""
    return f"{blocks} of {_chain(marts)}{watched}."


def _chain(marts: Marts) -> str:
    chain = marts.manifest.get("chain", "an unnamed chain")
    return CHAINS.get(chain, printable(chain))


def facts(marts: Marts) -> list[tuple[str, str]]:
    """Give what a reader wants to know first, as label and value."""
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
