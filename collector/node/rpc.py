"""Call the JSON-RPC of a node with exact amounts, a deadline and size limit per answer, and typed errors.

Amounts are parsed as `Decimal`, never as float. The cookie is read at the first request and again when the
node answers 401, because a restarted node writes a new one. Plain HTTP to another machine needs a setting. No
error and no representation contains a credential.

Every answer has one deadline and a limit of bytes; see connection.py.
"""

import base64
import email.utils
import http.client
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal, InvalidOperation
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import structlog

from collector import backoff
from collector.errors import MethodForbidden, NodeError, NodeRefused, NodeUnavailable, RpcError, SettingsError
from collector.log import counted, excerpt
from collector.loopback import is_loopback
from collector.node.connection import Connection, RequestStopped, Response, TooLarge

WARMING_UP: Final = -28  # RPC_IN_WARMUP in the node's rpc/protocol.h
BATCH_SIZE: Final = 250  # calls per request: answers stay small enough to parse between two heartbeats
FIRST_RETRY_S: Final = 0.1
LONGEST_RETRY_S: Final = 1.0
MIB: Final = 1 << 20
LARGEST_ANSWER: Final = 128 * MIB  # of one request, also of a batch
USUAL_ANSWER: Final = MIB
# Largest answer per method. A block of 4 MB is some 30 MB of JSON with the outputs it spends; a mempool of a
# million transactions is 67 MB of txids.
LARGEST_ANSWERS: Final = {
    "getblock": LARGEST_ANSWER,
    "getrawmempool": LARGEST_ANSWER,
    "getblocktemplate": 32 * MIB,
    "getrawtransaction": 16 * MIB,
    "decoderawtransaction": 16 * MIB,
}
# A block of 4 MB has at most some 4 million values, nearly all of them empty witness items. Without this
# limit 128 MiB of empty lists, three bytes each, would unfold to more than 6 GB.
MOST_VALUES: Final = 5_000_000
LONGEST_NUMBER: Final = 32  # characters of a number with a fraction; amounts have at most 17
LARGEST_EXPONENT: Final = 30  # a larger one would take all memory as a whole number
log = structlog.get_logger(__name__)

Call = tuple[Any, ...]  # (method, *params)
Kept = Callable[[dict[str, Any]], dict[str, Any]]  # returns what is kept of an object in an answer


