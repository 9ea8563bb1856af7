"""Test what is noted of the rows of a part."""

from pathlib import Path

from analysis.database import connect
from analysis.parts import write_part

TYPES = {"height": "INTEGER", "label": "VARCHAR", "total": "DECIMAL(38,0)"}
QUERY = "SELECT 7::INTEGER AS height, 'a' AS label, 9::DECIMAL(38,0) AS total"


def test_a_part_without_rows_is_described_as_if_it_were_read(tmp_path: Path) -> None:
    """Hashes and extent of no rows are the same whether they are known beforehand or computed."""
    with connect() as connection:
        known, computed = (
            write_part(
                connection, tmp_path, "a", {"types": str(types)}, f"{QUERY} LIMIT 0", types, ["height"]
            )
            for types in (TYPES, {})
        )

    assert known.n_rows == computed.n_rows == 0
    assert (known.columns, known.extent) == (computed.columns, computed.extent)
    assert list(known.columns) == list(TYPES)


def test_each_column_has_a_hash_of_its_values_in_their_order(tmp_path: Path) -> None:
    """A column whose rows changed places has another hash; the column beside it keeps its own."""
    pairs = [(7, 7), (7, 8), (8, 7)]
    with connect() as connection:
        one, *rest = [
            write_part(
                connection,
                tmp_path,
                "a",
                {"pair": str(pair)},
                f"SELECT unnest([{pair[0]}, {pair[1]}])::INTEGER AS height, 'a' label, 9::DECIMAL(38) total",
                TYPES,
                ["height"],
            )
            for pair in pairs
        ]

    assert [part.extent for part in (one, *rest)] == [
        {"height": [7, 7]},
        {"height": [7, 8]},
        {"height": [7, 8]},
    ]
    assert len({part.columns["height"] for part in (one, *rest)}) == 3
    assert len({(part.columns["label"], part.columns["total"]) for part in (one, *rest)}) == 1
