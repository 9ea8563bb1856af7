"""Put the web pages and the API together as one ASGI application over a database."""

import hashlib
import math
import sys
import traceback
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.middleware.gzip import GZipMiddleware
from prometheus_client import CONTENT_TYPE_LATEST

from analysis.errors import AnalysisError, MomentError, NoMomentError
from analysis.serve.answers import problem
from analysis.serve.api import UnknownParameterError, api_router, csv_router
from analysis.serve.kept import MOMENT_S, MOMENTARY, KeptAnswers
from analysis.serve.live_feed import LiveFeed
from analysis.serve.lookups import NotFoundError
from analysis.serve.metrics import metrics
from analysis.serve.pages import page_router, refusal_page
from analysis.serve.request_filter import App, Receive, RequestFilter, Scope, Send
from analysis.serve.results import BusyError, NotBuiltError, Results
from analysis.serve.webhooks import Webhook

MIN_GZIP_BYTES: Final = 1000
OPENAPI_PATH: Final = "/api/v1/openapi.json"


def application(
    results: Results,
    live: LiveFeed | None = None,
    *,
    webhooks: Sequence[Webhook] = (),
    hosts: Iterable[str] = (),
    token: str = "",
) -> App:
    """Return the whole ASGI application, pages and API, behind the filter that refuses strangers' requests.

    `live` follows a collector, if one is followed; the metrics count what became of the `webhooks`. `hosts`
    are the host names allowed besides loopback, `token` may be empty.
    """
    app = _api(results)
    app.include_router(page_router(results, live))
    _add_metrics(app, results, webhooks)
    _add_errors(app)
    return RequestFilter(
        Revalidation(GZipMiddleware(app, minimum_size=MIN_GZIP_BYTES), results), hosts=hosts, token=token
    )


def description() -> dict[str, Any]:
    """Return the OpenAPI document of the API, as served at OPENAPI_PATH; no database is needed."""
    app = _api(cast("Results", None))  # a route asks for results only when it answers
    _add_metrics(app, cast("Results", None), ())
    return app.openapi()


def _api(results: Results) -> FastAPI:
    """Return a FastAPI application with the routes of the API and of CSV files alone."""
    # The pages of documentation that FastAPI offers would load scripts from elsewhere.
    app = FastAPI(
        title="pool-analysis",
        version="1",
        description="Measurements of Bitcoin mining pools by one's own node, for reading only.",
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # such a redirect names a host and http, which a proxy may have changed
    )
    app.include_router(api_router(results))
    app.include_router(csv_router(results))
    return app


def _add_metrics(app: FastAPI, results: Results, webhooks: Sequence[Webhook]) -> None:
    @app.get("/metrics", summary="The results as metrics for Prometheus")
    def show_metrics() -> Response:
        return Response(
            results.read(lambda reader: metrics(reader, webhooks)),
            media_type=CONTENT_TYPE_LATEST,
            headers={"cache-control": "no-store"},  # the webhooks' counts are not those of a build
        )


class Revalidation:
    """Adds an ETag to each HTTP answer, and answers 304 where the client has the newest one already.

    An answer depends on the build, our version and the address alone, so its ETag needs no query. For the
    same reason an answer is kept and given again until the next build, unless it says no-store. An answer
    that says MOMENTARY depends on the time as well: it is kept for seconds, and has no ETag. This class
    stands behind RequestFilter, so no answer, kept or not, goes to a request that is refused.
    """

    def __init__(self, app: App, results: Results) -> None:
        self._app = app
        self._results = results
        self._kept = KeptAnswers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request: with 304, with a kept answer, or with that of the wrapped application."""
        address = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
        version = self._results.version
        seed = f"{version} {address}"
        tag = f'W/"{hashlib.sha256(seed.encode()).hexdigest()[:24]}"'.encode()
        headers = [(b"etag", tag), (b"cache-control", b"no-cache"), (b"vary", b"accept-encoding")]
        given = b", ".join(value for name, value in scope["headers"] if name == b"if-none-match")
        if tag in given.split(b", "):
            await send({"type": "http.response.start", "status": HTTPStatus.NOT_MODIFIED, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return

        takes_gzip = any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])
        key = (version, scope["path"], scope["query_string"], takes_gzip)
        kept = self._kept.find(key)
        if kept is not None:
            for message in kept:
                await send(dict(message))
            return
        sent: list[dict[str, Any]] = []

        async def send_tagged(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
                given = dict(message["headers"]).get(b"cache-control", b"")
                if given not in (b"no-store", MOMENTARY.encode()):
                    others = [pair for pair in message["headers"] if pair[0] != b"vary"]
                    message["headers"] = [*others, *headers]
                if given != b"no-store":
                    sent.append(dict(message))
            elif sent:
                sent.append(dict(message))
                # A build that came meanwhile may have answered, so its answer is not kept as the older one's.
                if not message.get("more_body", False) and self._results.version == version:
                    is_momentary = (b"cache-control", MOMENTARY.encode()) in sent[0]["headers"]
                    self._kept.keep(key, sent, for_s=MOMENT_S if is_momentary else math.inf)
            await send(message)

        # FastAPI answers HEAD only where it is asked to; the listener leaves the body out.
        await self._app(scope | {"method": "GET"}, receive, send_tagged)


def _add_errors(app: FastAPI) -> None:
    """Add handlers that answer each error with one plain sentence, which names no path of the server."""

    @app.exception_handler(AnalysisError)
    def failed(request: Request, error: AnalysisError) -> Response:
        if isinstance(error, UnknownParameterError | NoMomentError):
            return refused(request, HTTPStatus.UNPROCESSABLE_ENTITY, _sentence(str(error)))
        if isinstance(error, NotFoundError | MomentError):
            return refused(request, HTTPStatus.NOT_FOUND, _sentence(str(error)))
        if isinstance(error, BusyError | NotBuiltError):
            return refused(request, HTTPStatus.SERVICE_UNAVAILABLE, _sentence(str(error)))
        sys.stderr.write(f"{request.url.path!r}: {error}\n")
        sentence = "The server cannot read its database; its output says why."
        return refused(request, HTTPStatus.SERVICE_UNAVAILABLE, sentence)

    @app.exception_handler(RequestValidationError)
    def misasked(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        sentence = f"The value of {first['loc'][-1]} cannot be used: {first['msg'].lower()}."
        return refused(request, HTTPStatus.UNPROCESSABLE_ENTITY, sentence)

    @app.exception_handler(HTTPException)
    @app.exception_handler(HTTPStatus.NOT_FOUND)
    def unknown(request: Request, _error: Exception) -> Response:
        return refused(
            request, HTTPStatus.NOT_FOUND, "There is no such page; /api/v1/openapi.json names all."
        )

    @app.exception_handler(Exception)
    def broken(request: Request, error: Exception) -> Response:
        traceback.print_exception(error, file=sys.stderr)
        return refused(
            request,
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "The server failed; its output says where, please report it.",
        )


def refused(request: Request, status: int, sentence: str) -> Response:
    """Return the HTTP response to a failed request: problem JSON for the API, CSV and feed, else a page."""
    path = request.url.path
    if path.startswith("/api/") or path.endswith((".csv", ".atom")):
        return problem(status, sentence)
    return refusal_page(status, sentence)


def _sentence(text: str) -> str:
    """Return a text as a sentence: with a capital, unless it begins with a name, and with a full stop."""
    first = text[:1].upper() if text.split(" ", maxsplit=1)[0].isalpha() else text[:1]
    return f"{first}{text[1:].rstrip('.')}."