class RpcClient:
    """Calls the RPC of one node. Several threads may use it: each has its own connection.

    A request fails unless its whole answer is there within `timeout_s`. `patience_s` is how long a call is
    repeated while the node is unavailable (starting, restarting, out of reach); with 0 the first error is
    raised. When `stop` is set, open requests end and no call is repeated.
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
        self._ca_file = ca_file
        self._login = (user or "", password or "") if user is not None or password is not None else None
        if self._login is None and cookie_file is None:
            raise SettingsError(f"no cookie file and no user for the RPC of {self.url}; set cookie_file")
        self._local = threading.local()
        self._ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"RpcClient({self.url!r})"

    def call(self, method: str, *params: Any, kept: Kept | None = None) -> Any:
        """Call `method` and return its result.

        With `kept`, each object in the result is replaced by what `kept` returns of it, inner ones first; a
        large answer then takes less memory. Raises NodeUnavailable (out of
        reach, starting, overloaded), NodeRefused (credentials), RpcError (the node answers with an error) or
        NodeError (the answer is not JSON-RPC, or too large).
        """
        return self._patiently(lambda: self._call(method, params, kept))

    def batch(self, calls: Iterable[Call], *, size: int = BATCH_SIZE) -> list[Any]:
        """Make `calls` (method and parameters each), `size` per HTTP request; return their results in order.

        The result of a call that the node refuses is its RpcError; any other error is raised.
        """
        wanted = list(calls)
        answers: list[Any] = []
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            answers += self._patiently(lambda part=part: self._batch(part))  # type: ignore[misc]
        return answers

    def clock_offset_us(self) -> int | None:
        """Return our clock minus that of the node's host in microseconds; None if an answer has no Date.

        The header Date has a resolution of 1 s, so half a second is added to it. The error is up to 0.5 s and
        half the round trip.
        """
        body = {"id": next(self._ids), "method": "uptime", "params": []}
        before_ns = time.time_ns()
        answer = self._patiently(lambda: self._post(body))
        after_ns = time.time_ns()
        try:
            date_s = int(email.utils.parsedate_to_datetime(answer.date or "").timestamp())
        except (ValueError, OverflowError):
            return None
        return (before_ns + after_ns) // 2000 - (date_s * 1_000_000 + 500_000)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn KeyError, TypeError and the like from code in the `with` block into a NodeError.

        Put only code into the block that reads an answer: there, such an error means that the answer has
        another shape than a node's.
        """
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, InvalidOperation) as error:
            method = getattr(self._local, "method", "a call")
            raise NodeError(
                f"{self.url} answered {method} with something that a node does not "
                f"({type(error).__name__}: {excerpt(str(error))}); is it a node's RPC port?"
            ) from error

    def stop(self) -> None:
        """End the open RPC requests of all threads and forbid new ones: they raise NodeUnavailable."""
        self._stop.set()

    def close(self) -> None:
        """Close the calling thread's connection to the node."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            del self._local.connection

    def _patiently(self, attempt: Callable[[], Any]) -> Any:
        """Return the result of `attempt`, repeated while the node is unavailable, for up to `patience_s`.

        The wait is logged once.
        """
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

    def _call(self, method: str, params: Sequence[Any], kept: Kept | None) -> Any:
        """Call one method once, without a repetition, and return its result."""
        response = self._post({"id": next(self._ids), "method": method, "params": list(params)})
        return _result(method, self._parsed(response, kept))

    def _batch(self, calls: Sequence[Call]) -> list[Any]:
        """Make several RPC calls in one HTTP request, without a repetition.

        Returns results, and RpcErrors of refused calls, in the order of the calls.
        """
        body = [{"id": number, "method": call[0], "params": call[1:]} for number, call in enumerate(calls)]
        answers = self._parsed(self._post(body))
        if not isinstance(answers, list):
            _result("batch", answers)
            raise NodeError(f"{self.url} answered a batch of {counted(len(calls), 'call')} with one answer")
        by_number = {
            answer["id"]: answer
            for answer in answers
            if isinstance(answer, dict) and isinstance(answer.get("id"), int)
        }
        results: list[Any] = []
        for number, call in enumerate(calls):
            if number not in by_number:
                raise NodeError(f"{self.url} left call {number} ({call[0]}) of a batch unanswered")
            try:
                results.append(_result(call[0], by_number[number]))
            except RpcError as error:
                # Its traceback holds this frame, and with it every answer, until garbage is collected.
                results.append(error.with_traceback(None))
        return results

    def _post(self, body: Any) -> Response:
        """Send an RPC request and return the answer; after HTTP 401 read the cookie again and repeat it once.

        Raises NodeRefused for HTTP 401, MethodForbidden for 403, NodeUnavailable for 502 to 504. Of the
        last three, a node itself sends only 503; the others come from a proxy.
        """
        methods = [call["method"] for call in (body if isinstance(body, list) else [body])]
        response = self._send(body, methods)
        if response.status == HTTPStatus.UNAUTHORIZED and self._cookie_file is not None:
            self.close()  # a restarted node has a new cookie
            response = self._send(body, methods)
        if response.status == HTTPStatus.FORBIDDEN:
            raise MethodForbidden(
                f"{self.url} does not let us call {', '.join(sorted(set(methods)))} (HTTP 403); add it to "
                "the rpcwhitelist of our user in bitcoin.conf, or this machine to rpcallowip"
            )
        if response.status == HTTPStatus.UNAUTHORIZED:
            where = self._cookie_file or "rpcuser and rpcpassword"
            raise NodeRefused(
                f"{self.url} does not accept our credentials ({where}): HTTP 401; "
                "set cookie_file or datadir to those of the running node"
            )
        if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise NodeUnavailable(f"{self.url} is overloaded (HTTP 503: its work queue is full)")
        if response.status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT):
            raise NodeUnavailable(
                f"{self.url} is a proxy that does not reach the node (HTTP {response.status}); is bitcoind "
                "running there?"
            )
        return response

    def _send(self, body: Any, methods: Sequence[str]) -> Response:
        """Send a request over this thread's connection and return the answer.

        Network failures raise NodeError.
        """
        limit = min(LARGEST_ANSWER, sum(LARGEST_ANSWERS.get(method, USUAL_ANSWER) for method in methods))
        self._local.method = methods[0]
        connection, headers = self._connection()
        try:
            return connection.post(
                json.dumps(body).encode(), headers, timeout_s=self.timeout_s, limit_bytes=limit
            )
        except RequestStopped:
            raise NodeUnavailable(f"a request to {self.url} was ended by a stop") from None
        except TooLarge:
            raise NodeError(
                f"{self.url} answered {', '.join(sorted(set(methods)))} with more than {limit >> 20} MiB; "
                "is it a node's RPC port?"
            ) from None
        except TimeoutError:
            raise NodeUnavailable(
                f"{self.url} did not answer {methods[0]} completely within {self.timeout_s:g} s; is it a "
                "node's RPC port? If the node is only slow, raise rpc_timeout_s"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise NodeRefused(
                f"the TLS certificate of {self.url} is not accepted ({error.verify_message}); set ca_file "
                "to the certificate of who signed it"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise NodeUnavailable(
                f"cannot reach the node's RPC at {self.url} ({reason}); is bitcoind running there?"
            ) from None

    def _connection(self) -> tuple[Connection, dict[str, str]]:
        """Return this thread's connection and the HTTP headers (with credentials) of its requests."""
        if getattr(self._local, "connection", None) is None:
            user, password = map(_as_in_file, self._login or self._cookie())
            login = base64.b64encode(user + b":" + password).decode()
            self._local.headers = {
                "Authorization": f"Basic {login}",
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",  # so that the size limit counts what is parsed
            }
            self._local.connection = Connection(self.url, ca_file=self._ca_file, stop=self._stop)
        return self._local.connection, self._local.headers

    def _cookie(self) -> tuple[str, str]:
        """Return user and password from the cookie file.

        Raises NodeUnavailable if there is no file, NodeRefused if it cannot be read or is not a cookie.
        """
        assert self._cookie_file is not None  # noqa: S101 - __init__ demands a login or a cookie file
        try:
            user, colon, password = self._cookie_file.read_text(encoding="utf-8").strip().partition(":")
        except FileNotFoundError:
            raise NodeUnavailable(
                f"there is no cookie file {self._cookie_file}; the node at {self.url} writes it when it "
                "starts: is it running, with this datadir, and on the chain that --chain names?"
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

    def _parsed(self, response: Response, kept: Kept | None = None) -> Any:
        """Return the JSON of an answer, each object as `kept` returns it; NodeError if it is not JSON."""
        if response.encoding not in (None, "identity"):
            raise NodeError(f"{self.url} answered with Content-Encoding {excerpt(response.encoding)}")
        if sum(map(response.body.count, b",[{")) > MOST_VALUES:
            raise NodeError(
                f"{self.url} answered {self._local.method} with more than {counted(MOST_VALUES, 'value')}; "
                "is it a node's RPC port?"
            )
        try:
            return json.loads(
                response.body,
                parse_float=_decimal,
                parse_constant=_refuse_constant,
                object_hook=kept,
            )
        except (ValueError, RecursionError) as error:
            what = "with JSON that nests too deeply" if isinstance(error, RecursionError) else "without JSON"
            raise NodeError(
                f"{self.url} answered HTTP {response.status} {what}; is it a node's RPC port?"
            ) from None


def without(names: frozenset[str]) -> Kept:
    """Return what leaves the fields `names` out of each object, for `kept` of `RpcClient.call`."""

    def kept(found: dict[str, Any]) -> dict[str, Any]:
        if names.isdisjoint(found):
            return found
        return {name: value for name, value in found.items() if name not in names}

    return kept


def checked_url(url: str, *, allow_remote: bool = False) -> str:
    """Return `url` if it is an RPC address to which credentials may be sent; raise SettingsError otherwise.

    Plain HTTP is allowed to this machine only, or with `allow_remote` to any.
    """
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
    """Return a URL without the user and password in it."""
    scheme, slashes, rest = url.rpartition("://")
    return scheme + slashes + rest.rpartition("@")[2]


def _as_in_file(text: str) -> bytes:
    """Return a user or password read from bitcoin.conf as the bytes in that file, which may not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _decimal(text: str) -> Decimal:
    """Return the JSON number in `text` exactly; raise ValueError if it is too long or too large."""
    if len(text) <= LARGEST_EXPONENT and "e" not in text and "E" not in text:
        return Decimal(text)
    if len(text) <= LONGEST_NUMBER:
        with suppress(InvalidOperation):
            number = Decimal(text)
            if abs(number.adjusted()) <= LARGEST_EXPONENT:
                return number
    raise ValueError(f"{text[:LONGEST_NUMBER]} is out of range")


def _refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN, Infinity and -Infinity, which Python's JSON parser would accept."""
    raise ValueError(f"{name} is not JSON")


def _result(method: str, answer: Any) -> Any:
    """Return the result in the JSON-RPC `answer` to `method`; raise the error in it."""
    if not isinstance(answer, dict):
        raise NodeError(f"{method}: the answer is not a JSON-RPC object")
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(error, dict) or not isinstance(code, int):
        raise NodeError(f"{method}: the error in the answer is not a JSON-RPC error")
    message = excerpt(error.get("message", ""))
    if code == WARMING_UP:
        raise NodeUnavailable(f"the node is starting: {message}")
    raise RpcError(method, code, message)
