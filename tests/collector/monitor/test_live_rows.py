"""Test the live stream: only rows that are in the journal, from any id on, bounded, with the state first."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests

from collector.dataset.open import Dataset
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.monitor import live_rows
from collector.monitor.health import Health
from collector.monitor.http import MAX_CONNECTIONS, MonitorServer
from collector.monitor.live_rows import COLUMNS, LiveRows
from collector.monitor.metrics import Metrics
from collector.regtest.ports import free_ports
from tests.collector.journal.journal_files import message

ARRIVAL = {
    "node": "alpha",
    "session": "s",
    "block_hash": b"\x01" + bytes(31),
    "event": "connected",
    "event_at": 1_700_000_000_000_000,
    "kind": "pushed",
    "height": 7,
}


def sent(live: LiveRows) -> list[tuple[str, dict[str, Any]]]:
    """Return table and columns of each row, as a reader of the server-sent events finds them."""
    fields = [dict(re.findall(r"(\w+): (.*)\n", row.message.decode())) for row in live.since(None)[0]]
    return [(each["event"], json.loads(each["data"])) for each in fields]


@pytest.fixture
def live() -> LiveRows:
    """Make an empty store of live rows."""
    return LiveRows()


@pytest.fixture
def server(tmp_path: Path, live: LiveRows) -> Iterator[MonitorServer]:
    """Serve the live rows of a node that is not followed yet."""
    metrics = Metrics(["alpha"])
    made = MonitorServer(f"127.0.0.1:{free_ports(1)[0]}", metrics, Health(metrics, {"alpha": tmp_path}), live)
    yield made
    made.close()


def events(
    server: MonitorServer, n_events: int, last_id: int | None = None
) -> list[tuple[str, int | None, Any]]:
    """Read so many events of the stream: kind, id and content of each."""
    headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
    found: list[tuple[str, int | None, Any]] = []
    url = f"http://127.0.0.1:{server.port}/events"
    with requests.get(url, headers=headers, stream=True, timeout=60) as answer:
        fields: dict[str, str] = {}
        for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
                continue
            if "event" in fields:
                row_id = int(fields["id"]) if "id" in fields else None
                found.append((fields["event"], row_id, json.loads(fields["data"])))
                if len(found) == n_events:
                    break
            fields = {}
    return found


def test_a_row_is_told_when_the_journal_has_it_and_not_before(tmp_path: Path, live: LiveRows) -> None:
    """A row in an open batch is not told; after the commit it is."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    with Journal(tmp_path / "journal") as journal:
        journal.recover(dataset)
        batches = Batches(journal, live)
        batch = batches.begin([message(1)])
        batch.n_pending_rows = 1
        batch.add("block_arrivals", [ARRIVAL])  # type: ignore[list-item]
        batches.commit()
        assert live.since(None) == ([], False)

        batch.n_pending_rows = 0
        batches.commit()
        assert [table for table, _ in sent(live)] == ["block_arrivals"]


def test_the_state_comes_first_and_rows_follow(server: MonitorServer, live: LiveRows) -> None:
    """The stream says at once that the node is not followed; a row that is committed later comes at once."""
    threading.Timer(0.2, live.take, ("block_arrivals", [ARRIVAL])).start()
    (state, _, said), (table, _, row) = events(server, 2)

    assert (state, said["ready"], table) == ("state", False, "block_arrivals")
    assert "not followed yet" in said["reasons"][0]
    assert (row["block_hash"], row["event_at"]) == ("00" * 31 + "01", "2023-11-14T22:13:20Z")


def test_a_reader_goes_on_from_its_last_id(server: MonitorServer, live: LiveRows) -> None:
    """With the id of the first row the second is told, and the first is not told again."""
    live.take("block_arrivals", [ARRIVAL | {"height": height} for height in (7, 8)])
    first = events(server, 2)[1]
    again = events(server, 2, last_id=first[1])[1]

    assert (first[2]["height"], again[2]["height"]) == (7, 8)


def test_a_reader_that_was_away_too_long_is_told_so(server: MonitorServer, live: LiveRows) -> None:
    """The number of rows kept is bounded, and what is gone is said."""
    assert live.since(None) == ([], False)
    live.take("block_arrivals", [ARRIVAL])
    last_id = live.since(None)[0][0].row_id
    live.take("block_arrivals", [ARRIVAL] * (live_rows.MAX_ROWS + 1))

    assert len(live.since(None)[0]) == live_rows.MAX_ROWS
    assert [kind for kind, _, _ in events(server, 3, last_id=last_id)] == [
        "state",
        "missed",
        "block_arrivals",
    ]


