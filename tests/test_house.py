"""The rules of the house that no linter knows: import direction, sizes, documented commands, current docs."""

import ast
import graphlib
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("collector", "analysis", "gpuhash")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SOURCES = MODULES + sorted((ROOT / "tests").rglob("*.py"))
MAX_MODULE_LINES = 600  # 400 is advice: a file holds one concept whole
MAX_FUNCTION_LINES = 50
MAX_SQL_LINES = 450  # 300 is advice
# Most lines of a guide: what is generated or measured has a file of its own.
GUIDES = {"analysis/README.md": 250, "collector/README.md": 300}

# Which room may import which. A room is a folder of a package, or a name for some of its files at the top.
# An arrow that does not stand here is a mistake, and so is one that stands here and that no import needs.
TOP_FILES = {
    "collector": {
        "base": {
            *("backoff", "bounded_http", "child_processes", "clock", "config", "errors", "log", "loopback"),
            *("importing", "standard_streams", "terminal", "unneeded"),
        },
        "cli": {"cli"},
    },
    "analysis": {"base": {"errors"}, "cli": {"cli", "terminal_summary"}},
    "gpuhash": {"cli": {"cli"}},
}
ROOMS = {
    "collector.base": "",
    "collector.dataset": "collector.base",
    "collector.receive": "collector.base",
    "collector.codec": "collector.base collector.dataset gpuhash.core",
    "collector.node": "collector.base collector.dataset",
    "collector.journal": "collector.base collector.dataset collector.receive",
    "collector.blocks": "collector.base collector.dataset collector.codec collector.node collector.journal",
    "collector.mempool": "collector.base collector.dataset collector.codec collector.node collector.journal "
    "collector.blocks",
    "collector.monitor": "collector.base collector.dataset collector.receive",
    "collector.compaction": "collector.base collector.dataset collector.journal collector.upload",
    "collector.service": "collector.base collector.dataset collector.receive collector.codec collector.node "
    "collector.journal collector.blocks collector.mempool collector.monitor collector.compaction "
    "collector.upload gpuhash.core",
    "collector.backfill": "collector.base collector.dataset collector.codec collector.node "
    "collector.journal collector.compaction collector.upload gpuhash.core",
    "collector.check": "collector.base collector.dataset collector.receive collector.codec collector.journal "
    "gpuhash.core",
    "collector.status": "collector.base collector.dataset collector.journal collector.check",
    "collector.external": "collector.base collector.dataset gpuhash.core",
    "collector.fetch": "collector.base collector.dataset collector.external",
    "collector.fleet": "collector.base collector.dataset collector.compaction",
    "collector.catalog": "collector.base collector.dataset",
    "collector.upload": "collector.base collector.dataset",
    "collector.regtest": "collector.base collector.dataset collector.node gpuhash.core",
    "collector.cli": "collector.base collector.dataset collector.node collector.journal collector.service "
    "collector.monitor collector.backfill collector.catalog collector.check collector.compaction "
    "collector.external collector.fetch collector.fleet collector.regtest collector.status collector.upload "
    "gpuhash.core",
    "analysis.base": "",
    "analysis.stats": "",
    "analysis.attribution": "analysis.base",
    "analysis.core": "analysis.base analysis.stats analysis.attribution collector.base collector.dataset",
    "analysis.replication": "analysis.base analysis.stats analysis.attribution analysis.core "
    "collector.dataset",
    "analysis.report": "analysis.base analysis.stats analysis.core collector.dataset",
    "analysis.serve": "analysis.base analysis.attribution analysis.core analysis.report collector.base "
    "collector.dataset",
    "analysis.release": "analysis.base analysis.attribution analysis.core collector.dataset",
    "analysis.warehouse": "analysis.base analysis.stats analysis.attribution analysis.core collector.dataset",
    "analysis.cli": "analysis.base analysis.attribution analysis.core analysis.replication analysis.release "
    "analysis.report analysis.serve analysis.warehouse collector.base collector.dataset gpuhash.core",
    "gpuhash.core": "",
    "gpuhash.measure": "gpuhash.core",
    "gpuhash.cli": "gpuhash.core gpuhash.measure",
}
COMMANDS = {"collector": "pool-collector", "analysis": "pool-analysis", "gpuhash": "gpuhash"}


def name(path: Path) -> str:
    """Name a file from the top folder, as test ids and messages show it."""
    return str(path.relative_to(ROOT))


