"""Provide a TCP proxy before a server that misbehaves as networks do."""

import contextlib
import selectors
import socket
import threading
from typing import Literal

Mode = Literal["pass", "refuse", "hang", "freeze"]
CHUNK_BYTES = 65536
LINK_TIMEOUT_S = 30


class Proxy:
    """Forwards connections to 127.0.0.1:`port`; its mode may be changed at any time.

    pass: forward everything. refuse: refuse new connections and reset open ones. hang: accept connections and
    keep all data back until the mode changes. freeze: open connections stay open but carry nothing any more,
    new ones work; this is a half-open connection.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._mode: Mode = "pass"
        self._links: dict[socket.socket, socket.socket] = {}
        self._frozen: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self.port = self._listen(0)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"proxy-{port}", daemon=True)
        self._thread.start()

    @property
    def n_links(self) -> int:
        """Return the number of connections that are forwarded now."""
        with self._lock:
            return (len(self._links) - len(self._frozen)) // 2

    def set(self, mode: Mode) -> None:
        """Switch to another mode."""
        with self._lock:
            self._mode = mode
            if mode == "refuse":
                for each in list(self._links):
                    self._drop(each)
                self._close_listener()
            elif self._listener is None:
                self._listen(self.port)
            if mode == "freeze":
                self._frozen |= set(self._links)
        self._wake.send(b"x")

    def close(self) -> None:
        """End every connection and stop the proxy."""
        self._stopping = True
        self._wake.send(b"x")
        self._thread.join()
        with self._lock:
            for each in list(self._links):
                self._drop(each)
            self._close_listener()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _listen(self, port: int) -> int:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._selector.register(self._listener, selectors.EVENT_READ)
        return int(self._listener.getsockname()[1])

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _run(self) -> None:
        while not self._stopping:
            ready = [key.fileobj for key, _ in self._selector.select(0.2)]
            with self._lock:
                for each in ready:
                    if each is self._woken:
                        self._woken.recv(CHUNK_BYTES)
                    elif each is self._listener:
                        self._accept()
                    elif each in self._links and self._mode != "hang" and each not in self._frozen:
                        self._forward(each)
            if self._mode == "hang" or self._frozen:
                threading.Event().wait(0.01)  # what we do not read stays ready

    def _accept(self) -> None:
        assert self._listener is not None
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._to), timeout=1)
        except OSError:  # the server is down: so are we
            near.close()
            return
        for each in (near, far):
            each.settimeout(LINK_TIMEOUT_S)
        for one, other in ((near, far), (far, near)):
            self._links[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, from_: socket.socket) -> None:
        try:
            data = from_.recv(CHUNK_BYTES)
            if data:
                self._links[from_].sendall(data)
                return
        except OSError:
            pass
        self._drop(from_)

    def _drop(self, one: socket.socket) -> None:
        other = self._links.pop(one, None)
        for each in (one, other):
            if each is not None:
                self._links.pop(each, None)
                self._frozen.discard(each)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(each)
                each.close()
