"""Each column that depends on a collector's clock is corrected with its times."""

from typing import Any

import pyarrow as pa
import pytest

from collector.dataset.schema import TABLES, Table
from collector.fleet.clocks import ClockOffset, MemberClock
from collector.fleet.merge import corrected

HOUR_US = 3_600_000_000
TABLES_WITH_OFFSET = [
    table for table in TABLES.values() if any(column.name == "clock_offset_us" for column in table.columns)
]


@pytest.mark.parametrize("table", TABLES_WITH_OFFSET, ids=lambda table: table.name)
def test_the_offset_from_the_host_is_that_of_the_corrected_clock(table: Table) -> None:
    """A clock that drifts is an hour ahead at two and two hours ahead at four; a null stays null."""
    clock = MemberClock(
        [ClockOffset(2 * HOUR_US, HOUR_US, 1, 9), ClockOffset(4 * HOUR_US, 2 * HOUR_US, 1, 9)]
    )
    at_us = [2 * HOUR_US, 3 * HOUR_US, 4 * HOUR_US]
    columns: dict[str, Any] = {
        column.name: pa.nulls(3, column.type) for column in table.columns if column.name != table.day_column
    }
    columns |= {
        "node": pa.array(["main"] * 3),
        str(table.day_column): pa.array(at_us),
        "clock_offset_us": pa.array([HOUR_US + 7, None, 2 * HOUR_US - 7]),
    }
    schema = pa.schema([field.with_nullable(nullable=True) for field in table.arrow])
    rows = pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)

    found = corrected(table, rows, "bob", clock)

    assert found["node"].to_pylist() == ["bob.main"] * 3
    assert found[table.day_column].cast(pa.int64()).to_pylist() == [HOUR_US, 3 * HOUR_US // 2, 2 * HOUR_US]
    assert found["clock_offset_us"].to_pylist() == [7, None, -7]


def test_two_tables_have_the_offset_from_the_host() -> None:
    """A table that is added later is corrected by the same rule."""
    assert {table.name for table in TABLES_WITH_OFFSET} == {"nodes", "mempool_stats"}
