"""Test that `diff-rules` shows which blocks move from one pool to another when the rules change."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.attribution.rules import RuleSet, load_rules
from analysis.errors import DatasetError
from analysis.rule_diff import diff_rules
from tests.analysis.world import write_world

RULES = Path(__file__).parent / "cases" / "pools"
BLOCKS = [
    {"block_hash": "a1", "height": 1, "coinbase_script": "/Alpha/"},
    {"block_hash": "a2", "prev_hash": "a1", "height": 2, "coinbase_script": "/Alpha/"},
    {"block_hash": "b3", "prev_hash": "a2", "height": 3, "coinbase_script": "/Beta/"},
    {"block_hash": "d4", "prev_hash": "b3", "height": 4, "coinbase_script": "/Delta/"},
    {"block_hash": "u5", "prev_hash": "d4", "height": 5, "coinbase_script": "?"},
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Write a dataset of five blocks."""
    return write_world(tmp_path / "dataset", {"blocks": BLOCKS})


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Copy the rules and change them: Alpha ends at height 1, Beta loses its tag, Delta is new."""
    folder = tmp_path / "changed"
    shutil.copytree(RULES, folder)
    alpha = (folder / "alpha.toml").read_text()
    (folder / "alpha.toml").write_text(alpha.replace('tag = "/Alpha/"', 'tag = "/Alpha/"\nto_height = 1'))
    (folder / "beta.toml").write_text(
        (folder / "beta.toml").read_text().replace('tag = "/Beta/"', 'tag = "/Beta2/"')
    )
    (folder / "delta.toml").write_text('name = "Delta"\n[[rules]]\ntag = "/Delta/"\nsource = "test"\n')
    return folder


@pytest.fixture
def rules() -> RuleSet:
    """Load the pool rules of the mart cases."""
    return load_rules(RULES)


def test_moved_blocks_are_shown_with_the_rules_that_moved_them(
    dataset: Path, rules: RuleSet, changed: Path
) -> None:
    """Each moved block is counted with the rules that decided before and after.

    A rule with new height bounds is both removed and added.
    """
    found = diff_rules(dataset, rules, load_rules(changed))

    assert found.changes == [
        ("alpha", "unknown", 1, 2, 2, "alpha:tag:/Alpha/", None),
        ("beta", "unknown", 1, 3, 3, "beta:tag:/Beta/", None),
        ("unknown", "delta", 1, 4, 4, None, "delta:tag:/Delta/"),
    ]
    assert (found.n_changed, found.n_blocks) == (3, 5)
    assert found.added_rules == ("alpha:tag:/Alpha/", "beta:tag:/Beta2/", "delta:tag:/Delta/")
    assert found.removed_rules == ("alpha:tag:/Alpha/", "beta:tag:/Beta/")
    assert found.before_hash == rules.hash != found.after_hash


def test_the_same_rules_change_nothing(dataset: Path, rules: RuleSet) -> None:
    """Equal rules give no changes, no added or removed rule, and one hash."""
    found = diff_rules(dataset, rules, rules)

    assert (found.changes, found.n_changed, found.added_rules, found.removed_rules) == ([], 0, (), ())
    assert found.before_hash == found.after_hash


def test_a_folder_that_is_no_dataset_is_named(tmp_path: Path, rules: RuleSet) -> None:
    """A folder that is no dataset raises the DatasetError that every reader of datasets raises."""
    with pytest.raises(DatasetError, match="there is no dataset"):
        diff_rules(tmp_path / "nowhere", rules, rules)


def test_the_command_prints_rows_and_a_summary(dataset: Path, changed: Path) -> None:
    """`diff-rules` writes rows to standard output in the given format, and a summary to standard error."""
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "analysis",
            "diff-rules",
            RULES,
            changed,
            "--dataset",
            dataset,
            "--format",
            "json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert [row["after_pool"] for row in json.loads(result.stdout)] == ["unknown", "unknown", "delta"]
    assert "blocks that change: 3 of 5;" in result.stderr
    assert "3 added, 2 removed" in result.stderr
