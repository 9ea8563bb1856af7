"""Test that no row stops the journal: one that does not fit its table becomes a reject, others are sealed."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from collector.dataset.open import Dataset
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import MEMPOOL_EVENTS, REJECTS, TABLES, TRANSACTIONS, Column, Table
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.journal.segment import Segment
from collector.receive.records import Message
from tests.collector.journal.journal_files import message, row, sealed, segments
from tests.fuzz.targets import IN_MEMORY, rows_of, sealed_rows

TOO_LARGE = 1 << 63
TODAY_US = 1_790_000_000_000_000


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


def value_of(column: Column) -> Any:
    """Return a value that the column can hold."""
    if column.values:
        return [column.values[0]] if pa.types.is_list(column.type) else column.values[0]
    if pa.types.is_timestamp(column.type):
        return TODAY_US // (1 if column.type.unit == "us" else 1_000_000)
    if pa.types.is_fixed_size_binary(column.type):
        return bytes(column.type.byte_width)
    by_type = {"string": "x", "binary": b"", "bool": True}
    return [] if pa.types.is_list(column.type) else by_type.get(str(column.type), 1)


def wrong_values(column: Column) -> Iterator[Any]:
    """Return values that the column cannot hold."""
    kind = column.type
    if pa.types.is_integer(kind):
        yield from (TOO_LARGE, -TOO_LARGE - 1, 1 << (kind.bit_width - 1), "one")
    if pa.types.is_timestamp(kind):
        yield from (TOO_LARGE, TOO_LARGE - 1, -TOO_LARGE)
    if pa.types.is_string(kind):
        yield from ("a lone surrogate: \ud800", 7)
    if pa.types.is_fixed_size_binary(kind):
        yield from (bytes(kind.byte_width - 1), bytes(kind.byte_width + 1))
    if pa.types.is_list(kind):
        yield from ([TOO_LARGE], [{"value_sat": TOO_LARGE, "n_tx": TOO_LARGE}], 5)
    if column.values:
        yield "of no closed set"
    if not column.nullable:
        yield None


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_wrong_value_costs_one_row(table: Table, tmp_path: Path, dataset: Dataset) -> None:
    """A row with one wrong value, in any column, becomes a reject; good rows beside it are sealed."""
    good = {column.name: value_of(column) for column in table.columns}
    wrong = [good | {column.name: value} for column in table.columns for value in wrong_values(column)]
    rows = [good, *(each for row in wrong for each in (row, good))]
    journal = Journal(tmp_path / "journal")
    journal.recover(dataset)
    with capture_logs() as logs:
        journal.append(table.name, rows)
        journal.flush()
    journal.close()  # as a kill does: the next start seals
    with Journal(tmp_path / "journal") as journal:
        journal.recover(dataset)
        journal.seal(dataset)

    n_rejects = dataset.read(REJECTS).num_rows
    if table.name == "coverage":  # an unfinished session claims nothing: see `test_recovery_claims`
        assert n_rejects == len(wrong)
    elif table.name == "rejects":
        assert n_rejects == len(rows)
    else:
        assert dataset.read(table).num_rows == len(rows) - len(wrong)
        assert n_rejects == len(wrong)
    kept = dataset.read(REJECTS).filter(pa.compute.field("topic") == table.name).to_pylist()
    assert len(kept) == len(wrong)
    assert all(set(json.loads(each["body"])) == set(good) for each in kept)
    assert [entry["event"] for entry in logs] == ["rows.refused"]


def test_the_message_of_a_refused_event_is_kept_whole(tmp_path: Path, dataset: Dataset) -> None:
    """When an event's row does not fit, the reject keeps its message; the next start does not return it."""
    journal = Journal(tmp_path / "journal")
    journal.recover(dataset)
    batches = Batches(journal)
    messages = [message(number) for number in range(50)]
    batch = batches.begin(messages)
    for each in messages:
        batch.add(
            "mempool_events", [row(each) | {"mempool_sequence": TOO_LARGE if each.sequence == 7 else 7}]
        )
    batches.commit()
    journal.close()

    with Journal(tmp_path / "journal") as journal:
        assert journal.recover(dataset) == []
        journal.seal(dataset)
    assert sealed(dataset) == [number for number in range(50) if number != 7]
    (kept,) = dataset.read(REJECTS).to_pylist()
    assert (kept["topic"], kept["sequence"], kept["body"]) == ("sequence", 7, messages[7].body)
    assert "mempool_events.mempool_sequence" in kept["reason"]


