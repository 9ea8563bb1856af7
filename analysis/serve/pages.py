"""Serve the web pages: now, pools, blocks, transactions, mempool, coverage, questions, findings, methods.

Every page is whole HTML that reads without a script. Texts of strangers are escaped by the templates, and
their controls are made visible by `printable`.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from analysis.report import text
from analysis.report.data import UNKNOWN, is_template_judged
from analysis.report.page import CHAINS, prose, source_name
from analysis.report.saved_files import csv_download, svg_download
from analysis.report.sections import METHODS, TOPICS, policy
from analysis.row_output import is_height_key, plain
from analysis.serve import drawing, lookups
from analysis.serve.build_findings import found_answers, report_marts
from analysis.serve.differences import differences
from analysis.serve.events import events
from analysis.serve.feed import atom
from analysis.serve.kept import MOMENTARY
from analysis.serve.live_feed import LiveFeed
from analysis.serve.lookups import WINDOWS, NotFoundError
from analysis.serve.mempool import replayed, steps_by_time
from analysis.serve.prepared import section, stack
from analysis.serve.results import Reader, Results
from analysis.serve.transactions import MOST_ROWS, transaction
from collector.dataset.schema import hash_hex

N_NEWEST: Final = 24
ASK_AGAIN_S: Final = 30  # until the first build is there
N_LISTED: Final = 50
N_COLOURS: Final = 8
MAX_ID_DIGITS: Final = 20
WINDOW_WORDS: Final = {
    "24h": "24 hours",
    "7d": "7 days",
    "30d": "30 days",
    "1y": "1 year",
    "all": "all blocks",
}
NAVIGATION: Final = {
    "/": "Now",
    "/pools": "Pools",
    "/blocks": "Blocks",
    "/mempool": "Mempool",
    "/questions": "Questions",
    "/findings": "Findings",
    "/coverage": "Coverage",
    "/methods": "Methods",
}
FIRST_SHOWN: Final = ("30d", "7d", "24h")  # of pools, the first of these windows that the dataset holds
# The files that a browser may ask for, with their folder and kind; all are of this package.
STATIC: Final = {
    "report.css": ("analysis.report", "templates", "text/css"),
    "serve.css": ("analysis.serve", "templates", "text/css"),
    "report.js": ("analysis.report", "templates", "text/javascript"),
    "serve.js": ("analysis.serve", "templates", "text/javascript"),
    "plots.js": ("analysis.serve", "templates", "text/javascript"),
    "uPlot.iife.min.js": ("analysis.serve", "uplot", "text/javascript"),
    "uPlot.min.css": ("analysis.serve", "uplot", "text/css"),
}
PageQuery = Annotated[int, Query(ge=1, le=1_000_000, description="number of the page")]


def page_router(results: Results, live: LiveFeed | None = None) -> APIRouter:
    """Return the routes of the web pages over a database; the API's description does not list them.

    With `live` the page "now" shows new blocks as they come.
    """
    router = APIRouter(include_in_schema=False)
    _add_static(router)
    _add_now(router, results, live)
    _add_pools(router, results)
    _add_blocks(router, results)
    _add_mempool(router, results)
    _add_topics(router, results)
    _add_texts(router, results)
    return router


def refusal_page(status: int, sentence: str) -> Response:
    """Return the HTML page for a request that is refused or failed; it gives the reason in one sentence."""
    page = _environment().get_template("serve/refusal.html.j2")
    head = "Not now" if status == HTTPStatus.SERVICE_UNAVAILABLE else "Not here"
    written = page.render(_frame("", "No page"), head=head, sentence=sentence)
    return HTMLResponse(written, status_code=status)


def _waiting_page(*, is_live: bool) -> Response:
    """Return the page "now" before the first build; the browser asks again until there is one."""
    page = _environment().get_template("serve/waiting.html.j2")
    written = page.render(_frame("/", "Now"), is_live=is_live)
    headers = {"refresh": str(ASK_AGAIN_S), "retry-after": str(ASK_AGAIN_S), "cache-control": "no-store"}
    return HTMLResponse(written, status_code=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)


def _add_static(router: APIRouter) -> None:
    @router.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in STATIC:
            raise NotFoundError("there is no such file")
        package, folder, kind = STATIC[name]
        content = (resources.files(package) / folder / name).read_text(encoding="utf-8")
        return Response(content, media_type=f"{kind}; charset=utf-8")


def _add_now(router: APIRouter, results: Results, live: LiveFeed | None) -> None:
    @router.get("/")
    def now() -> Response:
        def built(reader: Reader) -> dict[str, Any]:
            spanned = lookups.spanned_windows(reader)
            window = spanned[0] if spanned else "all"
            return {
                "blocks": lookups.blocks(reader, limit=N_NEWEST),
                "pools": lookups.pools(reader, window),
                "window": window,
                "covered": lookups.covered(reader),
            }

        def facts(reader: Reader) -> dict[str, Any]:
            fresh = {"at": dt.datetime.now(dt.UTC), "is_live": live is not None}
            return reader.cached("now", built) | fresh

        if results.lacks_build:
            return _waiting_page(is_live=live is not None)
        answer = _shown(results, "now.html.j2", "/", "Now", facts)
        answer.headers["cache-control"] = MOMENTARY  # it says how old the newest observation is
        return answer

    @router.get("/live")
    def stream(request: Request) -> Response:
        if live is None:
            raise NotFoundError("no collector is followed; start with --collector http://127.0.0.1:9733")
        given = request.headers.get("last-event-id", "")
        last_id = int(given) if given.isascii() and given.isdigit() and len(given) < MAX_ID_DIGITS else None
        headers = {"cache-control": "no-store"}
        return StreamingResponse(live.stream(last_id), media_type="text/event-stream", headers=headers)


def _add_pools(router: APIRouter, results: Results) -> None:
    @router.get("/pools")
    def pools(window: Annotated[str | None, Query(max_length=20)] = None) -> Response:
        def facts(reader: Reader) -> dict[str, Any]:
            spanned = lookups.spanned_windows(reader)
            chosen = window or next((name for name in FIRST_SHOWN if name in spanned), "all")
            return {
                "pools": lookups.pools(reader, chosen),
                "window": chosen,
                "spanned": spanned,
                "stack": stack(reader, results.database),
            }

        return _shown(results, "pools.html.j2", "/pools", "Pools", facts)

    @router.get("/pools/{slug}")
    def one_pool(slug: str) -> Response:
        def facts(reader: Reader) -> dict[str, Any]:
            pool = lookups.pool(reader, slug)
            marts = {part.mart: pool[name] for name, part in lookups.POOL_PARTS.items()}
            is_unknown = pool["pool"] == UNKNOWN
            return {
                "pool": pool,
                "runs": policy.in_words(marts),
                "is_looked_at": policy.is_looked_at(marts),
                "is_unknown": is_unknown,
                "title": text.printable(pool["pool_name"]),
            }

        return _shown(results, "pool.html.j2", "/pools", "Pool", facts)


def _add_blocks(router: APIRouter, results: Results) -> None:
    @router.get("/blocks")
    def blocks(page: PageQuery = 1, pool: Annotated[str | None, Query(max_length=80)] = None) -> Response:
        def facts(reader: Reader) -> dict[str, Any]:
            offset = (page - 1) * N_LISTED
            found = lookups.blocks(reader, limit=N_LISTED + 1, offset=offset, pool=pool)
            return {"blocks": found[:N_LISTED], "has_more": len(found) > N_LISTED, "page": page, "pool": pool}

        return _shown(results, "blocks.html.j2", "/blocks", "Blocks", facts)

    @router.get("/blocks/{named}")
    def one_block(named: str) -> Response:
        def facts(reader: Reader) -> dict[str, Any]:
            block = lookups.block(reader, named)
            differing = differences(reader, block["block_hash"], block["height"])
            return {"block": block, "differing": differing, "title": f"Block {text.count(block['height'])}"}

        return _shown(results, "block.html.j2", "/blocks", "Block", facts)

    @router.get("/tx/{txid}")
    def one_transaction(txid: str) -> Response:
        return _shown(
            results,
            "transaction.html.j2",
            "/blocks",
            "Transaction",
            lambda reader: {"tx": transaction(reader, txid), "most_rows": MOST_ROWS},
        )

    @router.get("/search")
    def search(q: Annotated[str, Query(max_length=200)] = "") -> Response:
        return RedirectResponse(results.read(lambda reader: lookups.find(reader, q)), status_code=303)


def _add_mempool(router: APIRouter, results: Results) -> None:
    @router.get("/mempool")
    def mempool(
        at: Annotated[str | None, Query(max_length=80)] = None,
        node: Annotated[str | None, Query(max_length=80)] = None,
        page: PageQuery = 1,
    ) -> Response:
        def facts(reader: Reader) -> dict[str, Any]:
            found = replayed(reader, at, node, limit=N_LISTED + 1, offset=(page - 1) * N_LISTED)
            return {"found": found, "by_time": steps_by_time(found["at"]), "page": page, "n_listed": N_LISTED}

        return _shown(results, "mempool.html.j2", "/mempool", "Mempool", facts)


def _add_topics(router: APIRouter, results: Results) -> None:
    @router.get("/questions")
    def topics() -> Response:
        return _shown(
            results, "questions.html.j2", "/questions", "Questions", lambda _reader: {"topics": TOPICS}
        )

    @router.get("/questions/{topic_id}")
    def one_topic(topic_id: str) -> Response:
        topic = next((each for each in TOPICS if each.section_id == topic_id), None)
        if topic is None:
            raise NotFoundError("there is no such question; /questions lists all")

        def facts(reader: Reader) -> dict[str, Any]:
            drawn, lacking = section(reader, results.database, topic)
            return {"section": drawn, "lacking": lacking}

        return _shown(results, "question.html.j2", "/questions", topic.title, facts)


def _add_texts(router: APIRouter, results: Results) -> None:
    @router.get("/coverage")
    def coverage() -> Response:
        return _shown(
            results,
            "coverage.html.j2",
            "/coverage",
            "Coverage",
            lambda reader: {
                "coverage": lookups.coverage(reader),
                "drawn": lookups.drawn_coverage(reader, drawing.COURSE_WIDTH),
                "most_listed": lookups.MOST_LISTED,
            },
        )

    @router.get("/findings")
    def findings() -> Response:
        return _shown(
            results,
            "findings.html.j2",
            "/findings",
            "Findings",
            lambda reader: {"findings": found_answers(reader, results.database), "events": events(reader)},
        )

    @router.get("/findings.atom")
    def feed() -> Response:
        return results.read(
            lambda reader: Response(
                atom(found_answers(reader, results.database), events(reader), reader.facts),
                media_type="application/atom+xml",
            )
        )

    @router.get("/methods")
    def methods() -> Response:
        return _shown(
            results,
            "methods.html.j2",
            "/methods",
            "Methods",
            lambda reader: {"section": METHODS[0].section(report_marts(reader, results.database))[0]},
        )


def _shown(
    results: Results, name: str, path: str, title: str, facts: Callable[[Reader], Mapping[str, Any]]
) -> Response:
    """Query the facts of a page and return the page as HTML; `path` is its part of the navigation."""

    def write(reader: Reader) -> Response:
        page = _environment().get_template(f"serve/{name}")
        known = {
            **_frame(path, title),
            "chain": CHAINS.get(reader.facts.get("chain", ""), "an unnamed chain"),
            "built_at": reader.facts.get("built_at", ""),
            "colours": reader.cached("colours", _colours),
            "pool_names": reader.cached("pool_names", _pool_names),
        }
        return HTMLResponse(page.render({**known, **facts(reader)}))

    return results.read(write)


def _frame(path: str, title: str) -> dict[str, Any]:
    """Return the values that the template of every page needs, such as title and navigation."""
    return {
        "title": title,
        "path": path,
        "navigation": NAVIGATION,
        "windows": WINDOW_WORDS,
        "chain": "",
        "built_at": "",
        "colours": {},
        "pool_names": {},
    }


def _pool_names(reader: Reader) -> dict[str, str]:
    """Return the name for people of each pool that a rule knows."""
    return {row["slug"]: row["name"] for row in reader.rows("SELECT slug, name FROM pools")}


def _colours(reader: Reader) -> dict[str, str]:
    """Return the CSS colour of each pool: the eight largest have one each."""
    ranked = reader.rows(
        "SELECT pool FROM pool_share WHERE NOT is_unknown ORDER BY rank, pool LIMIT ?", N_COLOURS
    )
    named = {row["pool"]: f"var(--pool-{place})" for place, row in enumerate(ranked, start=1)}
    return named | {"unknown": "var(--unknown)"}


@cache
def _environment() -> Environment:
    """Return a Jinja environment with our templates, the report's, and filters that format values."""
    loaders = {
        "serve": PackageLoader("analysis.serve", "templates"),
        "report": PackageLoader("analysis.report", "templates"),
    }
    environment = Environment(
        loader=PrefixLoader(loaders),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = (text.count, text.percent, text.percent_range, text.bitcoin, text.duration, text.decimal)
    writers = (*numbers, text.exact_bitcoin, text.plural, source_name)
    environment.filters |= {writer.__name__: writer for writer in writers}
    environment.filters |= {
        "printable": text.text_of,
        "whole": lambda value: text.printable(value, max_length=100_000),
        "points": text.share_change,
        "p_value": text.p_value,
        "hash": hash_hex,
        "block_name": _block_name,
        "moment": _moment,
        "sort_key": _sort_key,
        "iso": plain,
        "as_text": _as_text,
        "prose": prose,
        "csv_download": csv_download,
        "svg_download": svg_download,
        "methods_linked": _methods_linked,
    }
    environment.globals |= {
        "share_bar": drawing.share_bar,
        "size_bar": drawing.size_bar,
        "course": drawing.course,
        "course_plot": drawing.course_plot,
        "has_plots": True,
        "json_of": "/api/v1/marts/",
        "cover_bar": drawing.cover_bar,
        "WINDOWS": tuple(WINDOWS),
        "NOTHING": text.NOTHING,
        "FEATURES": policy.FEATURES,
        "is_height_key": is_height_key,
        "is_template_judged": is_template_judged,
    }
    return environment


def _block_name(block: Mapping[str, Any]) -> str:
    """Return what names a block in an address: its hash, or its height where nobody knows the hash."""
    return str(block["height"]) if is_height_key(block["block_hash"]) else hash_hex(block["block_hash"])


def _moment(at: dt.datetime | dt.date | None) -> Markup:
    """Return a UTC time or day as an HTML `time` element, with its machine-readable form."""
    if at is None:
        return Markup(text.NOTHING)  # noqa: S704 - a constant
    written = at.isoformat().replace("+00:00", "Z")
    return Markup('<time datetime="{}">{}</time>').format(written, text.moment(at))


def _sort_key(value: float | None) -> float | str:
    """Return what the cell of a table is sorted by: the value, or an empty text, which stands last."""
    return "" if value is None else value


def _as_text(script: str) -> str:
    """Return a script given in hex as UTF-8 text, with everything that is not printable made visible."""
    return text.printable(bytes.fromhex(script).decode("utf-8", "replace"), max_length=1000)


def _methods_linked(markup: Markup) -> Markup:
    """Return HTML in which the report's links to a method lead to the page of methods."""
    return Markup(str(markup).replace('href="#method-', 'href="/methods#method-'))  # noqa: S704 - was markup
