"""Measure how late a message is stamped, while nothing else is done and while full blocks are decoded.

A process sends the time every millisecond; what a stamp is later than that is its delay.
"""

import multiprocessing
import queue
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import zmq
from bench_traffic import make_traffic

from collector.codec.block import parse_block
from collector.codec.rows import warm_up
from collector.codec.verify import verify_block
from collector.journal.journal import Journal
from collector.receive.source import MessageSource

FULL_BLOCK_TX = 2_990  # transactions of this kind that fill 4,000,000 weight units
JITTER_S = 4.0
PERIOD_S = 0.001


def stamps() -> dict[str, Any]:
    """Compare the time of a stamp with the time of sending, at rest and while full blocks decode.

    `thread` is a loop in this process as the collector had it before: what decoding does to it.
    """
    raw = next(
        body
        for topic, body in make_traffic(FULL_BLOCK_TX, tx_per_block=FULL_BLOCK_TX).frames
        if topic == "rawblock"
    )
    weight_wu = parse_block(raw).block.weight_wu
    facts: dict[str, Any] = {"block_weight_wu": weight_wu}
    warm_up()
    for name in ("at_rest", "while_decoding"):
        for how, measure in (("collector", delays_of_collector), ("thread", delays_of_thread)):
            sender = multiprocessing.get_context("spawn").Process
            facts[f"{name}_{how}"] = measure(sender, raw if name == "while_decoding" else None)
    return facts


def send_stamped(port: Any, until: Any) -> None:
    """Send the time every millisecond."""
    socket = zmq.Context().socket(zmq.PUB)
    port.value = socket.bind_to_random_port("tcp://127.0.0.1")
    counter = 0
    while not until.is_set():
        body = time.time_ns().to_bytes(8, "little") + bytes(400)
        socket.send_multipart([b"rawtx", body, counter.to_bytes(4, "little")])
        counter += 1
        time.sleep(PERIOD_S)
    socket.context.destroy(0)


def work(raw: bytes | None) -> None:
    """Decode and verify a full block again and again, or rest."""
    deadline_s = time.monotonic() + JITTER_S
    while time.monotonic() < deadline_s:
        if raw is None:
            time.sleep(0.1)
        else:
            assert verify_block(parse_block(raw).block, "regtest") == "valid"


def started(sender: Any) -> tuple[Any, Any, Any]:
    """Start a sender; return its process, its port, and the event that ends it."""
    context = multiprocessing.get_context("spawn")
    port, until = context.Value("i", 0), context.Event()
    process = sender(target=send_stamped, args=(port, until))
    process.start()
    while not port.value:
        time.sleep(0.01)
    return process, port, until


def delays_of_collector(sender: Any, raw: bytes | None) -> dict[str, float]:
    """Measure the delay of stamps that `MessageSource` sets."""
    process, port, until = started(sender)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as at, Journal(Path(at) / "journal") as journal:
        source = MessageSource("bench", "s", {"rawtx": f"tcp://127.0.0.1:{port.value}"}, inbox=inbox)
        source.connect()
        source.start_forwarding(journal.make_ring("bench", "s", source.topics))
        while not inbox.empty():
            inbox.get()
        work(raw)
        source.stop()
        until.set()
        process.join()
    delays = []
    while not inbox.empty():
        message = inbox.get()
        delays.append(message.received_ns - int.from_bytes(message.body[:8], "little"))
    return quantiles(delays)


def delays_of_thread(sender: Any, raw: bytes | None) -> dict[str, float]:
    """Measure the delay of stamps that a thread of this process sets."""
    process, port, until = started(sender)
    socket = zmq.Context().socket(zmq.SUB)
    socket.subscribe(b"")
    socket.connect(f"tcp://127.0.0.1:{port.value}")
    delays: list[int] = []

    def receive() -> None:
        while socket.poll(500):
            body = socket.recv_multipart()[1]
            delays.append(time.time_ns() - int.from_bytes(body[:8], "little"))

    thread = threading.Thread(target=receive)
    thread.start()
    work(raw)
    until.set()
    process.join()
    thread.join()
    socket.context.destroy(0)
    return quantiles(delays)


def quantiles(delays_ns: list[int]) -> dict[str, float]:
    """Return the median, the 99th percentile and the greatest, in milliseconds."""
    ordered = sorted(delays_ns)
    return {
        "p50_ms": ordered[len(ordered) // 2] / 1e6,
        "p99_ms": ordered[len(ordered) * 99 // 100] / 1e6,
        "max_ms": ordered[-1] / 1e6,
        "n": len(ordered),
    }
