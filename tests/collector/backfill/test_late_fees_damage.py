"""A stored file that cannot be read keeps fees from being filled, and is named."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.backfill.late_fees import fill_fees
from collector.backfill.store import WorkResult
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS, Table
from collector.errors import DatasetError
from tests.collector.compaction.made_files import block, transaction


@pytest.mark.parametrize("table", [BLOCKS, TRANSACTIONS], ids=lambda table: table.name)
def test_a_damaged_file_is_named(tmp_path: Path, table: Table) -> None:
    """The error is one that the command tells, and the file stays as it is."""

    def store(with_fees: Dataset) -> Iterator[WorkResult]:
        with_fees.write(TRANSACTIONS, [transaction(7, 0)], stem="t")
        with_fees.write(BLOCKS, [block(7, fees_sat=5)], stem="b")
        yield WorkResult()

    dataset = Dataset.open(tmp_path / "dataset", "main", create=True)
    dataset.write(TRANSACTIONS, [transaction(7, 0)], stem="t")
    dataset.write(BLOCKS, [block(7, fees_sat=None)], stem="b")
    path = dataset.paths(table)[0]
    path.write_bytes(path.read_bytes()[:-40])
    damaged = path.read_bytes()

    with pytest.raises(DatasetError, match=re.escape(str(path)) + " cannot be read"):
        fill_fees(dataset, store)
    assert path.read_bytes() == damaged