def test_a_reader_from_before_a_clock_that_was_ahead_is_told_so(
    server: MonitorServer, live: LiveRows
) -> None:
    """A reader whose last id is above every id gets all rows, and is told that it missed some."""
    live.take("block_arrivals", [ARRIVAL])
    last_id = live.since(None)[0][0].row_id + 10**12

    assert [kind for kind, _, _ in events(server, 3, last_id=last_id)] == [
        "state",
        "missed",
        "block_arrivals",
    ]


def test_a_block_is_compared_with_the_template_of_its_parent(live: LiveRows) -> None:
    """The newest template on the block's parent counts, though one on the block itself came before."""
    parent, found, a, b, c, coinbase = (bytes([number]) * 32 for number in range(6))
    for taken_at, prev_hash, txids in (
        (1, parent, [a]),
        (2, parent, [a, b]),
        (3, found, [c]),
        (4, found, []),
    ):
        template = {"node": "alpha", "taken_at": taken_at}
        live.take("templates", [template | {"prev_hash": prev_hash}])
        live.take("template_txs", [template | {"txid": txid} for txid in txids])
    live.take("blocks", pa.RecordBatch.from_pylist([{"block_hash": found, "prev_hash": parent, "height": 7}]))
    mined = [
        {"block_hash": found, "tx_index": index, "txid": txid} for index, txid in enumerate((coinbase, b, c))
    ]
    live.take("transactions", pa.RecordBatch.from_pylist(mined))
    live.take("transactions", pa.RecordBatch.from_pylist(mined))  # a block counts once

    told = [columns for table, columns in sent(live) if table == live_rows.MATCHES]
    assert told == [
        {
            "node": "alpha",
            "block_hash": found.hex(),
            "height": 7,
            "taken_at": "1970-01-01T00:00:00.000002Z",
            "n_promised": 2,
            "n_matched": 1,
            "n_extra": 1,
        }
    ]


def test_ends_without_a_loss_and_other_tables_are_passed_over(live: LiveRows) -> None:
    """A gap is told; a seal and transactions are not."""
    end = {"node": "alpha", "topic": "rawtx", "from_at": 1, "to_at": 2, "detail": None}
    live.take("coverage", [end | {"end_reason": reason} for reason in ("sealed", "gap", "shutdown")])
    live.take("mempool_events", [{"event": "A"}])

    assert [columns["end_reason"] for _, columns in sent(live)] == ["gap"]


def test_many_rows_wake_the_streams_once(live: LiveRows) -> None:
    """Until the streams are ready for the next wake-up, further rows call for none."""
    woken: list[int] = []
    live.wake_by(lambda: woken.append(len(woken)))
    live.take("block_arrivals", [ARRIVAL] * 3)
    live.take("block_arrivals", [ARRIVAL])
    assert len(woken) == 1

    live.rearm()
    live.take("block_arrivals", [ARRIVAL])
    assert len(woken) == 2

    live.wake_by(None)
    live.take("block_arrivals", [ARRIVAL])
    assert len(woken) == 2


def test_readers_see_each_row_as_it_comes(server: MonitorServer, live: LiveRows) -> None:
    """Each of several readers gets all rows in order, committed while the stream is open or before."""
    live.take("block_arrivals", [ARRIVAL | {"height": 1}])
    found: list[list[int]] = []

    def read() -> None:
        found.append([row["height"] for kind, _, row in events(server, 5) if kind != "state"])

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for height in (2, 3, 4):
        live.take("block_arrivals", [ARRIVAL | {"height": height}])
    for reader in readers:
        reader.join()
    assert found == [[1, 2, 3, 4]] * 3


def test_a_stop_ends_the_streams_as_they_should_end(server: MonitorServer) -> None:
    """A reader of a server that closes sees the end of the answer, not a connection that breaks."""
    url = f"http://127.0.0.1:{server.port}/events"
    with requests.get(url, stream=True, timeout=60) as answer:
        chunks = answer.iter_content(chunk_size=None)
        said = next(chunks)
        closing = threading.Thread(target=server.close)
        closing.start()
        rest = b"".join(chunks)  # raises for an answer that is cut off
        closing.join()

    assert b"event: state" in said + rest


def test_the_readme_names_every_event(repo_root: Path) -> None:
    """Who writes a reader of the stream finds there what comes."""
    readme = (repo_root / "collector" / "deploy" / "README.md").read_text()
    named = set(re.findall(r"`(?:event: )?(\w+)`", readme))
    assert COLUMNS.keys() - named == set()


def test_readers_that_do_not_read_are_cut_off(server: MonitorServer) -> None:
    """More readers than the limit close the oldest of them, and others are still answered."""
    clients = [
        socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(2 * MAX_CONNECTIONS)
    ]
    for client in clients:
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert requests.get(f"http://127.0.0.1:{server.port}/metrics", timeout=60).status_code == 200
    for client in clients:
        client.close()
