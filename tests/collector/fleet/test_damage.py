"""A file of a member that cannot be read is named, and no merged dataset is left behind."""

import re
from pathlib import Path

import pytest

from collector.dataset.schema import BLOCK_ARRIVALS, COVERAGE, MEMPOOL_TXS, Table
from collector.errors import DatasetError
from tests.collector.fleet.test_merge import BEGIN_US, SESSION, Fleet, _arrival


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "other"])
@pytest.mark.parametrize("table", [MEMPOOL_TXS, BLOCK_ARRIVALS, COVERAGE], ids=lambda table: table.name)
def test_a_damaged_file_is_named(tmp_path: Path, table: Table, *, is_first: bool) -> None:
    """Each table from which clocks are compared may be damaged, in either member."""
    fleet = Fleet(tmp_path, 1)
    fleet.day(0, 30)
    dataset = fleet.alice if is_first else fleet.bob
    dataset.write(BLOCK_ARRIVALS, [_arrival()], stem="a")
    interval = {"node": "main", "session": SESSION, "topic": "rawtx", "n_messages": 0}
    interval |= {"from_at": BEGIN_US, "to_at": BEGIN_US + 1, "end_reason": "shutdown"}
    dataset.write(COVERAGE, [interval], stem="c")
    path = dataset.paths(table)[0]
    path.write_bytes(path.read_bytes()[:-40])

    with pytest.raises(DatasetError, match=re.escape(str(path)) + " cannot be read .* move it out"):
        fleet.merged()
    assert not (tmp_path / "merged").exists()