def test_one_row_of_an_arrow_batch_is_refused_alone(tmp_path: Path, dataset: Dataset) -> None:
    """An Arrow batch of rows is split down to the one row that does not fit."""
    good = {column.name: value_of(column) for column in TRANSACTIONS.columns}
    columns = {
        column.name: pa.array([good[column.name]] * 99, column.type) for column in TRANSACTIONS.columns
    }
    columns["output_types"] = pa.array([["nonstandard"]] * 60 + [["strange"]] + [[]] * 38)
    with Journal(tmp_path / "journal") as journal:
        journal.recover(dataset)
        journal.append("transactions", pa.RecordBatch.from_pydict(columns, schema=TRANSACTIONS.arrow))
        journal.seal(dataset)
    assert dataset.read(TRANSACTIONS).num_rows == 98
    (kept,) = dataset.read(REJECTS).to_pylist()
    assert json.loads(kept["body"])["output_types"] == ["strange"]


def test_a_segment_with_rows_that_cannot_be_sealed_is_sealed_without_them(
    tmp_path: Path, dataset: Dataset
) -> None:
    """A journalled row of an earlier version that the dataset refuses does not stop the segment's seal."""
    journal = Journal(tmp_path / "journal")
    journal.recover(dataset)
    journal.append("mempool_events", [row(message(number)) for number in range(9)])
    journal.flush()
    journal.close()
    (path,) = segments(tmp_path / "journal")
    (batch,) = Segment(path).read().batches["mempool_events"]
    times = pa.array([*range(8), TOO_LARGE - 1], MEMPOOL_EVENTS.arrow.field("received_at").type)
    at = batch.schema.get_field_index("received_at")
    segment = Segment.create(tmp_path / "journal", 2)
    segment.write({"mempool_events": batch.set_column(at, "received_at", times)})
    segment.close()
    path.unlink()

    for _ in range(2):
        with Journal(tmp_path / "journal") as journal:
            journal.recover(dataset)
            journal.seal(dataset)
    assert sealed(dataset) == list(range(8))
    assert not segments(tmp_path / "journal")
    (kept,) = dataset.read(REJECTS).to_pylist()
    assert "received_at" in kept["reason"]


def test_a_sound_batch_is_made_once(tmp_path: Path) -> None:
    """A batch without a refused row is not split."""
    rows = [row(message(number)) for number in range(100)]
    assert to_batch(MEMPOOL_EVENTS, rows).num_rows == 100
    with Journal(tmp_path / "journal") as journal:
        journal.recover(Dataset.open(tmp_path / "dataset", "regtest", create=True))
        journal.append("mempool_events", rows)
        with capture_logs() as logs:
            journal.flush()
    assert logs == []


BODIES = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda txid, letter, number: txid + letter + number.to_bytes(8, "little"),
        st.binary(min_size=32, max_size=32),
        st.sampled_from([b"A", b"R", b"C", b"Z"]),
        st.one_of(st.integers(TOO_LARGE - 2, (1 << 64) - 1), st.integers(0, 9)),
    ),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["sequence", "rawtx", "rawblock"]), BODIES), max_size=12))
def test_whatever_is_received_is_in_the_sealed_files(received: list[tuple[str, bytes]]) -> None:
    """Each message is a row or a reject after a kill before its rows were made; a second start adds none."""
    messages = [
        Message("n", "s", topic, number, (TODAY_US + number) * 1000, body)
        for number, (topic, body) in enumerate(received)
    ]
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        n_rows = sealed_rows(Path(folder), messages)
    expected: dict[str, int] = {}
    for each in messages:
        for table, rows in rows_of(each).items():
            expected[table] = expected.get(table, 0) + len(rows)
    assert n_rows == expected
