"""Generated parts of the READMEs: `make docs` writes them, a house test checks them."""

import os
import subprocess
import sys
from pathlib import Path

import cog

from collector.config import NodeSettings, Settings

ROOT = Path(__file__).resolve().parent.parent
MODULES = {"pool-collector": "collector", "pool-analysis": "analysis", "gpuhash": "gpuhash"}


def command_help(command: str, *verbs: str) -> None:
    """Put the help text of a command here, as an 80-column terminal without colour shows it."""
    result = subprocess.run(
        [sys.executable, "-m", MODULES[command], *verbs, "--help"],
        env=os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
    )
    text = "\n".join(line.rstrip() for line in result.stdout.splitlines()).strip("\n")
    cog.out(f"```text\n$ {' '.join((command, *verbs))} --help\n{text}\n```\n")


def make_targets() -> None:
    """Put the targets of the Makefile here, as `make help` shows them."""
    result = subprocess.run(
        ["make", "--no-print-directory", "help"], capture_output=True, text=True, check=True
    )
    cog.out(f"```text\n{result.stdout.rstrip()}\n```\n")


def collector_settings() -> None:
    """Put a table of the settings of `pool-collector run` here."""
    cog.out("| setting | default | what |\n|---|---|---|\n")
    for prefix, model in (("", Settings), ("node.", NodeSettings)):
        for name, field in model.model_fields.items():
            if name == "node":
                continue
            default = field.get_default(call_default_factory=True, validated_data={})
            shown = "" if default in (None, {}) else f"`{default}`"
            cog.out(f"| `{prefix}{name}` | {shown} | {field.description} |\n")
