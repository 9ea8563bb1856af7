"""Send committed rows and the states of the nodes to every reader of /events, as server-sent events.

Readers must not cost the collector its processor. So they sleep until there is something to send: the thread
that commits rows wakes the event loop at most once for each turn, a row is encoded once, and one look at the
nodes serves all readers.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from collector.monitor.health import Health
from collector.monitor.live_rows import LiveRows

STREAM_S: Final = 8.0  # of one stream
TURN_S: Final = 0.1  # from one turn, in which rows are sent, to the next
STATE_S: Final = 1.0  # between two looks at the state of the nodes
MAX_ID_DIGITS: Final = 20
Send = Callable[[dict[str, Any]], Awaitable[None]]


class EventStreams:
    """Sends the same events to all readers; everything happens on the event loop of the server."""

    def __init__(self, live: LiveRows, health: Health) -> None:
        self._live = live
        self._health = health
        self._state = ""
        self._n_readers = 0
        self._is_closing = False
        self._has_rows = asyncio.Event()  # set when rows were committed, until the turn that sends them
        self._turn = asyncio.Event()  # set, and replaced, at every turn with something to send
        self._turns: asyncio.Task[None] | None = None

    async def send_to(self, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        """Answer one request for /events: the state, then rows and states as they come, for STREAM_S seconds.

        The stream begins after the id in the header Last-Event-ID, or with the oldest row that is kept.
        """
        last_id = _last_event_id(headers)
        answer_headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": answer_headers})
        self._enter()
        try:
            await self._follow(last_id, send)
        finally:
            self._leave()
        await send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """End every stream when it has sent what there is, and each later one as soon."""
        self._is_closing = True
        self._turn.set()

    async def _follow(self, last_id: int | None, send: Send) -> None:
        """Send what there is at each turn."""
        loop = asyncio.get_running_loop()
        end_s, state, message = loop.time() + STREAM_S, "", b"retry: 200\n\n"
        while True:
            turn = self._turn
            if state != self._state:
                state = self._state
                message += f"event: state\ndata: {state}\n\n".encode()
            rows, has_missed = self._live.since(last_id)
            if has_missed:
                message += b"event: missed\ndata: {}\n\n"
                last_id = None
            if rows:
                message += b"".join(row.message for row in rows)
                last_id = rows[-1].row_id
            if message:
                await send({"type": "http.response.body", "body": message, "more_body": True})
                message = b""
            if self._is_closing:
                return
            try:
                await asyncio.wait_for(turn.wait(), end_s - loop.time())
            except TimeoutError:
                return

    def _enter(self) -> None:
        """Count a reader; the first one begins the turns."""
        self._n_readers += 1
        if self._turns is None:
            loop = asyncio.get_running_loop()
            self._state = self._look()
            self._live.wake_by(lambda: loop.call_soon_threadsafe(self._has_rows.set))
            self._turns = loop.create_task(self._take_turns())

    def _leave(self) -> None:
        """Count a reader off; without readers there are no turns."""
        self._n_readers -= 1
        if not self._n_readers and self._turns is not None:
            self._live.wake_by(None)
            self._turns.cancel()
            self._turns = None

    async def _take_turns(self) -> None:
        """Wake all readers when rows have come or the state has changed."""
        loop = asyncio.get_running_loop()
        looked_s = loop.time()
        while True:
            try:
                await asyncio.wait_for(self._has_rows.wait(), looked_s + STATE_S - loop.time())
            except TimeoutError:
                looked_s, before, self._state = loop.time(), self._state, self._look()
                if self._state == before:
                    continue
            self._has_rows.clear()
            self._live.rearm()
            turn, self._turn = self._turn, asyncio.Event()
            turn.set()
            await asyncio.sleep(TURN_S)

    def _look(self) -> str:
        """Return as JSON whether every node is followed, why not, and the state of each node."""
        reasons = self._health.unready()
        nodes = {
            name: {"in_step": state["in_step"], "away": state["away"], "n_mempool": state["n_mempool"]}
            for name, state in self._health.nodes().items()
        }
        return json.dumps({"ready": not reasons, "reasons": reasons, "nodes": nodes})


def _last_event_id(headers: list[tuple[bytes, bytes]]) -> int | None:
    """Return the id in a Last-Event-ID header; None if there is none that is a number."""
    given = dict(headers).get(b"last-event-id", b"")
    return int(given) if given.isdigit() and len(given) < MAX_ID_DIGITS else None