def imported(tree: ast.AST) -> set[str]:
    """Every module that a tree imports, by its full name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(module: str) -> str:
    """Return the room of a module, given by its full name: `collector.node.rpc` is in `collector.node`."""
    package, *inside = module.split(".")
    if not inside:
        return f"{package}.core" if package == "gpuhash" else package
    if (ROOT / package / inside[0]).is_dir():
        return f"{package}.{inside[0]}"
    rooms = (room for room, files in TOP_FILES[package].items() if inside[0] in files)
    return f"{package}.{next(rooms, 'core')}"


def arrows() -> dict[tuple[str, str], str]:
    """Return the arrows between rooms, and for each a file that draws it."""
    known = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in MODULES
    }
    drawn = {}
    for path in MODULES:
        here = room(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        if path.name == "__main__.py":
            continue
        for module in imported(ast.parse(path.read_text())) & known:
            # `from package import module` names both; the package alone is no room.
            if module not in PACKAGES or module == "gpuhash":
                drawn[here, room(module)] = name(path)
    return {arrow: path for arrow, path in drawn.items() if arrow[0] != arrow[1] and arrow[0] not in PACKAGES}


def test_rooms_import_only_what_the_table_allows() -> None:
    """No arrow between two rooms that the table does not name, and none in the table that is not needed."""
    allowed = {(here, there) for here, others in ROOMS.items() for there in others.split()}
    found = arrows()
    assert {arrow: path for arrow, path in found.items() if arrow not in allowed} == {}
    assert allowed - found.keys() == set()


def test_no_rooms_import_each_other_in_a_circle() -> None:
    """The rooms can be put in an order in which each imports only earlier ones."""
    rooms = {here: set(others.split()) for here, others in ROOMS.items()}
    assert list(graphlib.TopologicalSorter(rooms).static_order())


def test_the_import_rule_notices_a_breach() -> None:
    """The names that the rule reads from a module are those that the module imports."""
    source = "import collector.node.rpc\nfrom collector.dataset import schema\nfrom gpuhash.cpu import x"
    tree = ast.parse(source)

    assert {"collector.node.rpc", "collector.dataset.schema", "gpuhash.cpu"} <= imported(tree)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_modules_and_functions_stay_small(path: Path) -> None:
    """No module above 600 lines, no function above 50."""
    text = path.read_text()
    assert text.count("\n") <= MAX_MODULE_LINES, f"{name(path)} is too long: split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{name(path)}: {node.name} has {lines} lines"


@pytest.mark.parametrize("path", sorted((ROOT / "analysis" / "sql").rglob("*.sql")), ids=name)
def test_sql_files_stay_small(path: Path) -> None:
    """No SQL file has more than 450 lines."""
    assert path.read_text().count("\n") <= MAX_SQL_LINES, f"{name(path)} is too long: split it"


@pytest.mark.parametrize(("guide", "most"), GUIDES.items())
def test_guides_stay_short(guide: str, most: int) -> None:
    """A guide can be read in one sitting."""
    assert (ROOT / guide).read_text().count("\n") <= most, f"{guide} has more than {most} lines"


def test_every_lint_exception_has_a_reason() -> None:
    """Each ignored rule in pyproject.toml, and each noqa, says why on its line."""
    text = (ROOT / "pyproject.toml").read_text()
    bare = [line for line in text.splitlines() if re.match(r'\s+"[A-Z]+[0-9]*",?\s*$', line)]
    for path in SOURCES:
        lines = path.read_text().splitlines()
        bare += [
            f"{name(path)}: {line.strip()}" for line in lines if re.search(r"# noqa: [A-Z0-9, ]+$", line)
        ]
    assert bare == []


def test_the_lock_names_no_index_and_hashes_everything() -> None:
    """Anybody's own index serves the pinned files, and only those files."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert pins
    assert all(re.match(r"[a-z0-9._-]+(\[[a-z0-9,-]+\])?==\S+ ", pin) for pin in pins)
    assert all(line.lstrip().startswith("--hash=sha256:") for line in lines if line.startswith(" "))


def test_the_lock_covers_every_dependency() -> None:
    """What pyproject.toml asks for is pinned."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    lock = (ROOT / "requirements.lock").read_text()
    for requirement in wanted:
        package = re.split(r"[\[<>=;]", requirement)[0]
        assert re.search(rf"^{re.escape(package)}==", lock, re.MULTILINE), f"{package}: run make lock"


def test_dependencies_are_imported_and_imports_are_declared() -> None:
    """Each import of a package is of a declared dependency, and each dependency is imported."""
    modules = {module.split(".")[0] for path in MODULES for module in imported(ast.parse(path.read_text()))}
    foreign = modules - set(sys.stdlib_module_names) - set(PACKAGES)
    distributions = importlib.metadata.packages_distributions()
    used = {distributions[module][0].lower().replace("_", "-") for module in foreign}
    used |= {"pandas", "pytz"}  # DuckDB imports them itself, for DataFrames and for times with a zone
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[\[<>=;]", requirement)[0] for requirement in project["dependencies"]}
    assert used == declared


@pytest.mark.parametrize("package", PACKAGES)
def test_every_command_is_documented(package: str) -> None:
    """Each verb of a package's command has help and stands in the package's README."""
    group = typer.main.get_command(importlib.import_module(f"{package}.cli").app)
    readme = (ROOT / package / "README.md").read_text()
    verbs = group.list_commands(None)
    assert verbs
    for verb in verbs:
        assert group.get_command(None, verb).help, f"{COMMANDS[package]} {verb} has no help"
        assert f"{COMMANDS[package]} {verb}" in readme, (
            f"{package}/README.md lacks {COMMANDS[package]} {verb}"
        )


def test_generated_parts_of_the_docs_are_current() -> None:
    """`make docs` would change nothing."""
    markdown = [path for path in ROOT.rglob("*.md") if not {".venv", "node_modules"} & set(path.parts)]
    files = [*markdown, ROOT / "collector" / "dataset" / "rows.py"]
    with_parts = [name(path) for path in files if "[[[cog" in path.read_text()]
    assert with_parts
    result = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "-p", "import tests.cog_parts as parts", *with_parts],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"run make docs\n{result.stdout}{result.stderr}"
