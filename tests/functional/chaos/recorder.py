"""Record every message of a node's topics with its time of arrival, as a program of its own.

The collector is judged against this recording, so the two share no code. The program is a subscriber without
a high-water mark. It writes records `stamp_ns | topic | counter | length | body`, with little-endian numbers.

    python recorder.py OUT sequence=tcp://127.0.0.1:28332 rawtx=tcp://127.0.0.1:28333
"""

import mmap
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

TOPICS = ("sequence", "rawtx", "rawblock")
HEAD = struct.Struct("<QBII")


class Frame(NamedTuple):
    """Holds one recorded message."""

    stamp_ns: int
    topic: str
    counter: int
    body: bytes


def record(out: Path, endpoints: dict[str, str]) -> None:
    """Write each message to `out` until the process ends; the file appears once all are connected."""
    socket = zmq.Context().socket(zmq.SUB)
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.RECONNECT_IVL, 20)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    for topic, endpoint in endpoints.items():
        socket.subscribe(topic.encode())
        socket.connect(endpoint)
    for _ in endpoints:
        recv_monitor_message(monitor)
    socket.disable_monitor()
    time.sleep(0.2)  # a subscription travels behind the handshake
    with out.open("wb") as file:
        while True:
            topic, body, counter = socket.recv_multipart()
            head = HEAD.pack(
                time.time_ns(), TOPICS.index(topic.decode()), int.from_bytes(counter, "little"), len(body)
            )
            file.write(head + body)
            if not socket.poll(0):
                file.flush()


def read(path: Path, topic: str) -> Iterator[Frame]:
    """Yield the recorded messages of a topic; a last record that was cut off is left out."""
    if not path.stat().st_size:
        return  # which cannot be mapped
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        wanted, at = TOPICS.index(topic), 0
        while at + HEAD.size <= len(data):
            stamp_ns, index, counter, length = HEAD.unpack_from(data, at)
            at += HEAD.size + length
            if index == wanted and at <= len(data):
                yield Frame(stamp_ns, topic, counter, data[at - length : at])


if __name__ == "__main__":
    record(Path(sys.argv[1]), dict(each.split("=", 1) for each in sys.argv[2:]))
