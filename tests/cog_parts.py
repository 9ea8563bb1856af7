"""Generated parts of the READMEs: `make docs` writes them, a house test checks them."""

import os
import subprocess
import sys
from pathlib import Path

import cog

from analysis.serve.app import description
from collector.config import NodeSettings, Settings
from collector.fetch.data_sets import load_lists

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


def data_sets() -> None:
    """Put a table of the public data sets here that `pool-collector fetch` has in its list."""
    cog.out(
        "| name | what | publisher | licence | size | checked by | compared |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for each in load_lists([]).values():
        how = "digest" if all(file.is_pinned or file.sums_url for file in each.file) else "read"
        name = f"`{each.name}`" + (" *" if each.history else "")
        cog.out(
            f"| {name} | {each.what} | [{each.publisher}]({each.homepage}) | {each.licence} | {each.size} "
            f"| {how} | {each.checked or ''} |\n"
        )
    cog.out("\n`make history` takes those with a star.\n")


def api() -> None:
    """Put the API here: each address with its parameters, and the forms of answers and problems."""
    document = description()
    for path, methods in document["paths"].items():
        asked = methods["get"]
        cog.out(f"## `{path}`\n\n{asked['summary']}.\n\n")
        if asked.get("parameters"):
            cog.out("| parameter | in | type | default | what |\n|---|---|---|---|---|\n")
        for each in asked.get("parameters", ()):
            schema = each["schema"]
            type_ = schema.get("type") or " or ".join(part["type"] for part in schema["anyOf"])
            default = "" if schema.get("default") is None else f"`{schema['default']}`"
            what = each.get("description", "") + ("; must be given" if each["required"] else "")
            cog.out(
                f"| `{each['name']}` | {each['in']} | {type_} | {default} | {what.removeprefix('; ')} |\n"
            )
        cog.out("\n" if asked.get("parameters") else "")
    cog.out("## Forms\n\n")
    for name in ("Answer", "Covered", "Problem"):
        cog.out(f"`{name}`\n\n| field | what |\n|---|---|\n")
        for field, schema in document["components"]["schemas"][name]["properties"].items():
            cog.out(f"| `{field}` | {schema['description']} |\n")
        cog.out("\n")


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
