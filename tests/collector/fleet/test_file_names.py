"""A file of a merged dataset has a name of its own, and what a killed merge left is removed."""

from typing import Any

import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_TXS
from collector.fleet.merge import FLEET_FILE
from tests.collector.fleet.test_merge import Fleet, fleet, rows_of

__all__ = ["fleet"]


@pytest.mark.parametrize("is_old_left", [True, False], ids=["both", "new alone"])
def test_a_kill_before_the_list_is_saved_is_mended_by_the_next_run(
    fleet: Fleet, *, is_old_left: bool
) -> None:
    """The new file has a name of its own; the next run removes it when it has made its unit again."""
    merged = fleet.merged()
    before = {path: path.read_bytes() for path in merged.paths(MEMPOOL_TXS)}
    listed = (merged.root / FLEET_FILE).read_text()
    _add_an_entry(fleet)
    rows = rows_of(fleet.merged())
    after = merged.paths(MEMPOOL_TXS)
    (gone,) = before.keys() - set(after)
    (new,) = set(after) - before.keys()
    (merged.root / FLEET_FILE).write_text(listed)
    if is_old_left:
        gone.write_bytes(before[gone])

    assert rows_of(fleet.merged()) == rows
    assert new not in merged.paths(MEMPOOL_TXS)
    assert len(merged.paths(MEMPOOL_TXS)) == len(before)


def test_no_row_is_away_while_a_killed_run_is_mended(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed run left goes in the step that puts its unit's new file in place."""
    merged = fleet.merged()
    rows = rows_of(merged)
    (merged.root / FLEET_FILE).unlink()
    found = []
    replace_lock = Dataset.replace_lock

    def spy(self: Dataset) -> Any:
        found.append(rows_of(Dataset(merged.root, "regtest")))
        return replace_lock(self)

    monkeypatch.setattr(Dataset, "replace_lock", spy)
    fleet.merged()

    assert len(found) >= 3
    assert all(each == rows for each in found)


def test_a_file_has_a_name_that_no_earlier_one_had(fleet: Fleet) -> None:
    """A copy in a store names a file with its SHA-256, and can be read while a merge is uploaded."""
    seen = {path.name for path in fleet.merged().paths(MEMPOOL_TXS)}
    for changed in (True, False):
        if changed:
            _add_an_entry(fleet)
        else:
            (added,) = (path for path in fleet.alice.paths(MEMPOOL_TXS) if path.name == "more.parquet")
            added.unlink()
        names = {path.name for path in fleet.merged().paths(MEMPOOL_TXS)}
        assert len(names - seen) == 1
        seen |= names


def _add_an_entry(fleet: Fleet) -> None:
    """Let Alice store one more entry in a file of its own."""
    entry = {name: value for name, value in fleet.alice.read(MEMPOOL_TXS).to_pylist()[0].items() if value}
    fleet.alice.write(MEMPOOL_TXS, [entry | {"txid": b"m" * 32}], stem="more")
