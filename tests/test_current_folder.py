"""No command and no process of ours executes a file of the folder in which the user happens to stand."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhash.compiled import cache_folder
from tests.collector.backfill.made_files import write_files
from tests.collector.codec.made_blocks import solved_block

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(
    path for package in ("collector", "analysis", "gpuhash") for path in (ROOT / package).rglob("*.py")
)
TRAPS = ("numpy", "duckdb", "pyarrow", "pandas", "requests", "typer", "scipy", "socket", "selectors", "json")
TRAP = "import os, sys; os.close(os.open(os.environ['TRAP'], os.O_CREAT)); raise SystemExit('the trap ran')"
# What each command is called with, in this order, and the exit status that it has where there is no node.
CALLS: tuple[tuple[str, int], ...] = (
    ("pool-collector schema", 0),
    ("pool-collector fetch", 0),
    ("pool-collector import labels labels.csv --source me --licence CC0-1.0 --url https://example.org", 0),
    ("pool-collector backfill --blocks-dir blocks --workers 2 --dataset regtest", 0),
    ("pool-collector compact data/dataset", 0),
    ("pool-collector mend data/dataset", 0),
    ("pool-collector check data/dataset", 0),
    ("pool-collector status data/dataset", 0),
    ("pool-collector run --dry-run --datadir nowhere", 1),
    ("pool-analysis build --dataset data/dataset --database built.duckdb", 0),
    ("pool-analysis report --database built.duckdb --out report.html", 0),
    ("pool-analysis show pool_share --database built.duckdb", 0),
    ("pool-analysis list", 0),
    ("gpuhash check --messages 100 --backend cpu", 0),
)


def starts_python(node: ast.AST) -> bool:
    """Return whether a node is a list that begins with our own Python."""
    return isinstance(node, ast.List) and bool(node.elts) and ast.unparse(node.elts[0]) == "sys.executable"


def unguarded(source: str) -> list[str]:
    """Return the commands in a source that start Python without -P, which keeps the current folder out."""
    found = [node for node in ast.walk(ast.parse(source)) if starts_python(node)]
    return [ast.unparse(node) for node in found if "'-P'" not in ast.unparse(node)]


def test_every_python_that_we_start_is_isolated() -> None:
    """Each list that begins with sys.executable has -P; the rule notices one that has not."""
    breaches = {str(path.relative_to(ROOT)): unguarded(path.read_text()) for path in MODULES}

    assert {path: lines for path, lines in breaches.items() if lines} == {}
    assert unguarded("import sys\nrun([sys.executable, '-m', 'collector'])")


@pytest.mark.timeout(600)
def test_no_command_executes_a_file_of_the_current_folder(tmp_path: Path) -> None:
    """Modules that our imports name lie where the user stands: none runs, and each command does its work."""
    here = tmp_path / "here"
    here.mkdir()
    for name in TRAPS:
        (here / f"{name}.py").write_text(TRAP)
    (here / "labels.csv").write_text(
        "height,label\n" + "".join(f"{i},F2Pool\n" for i in range(600_000, 600_009))
    )
    write_files(here / "blocks", [[solved_block([], height=height) for height in (1, 2)]])
    environment = os.environ | {"TRAP": str(tmp_path / "trapped"), "HOME": str(tmp_path)}
    cache = cache_folder("gpuhash")
    if cache is not None:  # what is compiled already need not be compiled again for another home
        environment["NUMBA_CACHE_DIR"] = str(cache.parent.parent)
    environment.pop("PYTHONSAFEPATH", None)
    environment.pop("PYTHONPATH", None)

    for call, status in CALLS:
        program, *arguments = call.split()
        done = subprocess.run(
            [Path(sys.executable).parent / program, *arguments],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "the trap ran" not in done.stdout + done.stderr, call
        assert not (tmp_path / "trapped").exists(), call
        assert done.returncode == status, f"{call}\n{done.stdout}{done.stderr}"
