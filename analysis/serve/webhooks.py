"""Send new events to webhooks, servers of the owner's choice: signed, retried, bounded, in threads apart.

Each webhook has a thread and a queue of its own, so one that hangs delays nothing else. A redirect is a
failure: the body goes only where the owner sends it. Events that are known at the start are not sent.
"""

import hashlib
import hmac
import ipaddress
import json
import queue
import socket
import threading
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import typer

from analysis.errors import AnalysisError, ServeError
from analysis.row_output import inert, plain
from analysis.serve.events import TITLES, Event, events
from analysis.serve.results import NotBuiltError, Results

POLL_S: Final = 5.0
TIMEOUT_S: Final = 10.0
MAX_QUEUED: Final = 1000
MAX_TRIES: Final = 8
FIRST_WAIT_S: Final = 1.0  # it doubles with each try
LONGEST_WAIT_S: Final = 300.0
MIN_SECRET_LENGTH: Final = 16
KEYS: Final = frozenset({"url", "secret", "kinds"})
HOW: Final = "write [[webhook]] with url and secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Describes one webhook: the URL to send events to, the secret to sign them, and the kinds to send."""

    url: str
    secret: str
    kinds: frozenset[str] = frozenset(TITLES)

    @property
    def host(self) -> str:
        """Return scheme and host of the URL; its path is often a secret, so no message shows that."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}"


def read_targets(file: Path) -> list[Target]:
    """Return the webhooks that a TOML file lists.

    Raises ServeError, which names the entry, for one that cannot be used.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ServeError(f"the webhooks in {file} cannot be read: {error}") from None
    entries = content.get("webhook")
    if set(content) != {"webhook"} or not isinstance(entries, list):
        raise ServeError(f"{file} names no webhook; {HOW}")
    if not all(isinstance(entry, dict) for entry in entries):
        raise ServeError(f"{file} has a webhook that is no table; {HOW}")
    return [_target(entry, f"{file}: webhook {number}") for number, entry in enumerate(entries, 1)]


def _target(entry: Mapping[str, Any], where: str) -> Target:
    unknown = sorted(set(entry) - KEYS)
    if unknown:
        raise ServeError(f"{where} has the unknown key {unknown[0]}; the keys are {', '.join(sorted(KEYS))}")
    url, secret, kinds = entry.get("url"), entry.get("secret"), entry.get("kinds", sorted(TITLES))
    if not isinstance(url, str) or not isinstance(secret, str) or not isinstance(kinds, list):
        raise ServeError(f"{where} lacks a text or a list; {HOW}")
    if len(secret) < MIN_SECRET_LENGTH:
        raise ServeError(
            f"{where} has a secret below {MIN_SECRET_LENGTH} characters; `openssl rand -hex 16` makes one"
        )
    wrong = [kind for kind in kinds if not isinstance(kind, str) or kind not in TITLES]
    if wrong or not kinds:
        raise ServeError(f"{where} has no known kind {wrong}; the kinds are {', '.join(TITLES)}")
    target = Target(url=url, secret=secret, kinds=frozenset(kinds))
    reason = refusal(url)
    if reason:
        raise ServeError(f"{where} is refused: {reason}")
    return target


