"""Answer /api/v1: pools, blocks, transactions, marts, coverage and findings as JSON and CSV."""

from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.routing import APIRoute

from analysis.catalog import Model, load_catalog
from analysis.errors import AnalysisError
from analysis.mempool_at import LISTED_COLUMNS, said
from analysis.serve import lookups
from analysis.serve.answers import Answer, Problem, csv_answer, envelope, json_answer, one_object
from analysis.serve.build_findings import found_answers
from analysis.serve.differences import differences
from analysis.serve.events import events
from analysis.serve.lookups import WINDOWS, NotFoundError
from analysis.serve.mempool import replay, replayed
from analysis.serve.results import Reader, Results, Row
from analysis.serve.transactions import transaction

MAX_ROWS: Final = 1000
MAX_CSV_ROWS: Final = 10_000
LONGEST_NAME: Final = 80
PLACES: Final = frozenset({"dataset", "parts"})  # facts of a build that name folders of the server

WindowQuery = Annotated[
    str,
    Query(
        max_length=LONGEST_NAME,
        description=f"time window: {', '.join(WINDOWS)}; one that the dataset does not hold means all blocks",
    ),
]
LimitQuery = Annotated[int, Query(ge=1, le=MAX_ROWS, description="largest number of rows")]
CsvLimitQuery = Annotated[int, Query(ge=1, le=MAX_CSV_ROWS, description="largest number of rows")]
OffsetQuery = Annotated[int, Query(ge=0, le=1_000_000_000, description="rows to leave out at the start")]
PoolQuery = Annotated[str | None, Query(max_length=LONGEST_NAME, description="slug of a pool")]
HeightQuery = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="height of a block")]
AtQuery = Annotated[
    str | None,
    Query(max_length=LONGEST_NAME, description="moment in UTC; without it the last one that was watched"),
]
NodeQuery = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="name of a node; without it the first watched one")
]
NamePath = Annotated[str, Path(max_length=LONGEST_NAME)]


class UnknownParameterError(AnalysisError):
    """Means that an address does not take a parameter of a request; the message names those it takes."""


def _refuse_unknown_parameters(request: Request) -> None:
    """Raise UnknownParameterError if the request has a parameter that its route does not take.

    A misspelt parameter would otherwise be left out, and the answer would be that to another question.
    """
    route: APIRoute = request.scope["route"]
    taken = [parameter.alias for parameter in route.dependant.query_params]
    if not request.query_params.keys() <= set(taken):
        names = f"it takes {', '.join(taken)}" if taken else "it takes none"
        raise UnknownParameterError(f"this address does not take such a parameter; {names}")


KNOWN_PARAMETERS: Final = Depends(_refuse_unknown_parameters)


def api_router(results: Results) -> APIRouter:
    """Return the routes of the API over a database."""
    router = APIRouter(
        prefix="/api/v1",
        dependencies=[KNOWN_PARAMETERS],
        responses={status: {"model": Problem} for status in (404, 422, 503)},
    )
    _add_pools(router, results)
    _add_blocks(router, results)
    _add_mempool(router, results)
    _add_rest(router, results)
    _add_marts(router, results)
    return router


def csv_router(results: Results) -> APIRouter:
    """Return the routes of CSV files: /pools.csv, /blocks.csv, /mempool.csv and /marts/NAME.csv."""
    router = APIRouter(
        dependencies=[KNOWN_PARAMETERS],
        responses={200: {"content": {"text/csv": {}}, "description": "CSV"}},
    )

    @router.get("/pools.csv", summary="Shares of all pools in a time window, as CSV")
    def pools_csv(window: WindowQuery = "30d") -> Response:
        def write(reader: Reader) -> Response:
            rows = lookups.pools(reader, window)
            columns = list(rows[0]) if rows else reader.columns("pool_share_window")
            return csv_answer(reader, rows, columns, f"pools-{window}")

        return results.read(write)

    @router.get("/blocks.csv", summary="Blocks, the highest first, as CSV")
    def blocks_csv(
        limit: CsvLimitQuery = MAX_ROWS,
        offset: OffsetQuery = 0,
        pool: PoolQuery = None,
        from_height: HeightQuery = None,
        to_height: HeightQuery = None,
    ) -> Response:
        def write(reader: Reader) -> Response:
            rows = lookups.blocks(
                reader, limit=limit, offset=offset, pool=pool, from_height=from_height, to_height=to_height
            )
            return csv_answer(reader, rows, list(rows[0]) if rows else ["block_hash", "height"], "blocks")

        return results.read(write)

    @router.get("/marts/{name}.csv", summary="Rows of any mart as CSV")
    def mart_csv(name: NamePath, limit: CsvLimitQuery = MAX_CSV_ROWS, offset: OffsetQuery = 0) -> Response:
        model = _mart(name)

        def write(reader: Reader) -> Response:
            rows = lookups.mart_rows(reader, model.name, limit=limit, offset=offset)
            return csv_answer(reader, rows, reader.columns(model.name), model.name)

        return results.read(write)

    _add_mempool_csv(router, results)
    return router


def _add_mempool_csv(router: APIRouter, results: Results) -> None:
    @router.get("/mempool.csv", summary="What waited at a moment, the best-paying first, as CSV")
    def mempool_csv(
        at: AtQuery = None,
        node: NodeQuery = None,
        limit: CsvLimitQuery = MAX_ROWS,
        offset: OffsetQuery = 0,
    ) -> Response:
        def write(reader: Reader) -> Response:
            found = replay(reader, at, node, limit=limit, offset=offset)
            if found.totals is None:
                raise NotFoundError(said(found.verdict))
            return csv_answer(reader, found.rows, LISTED_COLUMNS, "mempool")

        return results.read(write)


