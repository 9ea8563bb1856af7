"""JSON-RPC to a node: keep-alive, exact amounts, typed errors, no credential in anything we print.

Amounts are parsed as `Decimal`, never as float. The cookie is read at the first request and again when the
node answers 401, because a restarted node writes a new one. Plain HTTP leaves this machine only when told to.
"""

import email.utils
import itertools
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import structlog
from requests.auth import HTTPBasicAuth

from collector import backoff
from collector.errors import NodeError, NodeRefused, NodeUnavailable, RpcError, SettingsError
from collector.log import printable
from collector.loopback import is_loopback

WARMING_UP: Final = -28  # RPC_IN_WARMUP in the node's rpc/protocol.h
BATCH_SIZE: Final = 250  # calls per request: answers stay small enough to parse between two heartbeats
FIRST_RETRY_S: Final = 0.1
LONGEST_RETRY_S: Final = 1.0
log = structlog.get_logger(__name__)

Call = tuple[Any, ...]  # (method, *params)


class RpcClient:
    """One node's RPC. Safe to use from several threads: each has its own connection.

    `patience_s` is how long a call goes on trying while the node is unavailable (starting, restarting,
    out of reach); 0 raises at once. No call is tried again once `stop` is set.
    """

    def __init__(
        self,
        url: str,
        *,
        cookie_file: Path | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 0.0,
        stop: threading.Event | None = None,
        allow_remote: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        self.url = checked_url(url, allow_remote=allow_remote)
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self._stop = stop or threading.Event()
        self._cookie_file = cookie_file
        self._verify: bool | str = True if ca_file is None else str(ca_file)  # certificates, never not at all
        self._login = (user or "", password or "") if user is not None or password is not None else None
        if self._login is None and cookie_file is None:
            raise SettingsError(f"no cookie file and no user for the RPC of {self.url}; set cookie_file")
        self._local = threading.local()
        self._ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"RpcClient({self.url!r})"

    def call(self, method: str, *params: Any, without: Collection[str] = ()) -> Any:
        """Call `method` and return its result, its objects without some names, which then take no memory.

        Raises NodeUnavailable (out of reach, starting, overloaded), NodeRefused (credentials) or RpcError.
        """
        return self._patiently(lambda: self._call(method, params, without))

    def batch(self, calls: Iterable[Call], *, size: int = BATCH_SIZE) -> list[Any]:
        """Make `calls`, `size` per request, and return their results in order.

        A call that the node refuses gives its RpcError in place of a result; anything worse is raised.
        """
        wanted = list(calls)
        answers: list[Any] = []
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            answers += self._patiently(lambda part=part: self._batch(part))  # type: ignore[misc]
        return answers

    def clock_offset_us(self) -> int | None:
        """Our clock minus the node host's, by the Date of one answer; null when it sends none.

        Date has a resolution of 1 s, so half a second is added to it; the error is up to 0.5 s and half the
        round trip.
        """
        body = {"id": next(self._ids), "method": "uptime", "params": []}
        before_ns = time.time_ns()
        answer = self._patiently(lambda: self._post(body))
        after_ns = time.time_ns()
        date = answer.headers.get("Date")
        if date is None:
            return None
        node_us = int(email.utils.parsedate_to_datetime(date).timestamp()) * 1_000_000 + 500_000
        return (before_ns + after_ns) // 2000 - node_us

    def close(self) -> None:
        """Close the calling thread's connection."""
        session = getattr(self._local, "session", None)
        if session is not None:
            session.close()
            del self._local.session

    def _patiently(self, attempt: Callable[[], Any]) -> Any:
        if self.patience_s <= 0:
            return attempt()
        n_failed = 0

        def say_once(error: BaseException) -> None:
            nonlocal n_failed
            n_failed += 1
            if n_failed == 1:
                log.warning("node.awaited", reason=str(error))

        return backoff.retry(
            attempt,
            on=NodeUnavailable,
            first_s=FIRST_RETRY_S,
            longest_s=LONGEST_RETRY_S,
            stop=self._stop,
            patience_s=self.patience_s,
            before_pause=say_once,
        )

    def _call(self, method: str, params: Sequence[Any], without: Collection[str]) -> Any:
        response = self._post({"id": next(self._ids), "method": method, "params": list(params)})
        return _result(method, self._parsed(response, without))

    def _batch(self, calls: Sequence[Call]) -> list[Any]:
        body = [{"id": number, "method": call[0], "params": call[1:]} for number, call in enumerate(calls)]
        answers = self._parsed(self._post(body))
        if not isinstance(answers, list):
            _result("batch", answers)
            raise NodeError(f"{self.url} answered a batch of {len(calls)} calls with one answer")
        by_number = {answer["id"]: answer for answer in answers}
        results: list[Any] = []
        for number, call in enumerate(calls):
            try:
                results.append(_result(call[0], by_number[number]))
            except RpcError as error:
                # Its traceback holds this frame, and with it every answer, until garbage is collected.
                results.append(error.with_traceback(None))
            except KeyError:
                raise NodeError(f"{self.url} left call {number} ({call[0]}) of a batch unanswered") from None
        return results

    def _post(self, body: Any) -> requests.Response:
        response = self._send(body)
        if response.status_code == HTTPStatus.UNAUTHORIZED and self._cookie_file is not None:
            self.close()  # a restarted node has a new cookie
            response = self._send(body)
        if response.status_code == HTTPStatus.FORBIDDEN:
            methods = sorted({call["method"] for call in (body if isinstance(body, list) else [body])})
            raise NodeRefused(
                f"{self.url} does not let us call {', '.join(methods)} (HTTP 403); add it to the "
                "rpcwhitelist of our user in bitcoin.conf, or this machine to rpcallowip"
            )
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            where = self._cookie_file or "rpcuser and rpcpassword"
            raise NodeRefused(
                f"{self.url} does not accept our credentials ({where}): HTTP 401; "
                "set cookie_file or datadir to those of the running node"
            )
        if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
            raise NodeUnavailable(f"{self.url} is overloaded (HTTP 503: its work queue is full)")
        return response

    def _send(self, body: Any) -> requests.Response:
        try:
            return self._session().post(
                self.url, data=json.dumps(body), timeout=self.timeout_s, allow_redirects=False
            )
        except requests.Timeout:
            raise NodeUnavailable(
                f"{self.url} did not answer within {self.timeout_s:g} s; is it a node's RPC port? "
                "If the node is only slow, raise rpc_timeout_s"
            ) from None
        except requests.exceptions.SSLError as error:
            self.close()
            raise NodeRefused(
                f"the TLS certificate of {self.url} is not accepted ({_reason(error)}); set ca_file to the "
                "certificate of who signed it"
            ) from None
        except requests.RequestException as error:
            self.close()  # the next attempt gets a fresh connection
            raise NodeUnavailable(
                f"cannot reach the node's RPC at {self.url} ({_reason(error)}); is bitcoind running there?"
            ) from None

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = requests.Session()
            session.trust_env = False  # no proxy, and no ~/.netrc instead of our cookie
            session.verify = self._verify
            session.auth = HTTPBasicAuth(*map(_as_in_file, self._login or self._cookie()))
            session.headers["Content-Type"] = "application/json"
            self._local.session = session
        return session

    def _cookie(self) -> tuple[str, str]:
        assert self._cookie_file is not None  # noqa: S101 - __init__ demands a login or a cookie file
        try:
            user, colon, password = self._cookie_file.read_text(encoding="utf-8").strip().partition(":")
        except FileNotFoundError:
            raise NodeUnavailable(
                f"there is no cookie file {self._cookie_file}; the node at {self.url} writes it when it "
                "starts: is it running, and with this datadir?"
            ) from None
        except PermissionError:
            raise NodeRefused(
                f"may not read the cookie file {self._cookie_file}; rpccookieperms=group in bitcoin.conf "
                "opens it to the node's group, which must be able to enter each folder above it too"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise NodeRefused(f"cannot read the cookie file {self._cookie_file}: {reason}") from None
        if not colon:
            raise NodeRefused(f"{self._cookie_file} is not a cookie file: it holds no `user:password`")
        return user, password

    def _parsed(self, response: requests.Response, without: Collection[str] = ()) -> Any:
        def kept(found: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in found.items() if name not in without}

        try:
            return json.loads(response.content, parse_float=Decimal, object_hook=kept if without else None)
        except ValueError:
            raise NodeError(
                f"{self.url} answered HTTP {response.status_code} without JSON; is it a node's RPC port?"
            ) from None


def checked_url(url: str, *, allow_remote: bool = False) -> str:
    """Return `url` if it is one that we may send credentials to, else raise SettingsError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SettingsError(
            f"{_without_login(url)!r} is not an RPC address ({error}); write http://127.0.0.1:8332"
        ) from None
    if parts.username is not None or parts.password is not None:
        raise SettingsError("the RPC address holds a user or password; set cookie_file instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise SettingsError(f"{url!r} is not an RPC address; write http://127.0.0.1:8332")
    if parts.scheme == "http" and not allow_remote and not is_loopback(parts.hostname):
        raise SettingsError(
            f"{url} would send credentials unencrypted to another machine; use https, a tunnel to "
            "127.0.0.1, or set allow_remote_rpc = true"
        )
    return url


def _without_login(url: str) -> str:
    scheme, slashes, rest = url.rpartition("://")
    return scheme + slashes + rest.rpartition("@")[2]


def _as_in_file(text: str) -> bytes:
    """Return the bytes that the node read for a user or a password, and compares ours with."""
    return text.encode("utf-8", "surrogateescape")


def _result(method: str, answer: Any) -> Any:
    if not isinstance(answer, dict):
        raise NodeError(f"{method}: the answer is not a JSON-RPC object")
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    code, message = int(error.get("code", 0)), printable(str(error.get("message", "")))
    if code == WARMING_UP:
        raise NodeUnavailable(f"the node is starting: {message}")
    raise RpcError(method, code, message)


def _reason(error: requests.RequestException) -> str:
    """Say why a connection failed in the operating system's words, without the wrappers around them."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
