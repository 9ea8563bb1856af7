"""Test that a wheel is whole: what it carries, and that it works where there is no checkout.

`make wheel` installs one with its dependencies and runs the demo; that takes minutes and belongs to no test.
"""

import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.wheel import ROOT, build_wheel

PACKAGES = ("collector", "analysis", "gpuhash")
# What an installed product reads from its own folders, and where those are.
READ = """
from pathlib import Path
import analysis, collector, gpuhash
from analysis.attribution.rules import default_rules_dir, load_rules
from analysis.catalog import load_catalog
from collector.fetch.data_sets import load_lists
from collector.regtest.scenario import load_scenario

for package in (analysis, collector, gpuhash):
    print(Path(package.__file__).parents[1])
assert load_rules(default_rules_dir()).pools and load_lists([])
print(default_rules_dir(), load_scenario("demo").name, len(load_catalog().layer("marts")), sep="\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout, unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build_wheel(folder)) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def names(root: Path, *folders: str) -> set[str]:
    """Return the files below some folders of a root, without what Python and numba write there."""
    return {
        str(path.relative_to(root))
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_a_wheel_has_the_packages_and_the_rules_and_nothing_else(wheel: Path) -> None:
    """Every file of the three packages is in it, and the pool rules; tests and other data are not."""
    rules = {path.replace("data/pools", "analysis/pools") for path in names(ROOT, "data/pools")}
    found = names(wheel, ".")

    assert {name for name in found if ".dist-info/" not in name} == names(ROOT, *PACKAGES) | rules


def test_a_wheel_names_its_commands_and_its_licence(wheel: Path) -> None:
    """Each entry point leads to a function of the wheel."""
    (information,) = wheel.glob("*.dist-info")
    entry_points = ConfigParser()
    entry_points.read(information / "entry_points.txt")

    commands = dict(entry_points["console_scripts"])
    assert set(commands) == {"pool-collector", "pool-analysis", "gpuhash"}
    for module, _, function in (target.partition(":") for target in commands.values()):
        source = (wheel / module.replace(".", "/")).with_suffix(".py").read_text()
        assert f"def {function}(" in source or f"import {function}" in source
    assert (information / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_packages_of_a_wheel_find_their_own_files(wheel: Path, tmp_path: Path) -> None:
    """In an empty folder, without the checkout, the models, the rules and the demo's scenario are read."""
    done = subprocess.run(
        [sys.executable, "-c", READ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *folders, rules, scenario, n_marts = done.stdout.splitlines()
    assert set(folders) == {str(wheel)}
    assert rules == str(wheel / "analysis" / "pools")
    assert scenario == "demo"
    assert int(n_marts) == len(list((ROOT / "analysis" / "sql" / "marts").glob("*.sql")))
