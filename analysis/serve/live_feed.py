"""Follow the live stream of a running collector, name the pool of each new block, and pass it to the pages.

The collector sends only rows that are in its journal, and its ids are passed on, so a page that was away goes
on from the last id that it has seen. The state of the stream is an event of its own: a collector that does
not answer is "not watching".
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, NamedTuple

import requests

from analysis.attribution.match import attribute
from analysis.attribution.rules import RuleSet
from analysis.errors import ServeError
from analysis.report.text import printable
from collector.dataset.schema import hash_bytes

MAX_EVENTS: Final = 1000
MAX_LINE_BYTES: Final = 1 << 20
ANSWER_S: Final = 20.0  # a collector says something at least so often
RETRY_S: Final = 1.0
STREAM_S: Final = 25.0  # of one stream to a page; it connects again by itself
POLL_S: Final = 0.1
KINDS: Final[Mapping[str, str]] = {
    "blocks": "block",
    "block_arrivals": "arrival",
    "coverage": "loss",
    "template_matches": "template",
}
MISSED: Final = "missed"
UNKNOWN: Final = "unknown"


class LiveEvent(NamedTuple):
    """Holds one event of the live stream for the pages: the collector's id, its kind, its content as JSON."""

    event_id: int
    kind: str
    content: str


class LiveFeed:
    """Follows the collector at `address` (http://HOST:PORT) in a thread of its own until `close`.

    Raises ServeError for an address of another form.
    """

    def __init__(self, address: str, rules: RuleSet) -> None:
        if not address.startswith(("http://", "https://")):
            raise ServeError(f"{address} is no address of a collector; write http://127.0.0.1:9733")
        self._url = f"{address.rstrip('/')}/events"
        self._rules = rules
        self._names = {pool.slug: pool.name for pool in rules.pools}
        self._lock = threading.Lock()
        self._events: deque[LiveEvent] = deque(maxlen=MAX_EVENTS)
        self._last_id: int | None = None
        self._forgotten_id = -1  # the newest event that is no longer kept
        self._began_anew = False  # the collector, with lower ids than before
        self._state = _state_without("the collector has not answered yet")
        self._stopping = threading.Event()
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy: the collector is beside us
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)
        self._thread.start()

    @property
    def state(self) -> str:
        """Return as JSON whether every node is followed, the reasons if not, and the nodes."""
        with self._lock:
            return self._state

    def since(self, last_id: int | None) -> list[LiveEvent]:
        """Return the kept live events with an id above `last_id`; all of them if it is None or ahead."""
        with self._lock:
            if last_id is None or self._is_ahead(last_id):
                return list(self._events)
            return [event for event in self._events if event.event_id > last_id]

    def has_forgotten(self, last_id: int | None) -> bool:
        """Return whether a live event after that of `last_id` may be no longer kept."""
        with self._lock:
            return last_id is not None and (last_id < self._forgotten_id or self._is_ahead(last_id))

    def _is_ahead(self, last_id: int) -> bool:
        """Return whether an id is of a collector before this one, whose clock was ahead."""
        return self._began_anew and self._last_id is not None and last_id > self._last_id + 1  # 1: of MISSED

    def close(self) -> None:
        """Stop following the collector; the thread ends when it next hears from the collector."""
        self._stopping.set()

    async def stream(self, last_id: int | None) -> AsyncIterator[str]:
        """Yield server-sent events for one page, the state first, for STREAM_S seconds."""
        loop = asyncio.get_running_loop()
        end_s, sent = loop.time() + STREAM_S, ""
        yield "retry: 500\n\n"
        while loop.time() < end_s and not self._stopping.is_set():
            state = self.state
            if state != sent:
                sent = state
                yield f"event: state\ndata: {state}\n\n"
            if self.has_forgotten(last_id):
                yield f"event: {MISSED}\ndata: {{}}\n\n"
            for event in self.since(last_id):
                last_id = event.event_id
                yield f"id: {event.event_id}\nevent: {event.kind}\ndata: {event.content}\n\n"
            await asyncio.sleep(POLL_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except (requests.RequestException, ValueError, KeyError, TypeError) as error:
                reason = (
                    "sends no stream"
                    if isinstance(error, ValueError | KeyError | TypeError)
                    else "does not answer"
                )
                self._set_state(_state_without(f"the collector {reason}; is pool-collector run running?"))
            self._stopping.wait(RETRY_S)  # also where the stream came to its end, perhaps at once

    def _follow(self) -> None:
        """Read one HTTP stream of the collector to its end, and keep its events and state."""
        headers = {} if self._last_id is None else {"Last-Event-ID": str(self._last_id)}
        with self._http.get(self._url, headers=headers, stream=True, timeout=ANSWER_S) as answer:
            answer.raise_for_status()
            for fields in _events_of(answer):
                if fields.get("event") == "state":
                    self._set_state(json.dumps(json.loads(fields["data"])))
                elif fields.get("event") == MISSED:
                    self._miss()
                elif fields.get("event") in KINDS:
                    self._take(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                if self._stopping.is_set():
                    return

    def _take(self, event_id: int, table: str, row: Mapping[str, Any]) -> None:
        content = self._block(row) if table == "blocks" else dict(row)
        self._keep(LiveEvent(event_id, KINDS[table], json.dumps(content)))

    def _miss(self) -> None:
        """Keep an event that says that rows were missed, unless the newest event says so already.

        Its id is the one after the last event's.
        """
        with self._lock:
            has_missed = bool(self._events) and self._events[-1].kind == MISSED
        if not has_missed and self._last_id is not None:
            self._keep(LiveEvent(self._last_id + 1, MISSED, "{}"))

    def _keep(self, event: LiveEvent) -> None:
        with self._lock:
            if self._last_id is not None and event.event_id < self._last_id:  # of a collector that began anew
                self._events.clear()
                self._forgotten_id, self._began_anew = -1, True
            self._last_id = event.event_id
            if len(self._events) == MAX_EVENTS:
                self._forgotten_id = self._events[0].event_id
            self._events.append(event)

    def _block(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a page shows of a new block's row: some columns, and its pool by our rules."""
        outputs = [
            (each["value_sat"], bytes.fromhex(each["script"])) for each in row["coinbase_outputs"] or ()
        ]
        script = bytes.fromhex(row["coinbase_script"])
        found = attribute(self._rules, height=row["height"], coinbase_script=script, outputs=outputs)
        hash_bytes(row["block_hash"])  # raises ValueError for anything but a hash
        kept = ("block_hash", "height", "header_time", "n_tx", "weight_wu", "fees_sat", "verdict")
        return {name: row[name] for name in kept} | {
            "pool": found.pool or UNKNOWN,
            "pool_name": printable(self._names.get(found.pool or "", UNKNOWN)),
            "method": found.method,
            "n_conflicts": len({candidate.pool for candidate in found.conflicts}),
            "is_empty": row["n_tx"] == 1,
        }

    def _set_state(self, state: str) -> None:
        with self._lock:
            self._state = state


def _state_without(reason: str) -> str:
    return json.dumps({"ready": False, "reasons": [reason], "nodes": {}})


def _events_of(answer: requests.Response) -> Iterator[dict[str, str]]:
    """Yield each server-sent event of an HTTP answer as a dict of its fields."""
    fields: dict[str, str] = {}
    for line in _lines(answer):
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif fields:
            yield fields
            fields = {}


def _lines(answer: requests.Response) -> Iterator[str]:
    """Yield the lines of an HTTP answer as they come. Raises ValueError for a line that has no end."""
    rest = b""
    for chunk in answer.iter_content(chunk_size=None):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > MAX_LINE_BYTES:
            raise ValueError("a line of the stream is too long")