def refusal(url: str) -> str:
    """Return why no event is sent to a URL; an empty text if it may be used.

    Link-local addresses are those of a cloud's own services; they, multicast and 0.0.0.0 are no webhook. A
    name that is not known now may be known later, so it is no reason.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme not in ("http", "https") or not host:
        return "write http://HOST/ or https://HOST/"
    if parts.username is not None:
        return "it has a user name; the signature proves who sends"
    try:
        found = socket.getaddrinfo(host, port or parts.scheme, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return "" if isinstance(error, OSError) else f"{host} can be no name of a host"
    for *_, address in found:
        number = ipaddress.ip_address(str(address[0]).partition("%")[0])
        number = getattr(number, "ipv4_mapped", None) or number
        if number.is_link_local or number.is_multicast or number.is_unspecified:
            return f"{host} is {number}, which is link-local, multicast or no address"
    return ""


def signature(secret: str, sent_at: str, body: bytes) -> str:
    """Return the signature of a body: HMAC-SHA256 of `sent_at`, a full stop and the body, in hex."""
    return hmac.new(secret.encode(), sent_at.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """Sends events to one webhook, one after the other, in a thread of its own until `close`."""

    def __init__(
        self, target: Target, *, first_wait_s: float = FIRST_WAIT_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.target = target
        self.counts: Counter[str] = Counter()  # sent, failed (a try), dropped
        self._first_wait_s = first_wait_s
        self._timeout_s = timeout_s
        self._waiting: queue.Queue[Event] = queue.Queue(MAX_QUEUED)
        self._stopping = threading.Event()
        self._http = requests.Session()
        self._http.trust_env = False
        threading.Thread(target=self._run, name="webhook", daemon=True).start()

    def tell(self, event: Event) -> None:
        """Queue an event to be sent, and return at once; if the queue is full, drop and count the event."""
        if event.kind in self.target.kinds:
            try:
                self._waiting.put_nowait(event)
            except queue.Full:
                self._drop("its queue is full")

    def close(self) -> None:
        """Stop the thread that sends events; those that were not sent are lost."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                event = self._waiting.get(timeout=POLL_S)
            except queue.Empty:
                continue
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        wait_s, reason = self._first_wait_s, ""
        for number in range(MAX_TRIES):
            if number and self._stopping.wait(wait_s):
                return
            wait_s = min(2 * wait_s, LONGEST_WAIT_S) if number else wait_s
            reason = refusal(self.target.url) or self._send(event)
            if not reason:
                self.counts["sent"] += 1
                return
            self.counts["failed"] += 1
        self._drop(reason)

    def _send(self, event: Event) -> str:
        """Send one event to the webhook; return why it was not accepted, or an empty text."""
        content = {**event._asdict(), "title": TITLES[event.kind]}
        body = json.dumps(plain(content)).encode()
        sent_at = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "user-agent": "pool-analysis",
            "x-pool-analysis-event": hashlib.sha256(event.event_id.encode()).hexdigest(),
            "x-pool-analysis-time": sent_at,
            "x-pool-analysis-signature": f"sha256={signature(self.target.secret, sent_at, body)}",
        }
        try:
            with self._http.post(
                self.target.url,
                body,
                headers=headers,
                timeout=self._timeout_s,
                allow_redirects=False,
                stream=True,
            ) as answer:
                if answer.is_redirect:
                    return "it redirects; name the address where events are taken"
                return "" if answer.ok else f"it answers {answer.status_code}"
        except (requests.RequestException, ValueError, OSError) as error:
            return f"it cannot be reached ({type(error).__name__})"

    def _drop(self, reason: str) -> None:
        typer.echo(f"pool-analysis: an event was not told to {inert(self.target.host)}: {reason}", err=True)
        self.counts["dropped"] += 1  # last: who sees it finds the line as well


class Alerts:
    """Finds new events after each build, and sends them to webhooks, in a thread of its own."""

    def __init__(self, results: Results, webhooks: Sequence[Webhook]) -> None:
        self.webhooks = webhooks
        self._results = results
        self._looking = threading.Lock()
        self._version = ""  # of the last build that was looked at
        self._seen: set[str] | None = None  # ids of the events of all builds; None before the first one
        self._complaint = ""  # what was said last; empty where nothing is wrong
        self._stopping = threading.Event()
        self._try()
        threading.Thread(target=self._run, name="alerts", daemon=True).start()

    def look(self) -> None:
        """Queue for the webhooks each event that no build before the newest had, the oldest first.

        What the first build has is not queued.
        """
        with self._looking:
            version = self._results.version
            if version == self._version or self._results.lacks_build:
                return
            found = self._results.read(events)
            seen = {event.event_id for event in found} if self._seen is None else self._seen
            for event in reversed(found):
                if event.event_id not in seen:
                    for webhook in self.webhooks:
                        webhook.tell(event)
            self._seen = seen | {event.event_id for event in found}
            self._version = version

    def close(self) -> None:
        """Stop the thread that finds events, and those of the webhooks."""
        self._stopping.set()
        for webhook in self.webhooks:
            webhook.close()

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            self._try()

    def _try(self) -> None:
        """Look for new events; say once why that fails, and let the next call try again."""
        try:
            self.look()
        except NotBuiltError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever fails now may not fail with the next build
            told = [str(error)] if isinstance(error, AnalysisError) else traceback.format_exception(error)
            reason = "\n".join(inert(line) for line in "".join(told).splitlines())
            if reason != self._complaint:
                typer.echo(f"pool-analysis: events are not looked for: {reason}", err=True)
            self._complaint = reason
        else:
            self._complaint = ""
