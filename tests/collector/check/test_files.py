"""Test that a file that is damaged, or not of its contract, is found by the checks of files."""

from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from collector.check.files import FileChecks
from collector.check.model import BREACH, NOTE
from collector.dataset.query import query_engine
from collector.dataset.schema import BLOCKS, MEMPOOL_EVENTS
from tests.collector.check.made_dataset import make_rows, write
from tests.collector.check.test_check import breaches, results

FOOTER_TAIL_BYTES = 8  # behind a footer: its length and a mark
EVERY = 29  # so many bytes of a footer lie between two that are flipped


def damage(path: Path, at: int, bits: int = 16) -> None:
    """Flip bits of the byte at position `at` of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= bits
    path.write_bytes(content)


def footer_of(content: bytes) -> range:
    """Return the positions of the footer's bytes in the content of a Parquet file."""
    end = len(content) - FOOTER_TAIL_BYTES
    return range(end - int.from_bytes(content[end:][:4], "little"), end)


def rewrite(path: Path, rows: pa.Table) -> None:
    """Replace the rows of a file."""
    path.unlink()
    pq.write_table(rows, path)


def test_a_flipped_bit_is_found_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    """A flipped bit is found even where values still decode; a truncated file is found too."""
    dataset = write(tmp_path / "d", make_rows())
    (path,) = dataset.paths(BLOCKS)
    column = pq.read_metadata(path).row_group(0).column(0)
    damage(path, column.data_page_offset + column.total_compressed_size - 2)
    assert path.name in breaches(dataset)["files"]
    path.write_bytes(path.read_bytes()[:-20])
    assert path.name in breaches(dataset)["files"]


@pytest.mark.parametrize("bit", [0, 62])  # another moment; none at all
def test_a_flipped_bit_of_a_footer_is_found_by_its_rows(tmp_path: Path, bit: int) -> None:
    """A footer has no checksum, so it is compared with the rows, because readers rely on it."""
    dataset = write(tmp_path / "d", make_rows())
    (path,) = dataset.paths(MEMPOOL_EVENTS)
    greatest: int = pc.max(dataset.read(MEMPOOL_EVENTS)["received_at"]).value
    damage(path, path.read_bytes().rindex(greatest.to_bytes(8, "little")) + bit // 8, 1 << bit % 8)
    pq.read_metadata(path)
    assert {name: what.partition(": ")[2] for name, what in breaches(dataset).items()} == {
        "footers": "the bounds of received_at in its footer are not those of its rows"
    }


def answers(connection: duckdb.DuckDBPyConnection, path: Path) -> list[object]:
    """Return all rows of a file, and answers that DuckDB may compute from the footer alone."""
    bounds = [f"min({name})::VARCHAR, max({name})::VARCHAR" for name in BLOCKS.arrow.names]
    rows = f"FROM read_parquet('{path}', hive_partitioning = false)"
    asked = ("COLUMNS(*)::VARCHAR", "count(*)", *bounds)
    return [connection.execute(f"SELECT {what} {rows}").fetchall() for what in asked]


def test_no_flipped_bit_of_a_footer_ends_the_check_or_changes_an_answer(tmp_path: Path) -> None:
    """A footer with a flipped bit is a breach, or DuckDB still gives the same answers."""
    (path,) = write(tmp_path / "d", make_rows()).paths(BLOCKS)
    whole = path.read_bytes()
    n_passed = n_found = 0
    with query_engine(tmp_path) as connection:
        truth = answers(connection, path)
        for at in footer_of(whole)[::EVERY]:
            damage(path, at, 1 << at % 8)
            checks = FileChecks(connection)
            checks.check_file(BLOCKS, path)
            if BREACH in {result.status for result in checks.results}:
                n_found += 1
            else:
                n_passed += 1  # it was in the text of a column
                assert answers(connection, path) == truth
            path.write_bytes(whole)
    assert n_found > n_passed > 0


def test_a_footer_that_tells_another_number_of_rows_is_found(tmp_path: Path) -> None:
    """A wrong number of rows in the footer is a breach, though each row group is right."""
    (path,) = write(tmp_path / "d", make_rows()).paths(MEMPOOL_EVENTS)
    whole = path.read_bytes()
    told = []
    with query_engine(tmp_path) as connection:
        for at in footer_of(whole):
            path.write_bytes(whole)
            damage(path, at, 2)
            with suppress(pa.ArrowException, OSError, UnicodeDecodeError):
                if pq.read_metadata(path).num_rows != 7:
                    checks = FileChecks(connection)
                    checks.check_file(MEMPOOL_EVENTS, path)
                    told += [finding.what for finding in checks.footers.findings]
    assert [what.partition(": ")[2] for what in told] == ["its footer says 6 rows in all, there are 7"]


def test_a_file_of_another_form_is_named_and_no_breach(tmp_path: Path) -> None:
    """Another compression or size of row groups is a note, because no answer changes."""
    dataset = write(tmp_path / "d", make_rows())
    (path,) = dataset.paths(MEMPOOL_EVENTS)
    rewrite(path, dataset.read(MEMPOOL_EVENTS))
    footers = results(dataset)["footers"]
    assert (footers.status, footers.n_found) == (NOTE, 1)
    assert "SNAPPY" in footers.findings[0].what


def test_files_out_of_order_or_in_the_wrong_folder_are_found(tmp_path: Path) -> None:
    """Rows must be sorted, also across row groups, and be in the folder of their day."""
    dataset = write(tmp_path / "d", make_rows())
    (path,) = dataset.paths(MEMPOOL_EVENTS)
    rows = dataset.read(MEMPOOL_EVENTS)
    path.unlink()
    pq.write_table(rows.take([3, 4, 5, 6, 0, 1, 2]), path, row_group_size=4)
    assert set(breaches(dataset)) == {"order"}
    rewrite(path, rows)
    assert breaches(dataset) == {}
    path.parent.rename(path.parent.with_name("date=2024-10-05"))
    assert set(breaches(dataset)) == {"folders"}


def test_an_older_file_may_lack_a_column_that_may_be_null_and_no_other(tmp_path: Path) -> None:
    """Only a nullable column may be missing; types and metadata must not differ."""
    dataset = write(tmp_path / "d", make_rows())
    (path,) = dataset.paths(BLOCKS)
    rows = dataset.read(BLOCKS)
    rewrite(path, rows.drop_columns(["witness_commitment"]))
    assert breaches(dataset) == {}
    rewrite(path, rows.drop_columns(["nonce"]))
    assert "nonce is missing" in breaches(dataset)["schema"]
    rewrite(path, rows.set_column(1, "height", rows["height"].cast(pa.int64())))
    assert "height is int64" in breaches(dataset)["schema"]
    rewrite(path, rows.append_column("new", rows["nonce"]))
    assert "new" in breaches(dataset)["schema"]
    rewrite(path, rows.replace_schema_metadata({"table": "blocks"}))
    assert "format" in breaches(dataset)["schema"]


def test_a_value_outside_its_set_is_found(tmp_path: Path) -> None:
    """A value outside a closed set is a breach; the test writes it past the writer, which refuses it."""
    dataset = write(tmp_path / "d", make_rows())
    (path,) = dataset.paths(BLOCKS)
    rows = dataset.read(BLOCKS)
    column = rows.column_names.index("source")
    rewrite(path, rows.set_column(column, rows.schema.field(column), pa.array(["fax"] * len(rows))))
    assert "fax" in breaches(dataset)["values"]
