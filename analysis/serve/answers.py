"""Make the answers of the API: JSON with its sources and coverage, CSV, and errors in one sentence.

Hashes are in display order, times in UTC (ISO 8601). JSON is ASCII, so no text of a stranger acts on a
terminal; CSV is as `pool-analysis show --format csv` writes it, so no text of a stranger runs in a
spreadsheet.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Response
from pydantic import BaseModel, Field

from analysis.row_output import plain, write_csv
from analysis.serve.lookups import covered, sources, told_by
from analysis.serve.results import Reader, Row


class Problem(BaseModel):
    """Describes an error of the API: why there is no answer (RFC 9457)."""

    type: str = Field(
        default="about:blank", description="always about:blank: the status says what kind it is"
    )
    title: str = Field(description="the words of the HTTP status")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="one sentence that says what happened and what to do")


class Covered(BaseModel):
    """Says how much of its time window one topic of one node was observed."""

    node: str = Field(description="name of the watched node")
    topic: str = Field(description="ZMQ topic: rawblock, rawtx, sequence; or mempool")
    from_at: str = Field(description="begin of the window, UTC")
    to_at: str = Field(description="end of the window, UTC")
    observed_ratio: float | None = Field(description="0..1, the part of the window that was observed")
    n_gaps: int = Field(description="holes in the observation")


class Answer(BaseModel):
    """Is the form of every JSON answer: the data, and what it rests on."""

    data: Any = Field(description="rows or one object; the columns are those of the marts (MARTS.md)")
    told_by: list[str] = Field(
        description="whose word the blocks are: observed, backfilled, or third parties"
    )
    coverage: list[Covered] = Field(description="how much was observed, per node and topic")
    chain: str | None = Field(description="main, test, testnet4, signet or regtest")
    built_at: str | None = Field(description="when the database was built, UTC")
    next: str | None = Field(default=None, description="address of the next page; null on the last one")


def envelope(reader: Reader, data: Any, *, rows: Iterable[Row] = (), following: str | None = None) -> Answer:
    """Return the Answer with `data`, the sources of `rows`, the coverage, and the build's chain and time.

    Sources are the values of `told_by` in `rows`; where they have none, those of all blocks.
    """
    named = ("node", "topic", "from_at", "to_at", "observed_ratio", "n_gaps")
    return Answer(
        data=plain(data),
        told_by=told_by(rows) or sources(reader),
        coverage=[Covered(**{name: plain(row[name]) for name in named}) for row in covered(reader)],
        chain=reader.facts.get("chain"),
        built_at=reader.facts.get("built_at"),
        next=following,
    )


def json_answer(answer: Answer) -> Response:
    """Return an HTTP response that holds an Answer as JSON in ASCII."""
    return Response(json.dumps(answer.model_dump(), allow_nan=False) + "\n", media_type="application/json")


def csv_answer(reader: Reader, rows: Sequence[Row], columns: Sequence[str], name: str) -> Response:
    """Return an HTTP response that holds rows as CSV; its headers say who told them and what was observed."""
    out = io.StringIO()
    write_csv(columns, ([row[column] for column in columns] for row in rows), out)
    said = ", ".join(told_by(rows) or sources(reader))
    least = [row["observed_ratio"] for row in covered(reader) if row["observed_ratio"] is not None]
    return Response(
        out.getvalue(),
        media_type="text/csv; charset=utf-8",
        headers={
            "content-disposition": f'inline; filename="{name}.csv"',
            "told-by": said.encode("ascii", "backslashreplace").decode(),
            "least-observed-ratio": f"{min(least):.6f}" if least else "unknown",
            "link": '</api/v1/coverage>; rel="describedby"',
        },
    )


def problem(status: int, sentence: str) -> Response:
    """Return the HTTP response to a request that failed: problem JSON (RFC 9457) with one plain sentence."""
    content = Problem(title=HTTPStatus(status).phrase, status=status, detail=sentence)
    return Response(
        json.dumps(content.model_dump()) + "\n", status_code=status, media_type="application/problem+json"
    )


def one_object(found: Mapping[str, Any]) -> list[Row]:
    """Return a list of an object and of all rows inside it, to find their columns `told_by`."""
    inside = [
        row for part in found.values() if isinstance(part, list) for row in part if isinstance(row, dict)
    ]
    return [found, *inside]