def _add_pools(router: APIRouter, results: Results) -> None:
    @router.get("/pools", response_model=Answer, summary="Share of every pool in a time window")
    def list_pools(window: WindowQuery = "30d") -> Response:
        return _answered(results, lambda reader: lookups.pools(reader, window))

    @router.get("/pools/{slug}", response_model=Answer, summary="All that is known of one pool")
    def one_pool(slug: NamePath) -> Response:
        return _answered(results, lambda reader: lookups.pool(reader, slug))


def _add_blocks(router: APIRouter, results: Results) -> None:
    @router.get("/blocks", response_model=Answer, summary="Blocks, the highest first, page by page")
    def list_blocks(
        limit: LimitQuery = 100,
        offset: OffsetQuery = 0,
        pool: PoolQuery = None,
        from_height: HeightQuery = None,
        to_height: HeightQuery = None,
    ) -> Response:
        asked = {"pool": pool, "from_height": from_height, "to_height": to_height}
        given = {name: value for name, value in asked.items() if value is not None}
        return _paged(
            results,
            lambda reader: lookups.blocks(
                reader,
                limit=limit + 1,
                offset=offset,
                pool=pool,
                from_height=from_height,
                to_height=to_height,
            ),
            ("/api/v1/blocks", given, limit, offset),
        )

    @router.get("/blocks/{block}", response_model=Answer, summary="One block, by hash or height")
    def one_block(block: NamePath) -> Response:
        def known(reader: Reader) -> dict[str, Any]:
            found = lookups.block(reader, block)
            return {**found, "differences": differences(reader, found["block_hash"], found["height"])}

        return _answered(results, known)

    @router.get("/transactions/{txid}", response_model=Answer, summary="One transaction, by txid")
    def one_transaction(txid: NamePath) -> Response:
        return _answered(results, lambda reader: transaction(reader, txid))


def _add_mempool(router: APIRouter, results: Results) -> None:
    @router.get("/mempool", response_model=Answer, summary="The mempool of a node as of any moment")
    def mempool(
        at: AtQuery = None,
        node: NodeQuery = None,
        limit: LimitQuery = 100,
        offset: OffsetQuery = 0,
    ) -> Response:
        return _answered(results, lambda reader: replayed(reader, at, node, limit=limit, offset=offset))


def _add_rest(router: APIRouter, results: Results) -> None:
    @router.get("/coverage", response_model=Answer, summary="What was observed, and what was not")
    def show_coverage() -> Response:
        return _answered(results, lookups.coverage)

    @router.get("/findings", response_model=Answer, summary="The findings, as sentences by question")
    def list_findings() -> Response:
        return _answered(
            results,
            lambda reader: [
                {"topic": each.section, "question": each.question, "sentences": list(each.sentences)}
                for each in found_answers(reader, results.database)
            ],
        )

    @router.get("/events", response_model=Answer, summary="What happened and when, the newest first")
    def list_events() -> Response:
        return _answered(results, lambda reader: [each._asdict() for each in events(reader)])

    @router.get("/build", response_model=Answer, summary="What the results rest on: versions, rules, dataset")
    def show_build() -> Response:
        return _answered(
            results,
            lambda reader: {name: value for name, value in reader.facts.items() if name not in PLACES},
        )


def _add_marts(router: APIRouter, results: Results) -> None:
    @router.get("/marts", response_model=Answer, summary="Every mart: its grain, its columns and what it is")
    def list_marts() -> Response:
        return _answered(
            results, lambda _reader: [_described(model) for model in load_catalog().layer("marts")]
        )

    @router.get("/marts/{name}", response_model=Answer, summary="Rows of any mart, page by page")
    def one_mart(name: NamePath, limit: LimitQuery = 100, offset: OffsetQuery = 0) -> Response:
        model = _mart(name)
        return _paged(
            results,
            lambda reader: lookups.mart_rows(reader, model.name, limit=limit + 1, offset=offset),
            (f"/api/v1/marts/{model.name}", {}, limit, offset),
        )


def _answered(results: Results, question: Callable[[Reader], Any]) -> Response:
    """Return the JSON response to a question about the newest build; `question` returns the data."""

    def write(reader: Reader) -> Response:
        data = question(reader)
        rows = one_object(data) if isinstance(data, dict) else data
        return json_answer(envelope(reader, data, rows=rows))

    return results.read(write)


def _paged(
    results: Results,
    question: Callable[[Reader], list[Row]],
    page: tuple[str, dict[str, Any], int, int],
) -> Response:
    """Return the JSON response with one page of rows, and a link to the next page if there are more.

    `page` is the path, the conditions, the largest number of rows, and the rows to leave out. `question`
    returns one row more than a page has, if there is one.
    """
    path, given, limit, offset = page

    def write(reader: Reader) -> Response:
        rows = question(reader)
        query = urlencode(given | {"limit": limit, "offset": offset + limit})
        following = f"{path}?{query}" if len(rows) > limit else None
        return json_answer(envelope(reader, rows[:limit], rows=rows[:limit], following=following))

    return results.read(write)


def _mart(name: str) -> Model:
    """Return the model of a mart by its name. Raises NotFoundError for any other name."""
    model = load_catalog().by_name.get(name)
    if model is None or model.layer != "marts":
        raise NotFoundError("there is no such mart; /api/v1/marts lists all")
    return model


def _described(model: Model) -> dict[str, Any]:
    """Return a mart's name, summary, grain and columns as a dict for JSON."""
    columns = [{"name": each.name, "type": each.type, "meaning": each.doc} for each in model.columns]
    return {"name": model.name, "summary": model.summary, "grain": list(model.grain), "columns": columns}
