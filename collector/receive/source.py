"""Receive what one node publishes, through a process of its own (`collector.receive.process`).

That process stamps and checks every message and puts it into a ring that outlives a kill
(`collector.receive.ring`). A thread here takes from the ring and fills the session's queue; nothing is
decoded on the way.

What the node published before our subscription reached it is not seen here; the mempool sequence shows it.
"""

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from collector.errors import NodeUnavailable
from collector.receive.process import Setup
from collector.receive.records import Notice
from collector.receive.ring import MAX_TAKEN, Ring

# A subscription travels behind the handshake; Bitcoin Core's own tests wait as long for it.
SUBSCRIBE_SETTLE_S: Final = 0.2
START_S: Final = 30.0  # for the process to begin, on a machine that is busy
END_S: Final = 10.0
MAX_INBOX_ITEMS: Final = 2_000  # what is beyond them stays in the ring
BACK_OFF_S: Final = 0.005
POLL_S: Final = 0.05  # the longest wait for word from the process, which may be missed
GATHER_S: Final = 0.005  # what comes in the meantime is taken together; stamps are made before

__all__ = ["MessageSource", "Notice"]


class MessageSource:
    """One node's messages, and notices about the stream, on their way into `inbox`.

    `endpoints` maps topic to address, e.g. {"sequence": "tcp://127.0.0.1:28332"}. `inbox` may be shared with
    others. Up to `queue_limit` records wait in the ring; more are dropped, and a notice says so.
    """

    def __init__(
        self,
        node: str,
        session: str,
        endpoints: Mapping[str, str],
        *,
        inbox: "queue.SimpleQueue[Any]",
        queue_limit: int = 200_000,
    ) -> None:
        self.subscribed_at_us = 0  # when the subscription stood
        # Set by the owner of the inbox: leave messages in the ring, while it has room; or whatever comes.
        self.is_throttled = False
        self.is_paused = False
        self.node = node
        self.session = session
        self.topics = tuple(endpoints)
        self._endpoints = dict(endpoints)
        self._inbox = inbox
        self._queue_limit = queue_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._is_ending = False  # no more is to be received
        self._is_stopping = False  # nor is to be waited for room in the inbox

    def connect(self, timeout_s: float = 5.0) -> None:
        """Subscribe, wait until every endpoint has shaken hands, and begin to receive.

        Raises NodeUnavailable naming the endpoints that stay silent.
        """
        setup = json.dumps(Setup(self._endpoints, self._queue_limit, timeout_s)._asdict())
        # -P: a folder named `collector` where the user happens to stand is not ours.
        command = [sys.executable, "-P", "-m", "collector.receive.process", setup]
        self._process = subprocess.Popen(  # noqa: S603 - our own module; the addresses are data, no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        outcome, _, silent = self._first_line(timeout_s + START_S).partition(" ")
        if outcome == "silent":
            raise NodeUnavailable(self._describe_silent(set(silent.split()), timeout_s))
        if outcome != "connected":
            raise NodeUnavailable(
                f"the process that receives from {self.node} did not begin within {START_S:g} s; its error "
                "is above, or this machine is too busy"
            )
        time.sleep(SUBSCRIBE_SETTLE_S)
        self.subscribed_at_us = time.time_ns() // 1000

    def start_forwarding(self, ring: Ring) -> None:
        """Hand over what was received since `connect`, and all that follows, through a ring made for it.

        What is in the ring is safe from a kill; its room is free again when the owner of the ring says so.
        """
        self._send_command(ring=str(ring.path.resolve()))
        self._thread = threading.Thread(
            target=self._run, args=(ring,), name=f"receive-{self.node}", daemon=True
        )
        self._thread.start()

    def reconnect(self, topics: Collection[str]) -> None:
        """Make the connections of these topics anew, but not when the end has been asked for.

        Notices follow in the stream: `reconnect` for each topic of an address, and `connected` once it has
        shaken hands again.
        """
        if not self._is_ending:
            self._send_command(reconnect=sorted(topics))

    def end(self) -> None:
        """Receive no more. What was received still comes, held back as ever, until `is_drained`."""
        self._is_ending = True
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101 - Popen was told to make it
            self._process.stdin.close()

    @property
    def is_drained(self) -> bool:
        """Whether receiving has ended and nothing more will come into the inbox."""
        return self._thread is None or not self._thread.is_alive()

    def stop(self) -> None:
        """End receiving, and hold nothing back: what the inbox has no room for stays in the ring.

        May be repeated.
        """
        self.end()
        self._is_stopping = True
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdout is not None  # noqa: S101 - Popen was told to make it
        if self._thread is not None:
            self._thread.join(END_S)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._thread is not None:
            self._thread.join()
        process.stdout.close()

    @property
    def is_receiving(self) -> bool:
        """Whether messages are being received."""
        return self._process is not None and self._process.poll() is None

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError("connect was not called, or the source was stopped")
        return self._process

    def _send_command(self, **command: str | list[str]) -> None:
        pipe = self._running.stdin
        assert pipe is not None  # noqa: S101 - Popen was told to make it
        with suppress(BrokenPipeError):  # it has ended; the thread that reads from it says so
            pipe.write(json.dumps(command).encode() + b"\n")
            pipe.flush()

    def _first_line(self, timeout_s: float) -> str:
        """Wait for what the process says first; empty when it ends or is silent."""
        pipe = self._running.stdout
        assert pipe is not None  # noqa: S101 - Popen was told to make it
        said = b""
        deadline_s = time.monotonic() + timeout_s
        while not said.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
                return ""
            more = os.read(pipe.fileno(), 1 << 16)
            if not more:
                return ""
            said += more
        return said.decode().splitlines()[0]

    def _describe_silent(self, endpoints: set[str], timeout_s: float) -> str:
        topics = ", ".join(
            f"{topic} at {at}" for topic, at in sorted(self._endpoints.items()) if at in endpoints
        )
        return (
            f"no ZMQ publisher answered within {timeout_s:g} s: {topics}; is the port open, and is it the "
            "address of the node's zmqpub settings?"
        )

    def _run(self, ring: Ring) -> None:
        """Fill the inbox until the process ends, and with all that it put into the ring."""
        process = self._running
        pipe = process.stdout
        assert pipe is not None  # noqa: S101 - Popen was told to make it
        try:
            while self._forward(ring):
                if ring.set_wait_flag() and select.select([pipe], [], [], POLL_S)[0]:
                    if not os.read(pipe.fileno(), 1 << 16):
                        self._forward(ring)
                        break
                    time.sleep(GATHER_S)
            if not self._is_ending:
                process.wait(END_S)  # its pipe ends a moment before it does
                self._fail("the process that receives has ended; its error is above")
        except Exception as error:  # noqa: BLE001 - whatever ends this thread must end the service
            self._fail(f"{type(error).__name__}: {error}")

    def _forward(self, ring: Ring) -> bool:
        """Fill the inbox with what is in the ring; False when a stop leaves the rest there."""
        while items := ring.take(MAX_TAKEN):
            for item in items:
                self._inbox.put(item)
            while self._must_wait(ring):
                if self._is_stopping:
                    return False
                time.sleep(BACK_OFF_S)
        return True

    def _must_wait(self, ring: Ring) -> bool:
        """Whether there is enough in the inbox, and what comes next stays in the ring for now."""
        if self.is_paused:
            return True
        has_room = 2 * ring.n_waiting < self._queue_limit and not ring.is_half_full
        return self._inbox.qsize() > MAX_INBOX_ITEMS or (self.is_throttled and has_room)

    def _fail(self, detail: str) -> None:
        self._inbox.put(Notice("failed", None, time.time_ns(), detail))
