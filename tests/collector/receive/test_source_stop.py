"""Test that a stop ends the wait for a publisher at once."""

import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from collector.errors import NodeUnavailable
from collector.receive import source as source_module
from collector.receive.source import MessageSource

TIMEOUT_S = 60.0
FOR_EVER_S = 100_000.0


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Listen where a publisher should be; nobody answers the handshake there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        yield listener


@pytest.mark.parametrize("comes_first", [True, False], ids=["before the start", "during the handshake"])
def test_a_stop_ends_the_wait_for_a_publisher(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch, *, comes_first: bool
) -> None:
    """Neither `connect` nor the end of the receiver waits for a handshake that nobody answers."""
    monkeypatch.setattr(source_module, "END_S", FOR_EVER_S)
    endpoint = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    source = MessageSource("alpha", "s1", {"rawtx": endpoint}, inbox=queue.SimpleQueue())
    stop, errors = threading.Event(), []

    def connect() -> None:
        try:
            source.connect(FOR_EVER_S, stop)
        except NodeUnavailable as error:
            errors.append(str(error))
        source.stop()

    if comes_first:
        stop.set()
    connecting = threading.Thread(target=connect, daemon=True)
    connecting.start()
    if not comes_first:
        connection, _ = listening.accept()
        stop.set()
        with connection:
            connecting.join(TIMEOUT_S)
    connecting.join(TIMEOUT_S)
    assert not connecting.is_alive()
    assert errors == ["connecting to the ZMQ publishers of alpha was ended by a stop"]
    assert not source.is_receiving
