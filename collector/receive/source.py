"""Start the receiver of one node, and forward what it receives into the session's queue.

The receiver is a process of its own (`collector.receive.process`). It stamps and checks every message and
puts it into a ring that survives a kill (`collector.receive.ring`). A thread here takes messages from the
ring and puts them into the session's queue. Nothing is decoded on the way.

What the node published before our subscription reached it is not received; the mempool sequence shows such a
loss.
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

from collector.errors import NodeError, NodeUnavailable
from collector.log import excerpt
from collector.receive.process import MAX_MEMORY_BYTES, Setup
from collector.receive.records import Notice
from collector.receive.ring import MAX_TAKEN, Ring

# The subscription reaches the node after the handshake; Bitcoin Core's own tests wait as long for it.
SUBSCRIBE_SETTLE_S: Final = 0.2
START_S: Final = 30.0  # the longest wait for the receiver to start, on a busy machine
END_S: Final = 10.0  # the longest wait for the receiver to end
MAX_INBOX_ITEMS: Final = 2_000  # with more in the inbox, the rest stays in the ring
INBOX_CHECK_S: Final = 0.005  # the pause between two checks whether a full inbox has room again
POLL_S: Final = 0.05  # the longest wait for the receiver, because a wake can be missed and a stop can come
GATHER_S: Final = 0.005  # so long we gather messages to take at once; they are stamped before

__all__ = ["MessageSource", "Notice"]


class MessageSource:
    """Starts the receiver process of one node, and puts its messages and notices into the queue `inbox`.

    `endpoints` maps topic to address, e.g. {"sequence": "tcp://127.0.0.1:28332"}. Others may put into `inbox`
    too. Up to `queue_limit` records wait in the ring (buffer file); messages beyond that are dropped, and a
    notice says so.
    """

    def __init__(
        self,
        node: str,
        session: str,
        endpoints: Mapping[str, str],
        *,
        inbox: "queue.SimpleQueue[Any]",
        queue_limit: int = 200_000,
        memory_bytes: int = MAX_MEMORY_BYTES,
    ) -> None:
        self.subscribed_at_us = 0  # wall clock: when the node certainly had our subscription
        # The owner of the inbox sets these two.
        self.is_throttled = False  # leave messages in the ring until half of its room is in use
        self.is_paused = False  # leave messages in the ring even when it is full
        self.node = node
        self.session = session
        self.endpoints = dict(endpoints)
        self.topics = tuple(endpoints)
        self._inbox = inbox
        self._queue_limit = queue_limit
        self._memory_bytes = memory_bytes  # of the receiver
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._is_ending = False  # `end` was called: receive no more
        self._is_stopping = False  # `stop` was called: do not wait for room in the inbox either

    def connect(self, timeout_s: float = 5.0, stop: threading.Event | None = None) -> None:
        """Start the receiver, and wait until every endpoint has completed the ZMQ handshake.

        Raises NodeUnavailable, which names the endpoints that did not answer within `timeout_s`; also when
        `stop` is set meanwhile. Raises NodeError for an endpoint that is no ZMQ address.
        """
        stop = stop or threading.Event()
        setup = json.dumps(Setup(self.endpoints, self._queue_limit, timeout_s, self._memory_bytes)._asdict())
        # -P: do not import a folder named `collector` from the user's working directory.
        command = [sys.executable, "-P", "-m", "collector.receive.process", setup]
        self._process = subprocess.Popen(  # noqa: S603 - our own module; the addresses are data, no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        line = self._first_line(timeout_s + START_S, stop)
        if stop.is_set():
            raise NodeUnavailable(f"connecting to the ZMQ publishers of {self.node} was ended by a stop")
        if not line:
            raise NodeUnavailable(
                f"the receiver of {self.node} did not start within {START_S:g} s: the lines before this "
                "one say why, or this machine is too busy; wait and try again"
            )
        unusable: dict[str, str] = json.loads(line)
        for endpoint, reason in unusable.items():
            if reason:
                raise NodeError(
                    f"cannot subscribe to {self._topics_at({endpoint})}: {reason}; set its address in "
                    "[node.zmq], in the form tcp://127.0.0.1:28332"
                )
        if unusable:
            raise NodeUnavailable(
                f"no ZMQ publisher answered within {timeout_s:g} s: {self._topics_at(unusable)}; is the port "
                "open, and is it the address of the node's zmqpub settings?"
            )
        stop.wait(SUBSCRIBE_SETTLE_S)
        self.subscribed_at_us = time.time_ns() // 1000

    def start_forwarding(self, ring: Ring) -> None:
        """Forward the messages received since `connect`, and all later ones, through the ring to the inbox.

        What is in the ring survives a kill. The owner of the ring frees its space (`Ring.release`).
        """
        self._send_command(ring=str(ring.path.resolve()))
        self._thread = threading.Thread(
            target=self._run, args=(ring,), name=f"receive-{self.node}", daemon=True
        )
        self._thread.start()

    def reconnect(self, topics: Collection[str]) -> None:
        """Close the connections of these topics and open them again; do nothing after `end`.

        The stream then has a notice `reconnect` for each topic of an address, and a notice `connected` when
        the address has completed the handshake again.
        """
        if not self._is_ending:
            self._send_command(reconnect=sorted(topics))

    def end(self) -> None:
        """Stop receiving messages. Those received before still come into the inbox, until `is_drained`."""
        self._is_ending = True
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101 - Popen made it, by PIPE
            # If it has died, a command that it did not read may still be in the buffer.
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    @property
    def is_drained(self) -> bool:
        """Return whether receiving has ended and no more messages come into the inbox."""
        return self._thread is None or not self._thread.is_alive()

    def stop(self) -> None:
        """Stop receiving messages at once; those for which the inbox has no room stay in the ring.

        A second call does nothing.
        """
        self.end()
        self._is_stopping = True
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdout is not None  # noqa: S101 - Popen made it, by PIPE
        if self._thread is None:
            process.kill()  # it may still wait for handshakes; what it has received can go nowhere
        else:
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
        """Return whether the receiver process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        """Return the receiver process. Raises RuntimeError when there is none."""
        if self._process is None:
            raise RuntimeError("connect was not called, or the source was stopped")
        return self._process

    def _send_command(self, **command: str | list[str]) -> None:
        pipe = self._running.stdin
        assert pipe is not None  # noqa: S101 - Popen made it, by PIPE
        with suppress(BrokenPipeError):  # the receiver has ended; `_run` notes that
            pipe.write(json.dumps(command).encode() + b"\n")
            pipe.flush()

    def _first_line(self, timeout_s: float, stop: threading.Event) -> str:
        """Return the first line that the receiver writes.

        The line is empty when the receiver ends or writes none in time, and when `stop` is set.
        """
        pipe = self._running.stdout
        assert pipe is not None  # noqa: S101 - Popen made it, by PIPE
        said = b""
        deadline_s = time.monotonic() + timeout_s
        while not said.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or stop.is_set():
                return ""
            if not select.select([pipe], [], [], min(left_s, POLL_S))[0]:
                continue
            more = os.read(pipe.fileno(), 1 << 16)
            if not more:
                return ""
            said += more
        return said.decode().splitlines()[0]

    def _topics_at(self, endpoints: Collection[str]) -> str:
        """Return the topics at these endpoints, each with its address, for an error message."""
        return ", ".join(
            f"{topic} at {excerpt(at)}" for topic, at in sorted(self.endpoints.items()) if at in endpoints
        )

    def _run(self, ring: Ring) -> None:
        """Forward from the ring to the inbox until the receiver has ended and the ring is empty.

        Any error puts a notice `failed` into the inbox, because it must end the session.
        """
        process = self._running
        pipe = process.stdout
        assert pipe is not None  # noqa: S101 - Popen made it, by PIPE
        try:
            while self._forward(ring):
                if ring.set_wait_flag() and select.select([pipe], [], [], POLL_S)[0]:
                    if not os.read(pipe.fileno(), 1 << 16):
                        self._forward(ring)
                        break
                    time.sleep(GATHER_S)
            if not self._is_ending:
                process.wait(END_S)  # its pipe closes a moment before it ends
                self._fail("the receiver has ended; the lines before this one say why")
        except Exception as error:  # noqa: BLE001 - whatever ends this thread must end the session
            self._fail(f"{type(error).__name__}: {error}")

    def _forward(self, ring: Ring) -> bool:
        """Forward the ring's messages to the inbox; return False when `stop` leaves the rest in the ring."""
        while items := ring.take(MAX_TAKEN):
            for item in items:
                self._inbox.put(item)
            while self._must_wait(ring):
                if self._is_stopping:
                    return False
                time.sleep(INBOX_CHECK_S)
        return True

    def _must_wait(self, ring: Ring) -> bool:
        """Return whether the next messages must stay in the ring for now: a pause, throttle or full inbox."""
        if self.is_paused:
            return True
        has_room = 2 * ring.n_waiting < self._queue_limit and not ring.is_half_full
        return self._inbox.qsize() > MAX_INBOX_ITEMS or (self.is_throttled and has_room)

    def _fail(self, detail: str) -> None:
        """Put a notice `failed` into the inbox, which says why receiving has failed."""
        self._inbox.put(Notice("failed", None, time.time_ns(), detail))
