"""Every command that a Markdown file names exists, with the options that it is given there."""

import importlib
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"pool-collector": "collector.cli", "pool-analysis": "analysis.cli", "gpuhash": "gpuhash.cli"}
PAGES = [path for path in ROOT.rglob("*.md") if not {".venv", "node_modules"} & set(path.parts)]
CALL = re.compile(
    r"(?:^ *|\$ |bin/|&& )(pool-collector|pool-analysis|gpuhash) ([a-z][a-z-]*)([^`\n|#&;>]*)", re.MULTILINE
)
MAKE = re.compile(r"^ *make ([a-z]+)", re.MULTILINE)
PYTHON = re.compile(r"python3? (?:-P )?(?:-m ([\w.]+)|(\S+\.py))")
OPTION = re.compile(r"(?<=\s)--[a-z][a-z-]*")


def code(page: Path) -> str:
    """Return the code of a page: blocks between fences, and what stands between backquotes."""
    text = page.read_text()
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", text)])


def commands(program: str) -> dict[str, Any]:
    """Return the commands of a program by name."""
    group: Any = typer.main.get_command(importlib.import_module(PROGRAMS[program]).app)
    return dict(group.commands)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_calls_exists(page: Path) -> None:
    """Commands, their options, make targets, modules and scripts."""
    text = code(page)
    for program, verb, rest in CALL.findall(text):
        known = commands(program)
        assert verb in known, f"{page.name} names {program} {verb}"
        options = {option for parameter in known[verb].params for option in parameter.opts}
        options |= {option for parameter in known[verb].params for option in parameter.secondary_opts}
        given = set(OPTION.findall(rest)) - {"--help"}
        assert given <= options, f"{page.name} gives {program} {verb} {sorted(given - options)}"
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(MAKE.findall(text)) <= targets
    for module, script in PYTHON.findall(text):
        if module and module.split(".")[0] in {"collector", "analysis", "gpuhash", "tests"}:
            assert find_spec(module) is not None, f"{page.name} names {module}"
        if script.startswith("tests/"):
            assert (ROOT / script).exists(), f"{page.name} names {script}"
