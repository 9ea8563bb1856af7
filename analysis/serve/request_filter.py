"""Refuse HTTP requests that do not come from a page of this server or from a program of its user.

A page of another site can make a browser send requests to loopback. Three rules keep it out: the Host header
must name this machine (against DNS rebinding), the request must not come from another origin, and where a
token is set it must be given. An IP address is no name, so it is served where a token is set, and one of
loopback always. Only GET and HEAD exist.
"""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from analysis.serve.answers import problem
from collector.loopback import is_loopback

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Colours of charts and keys are style attributes, which cannot load anything; style sheets are our own files.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "connection": "close",
    }
)


class RequestFilter:
    """Wraps an ASGI application: refuses requests of strangers, and adds the headers that protect a page.

    `hosts` are the host names under which the pages are served besides those of loopback.
    """

    def __init__(self, app: App, *, hosts: Iterable[str] = (), token: str = "") -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one HTTP request on to the application, or refuse it with one sentence."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        refusal = self._refusal(scope["method"], scope["path"], headers)

        async def send_protected(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in own if pair[0] not in given)]
            await send(message)

        if refusal is None:
            await self._app(scope, receive, send_protected)
            return
        status, sentence = refusal
        answer = problem(status, sentence)
        if status == HTTPStatus.UNAUTHORIZED:
            answer.headers["www-authenticate"] = 'Basic realm="pool-analysis", charset="UTF-8"'
        await answer(scope, receive, send_protected)

    def _refusal(self, method: str, path: str, headers: Mapping[str, list[str]]) -> tuple[int, str] | None:
        """Return the HTTP status and the sentence that refuse a request; None if it is served."""
        if method not in ("GET", "HEAD"):
            return (
                HTTPStatus.METHOD_NOT_ALLOWED,
                "Nothing can be changed here; only GET and HEAD are answered.",
            )
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._is_ours(_host_name(hosts[0])):
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                "The page is not served under this host name; add it with --host if it is yours.",
            )
        if _is_foreign(path, hosts[0], headers):
            return HTTPStatus.FORBIDDEN, "Requests from pages of another origin are refused."
        if self._token and not _has_token(headers, self._token):
            return (
                HTTPStatus.UNAUTHORIZED,
                "A token is needed: as bearer token, or as password with any name.",
            )
        return None

    def _is_ours(self, name: str) -> bool:
        """Return whether the server answers to a host name of a request.

        Rebinding needs a name that leads elsewhere later, so with a token any IP address will do, and those
        of loopback without one.
        """
        return is_loopback(name) or name in self._hosts or (bool(self._token) and _is_ip_address(name))


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port; empty if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_foreign(path: str, host: str, headers: Mapping[str, list[str]]) -> bool:
    """Return whether a page of another origin made the browser send a request.

    A link from another site to one of our pages is no such request: the browser shows our page itself.
    """
    for origin in headers.get("origin", []):
        try:
            if urlsplit(origin).netloc.lower() != host.lower():
                return True
        except ValueError:
            return True
    site = headers.get("sec-fetch-site", ["none"])[0]
    if site in ("same-origin", "none"):
        return False
    mode, target = headers.get("sec-fetch-mode", [""])[0], headers.get("sec-fetch-dest", [""])[0]
    return path.startswith("/api/") or (mode, target) != ("navigate", "document")


def _has_token(headers: Mapping[str, list[str]], token: str) -> bool:
    """Return whether a request carries the token, as bearer token or as password of basic authentication."""
    for given in headers.get("authorization", []):
        scheme, _, credentials = given.partition(" ")
        if scheme.lower() == "basic":
            try:
                decoded = base64.b64decode(credentials.strip(), validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                continue
            credentials = decoded.partition(":")[2]
        if hmac.compare_digest(credentials.strip().encode(), token.encode()):
            return True
    return False
