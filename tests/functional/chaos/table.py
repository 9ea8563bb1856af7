"""Write the table of faults and outcomes as Markdown."""

import re
from typing import Any

HOLDS = (
    "The dataset is then compared with the node's debug.log, a bare recorder on a second subscription, and",
    "the node's RPC. *Holds* means: no row lost that was received, none double, every hole named in",
    "`coverage`, every block with its transactions and fees as `getblock` has them, and the mempool as",
    "`getrawmempool` has it, by replay of the events. A fault is played in full, but where a scale is told:",
    "then its counts and times are so much smaller; `SCALE=1` plays all in full. In `flood` the node writes",
    "no debug.log: there events are compared with the recorder alone, and the rest is left to `check`.",
)
SAID_CHARACTERS = 300  # of a fault's description


def markdown(report: dict[str, Any]) -> str:
    """Return the table of a report as Markdown; `report` is as `cli.main` writes it."""
    rows = report["faults"]
    n_held = sum(row["outcome"] == "holds" for row in rows)
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        "# What the collector survives",
        "",
        f"Written by `{report['command']}`; do not edit. Each fault is played on a real node with traffic.",
        *HOLDS,
        _check_said(rows),
        "",
        f"{n_held} of {len(rows)} hold. Seed {report['seed']}.",
        f"{report['node']}, Python {report['python']}, {versions}.",
        "",
        "| fault | what is done | outcome | events published | in the dataset | named holes | took |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in rows]
    broken = [row for row in rows if row.get("faults")]
    if broken:
        lines += ["", "## What does not hold", ""]
        lines += [f"- `{row['fault']}`: {_plain(each)}" for row in broken for each in row["faults"]]
    facts = [(row["fault"], fact) for row in rows for fact in _facts(row)]
    lines += ["", "## Figures", "", "| fault | figure | value |", "|---|---|---|"]
    lines += [f"| `{name}` | {figure} | {value} |" for name, (figure, value) in facts]
    return "\n".join(lines) + "\n"


def _check_said(rows: list[dict[str, Any]]) -> str:
    said = {row["figures"].get("check") for row in rows if "figures" in row}
    if said == {0}:
        return "`pool-collector check` passes on each dataset as well."
    return "`pool-collector check` is run on each dataset too, where this version has it."


def _line(row: dict[str, Any]) -> str:
    figures = row.get("figures", {})
    named = ", ".join(
        f"{count} {reason}" for reason, count in figures.get("holes", {}).items() if reason != "shutdown"
    )
    outcome = row["outcome"] if "why" not in row else f"{row['outcome']}: {_plain(row['why'])}"
    if row["scale"] != 1:
        outcome += f" (scale {row['scale']:g})"
    cells = (
        f"`{row['fault']}`",
        _plain(row["sentence"]),
        f"**{outcome}**" if row["outcome"] in ("fails", "broken") else outcome,
        figures.get("published", ""),
        figures.get("events", ""),
        named or "none",
        f"{row['duration_s']:.0f} s",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _facts(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a fault counted, as name and value: shared counts in one item, then those of this fault."""
    every = {"published", "recorded", "events", "pulled", "blocks", "rejects", "holes", "check", "sessions"}
    every |= {"entries", "mempool", "starts", "failed", "said", "entries without fee"}
    figures = row.get("figures", {})
    own = [(name, _plain(str(value))) for name, value in figures.items() if name not in every and value]
    if "sessions" not in figures:
        return own
    shared = ", ".join(str(figures[name]) for name in ("sessions", "pulled", "blocks", "rejects"))
    return [("sessions, pulled events, blocks, rejects", shared), *own]


def _plain(text: str) -> str:
    """Return text that is safe in a table cell, with paths cut to their last part."""
    text = re.sub(r"(?:/[\w.=-]+)+/", "", text)
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")[:SAID_CHARACTERS]
