"""Replay a node's mempool as of a moment for the pages, the API and CSV, with the moments to step to."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from analysis.errors import UnknownNodeError
from analysis.mempool_at import Mempool, mempool_at, moment_of, said, steps_around
from analysis.serve.lookups import NotFoundError
from analysis.serve.results import Reader

STEPS_S: Final = (3600, 600, 60, 1)


def replay(reader: Reader, at: str | None, node: str | None, *, limit: int, offset: int = 0) -> Mempool:
    """Return a node's mempool as of a moment; `at` and `node` are texts of a request.

    Without `at` it is the newest moment, without `node` a node that was watched then. Raises
    NoMomentError for what is no time, and NotFoundError for a node that was never watched.
    """
    moment = moment_of(at) if at else None
    try:
        return mempool_at(reader.cursor, moment, node or None, limit=limit, offset=offset)
    except UnknownNodeError as error:
        raise NotFoundError(f"{error}; /api/v1/coverage names all") from None


def replayed(
    reader: Reader, at: str | None, node: str | None, *, limit: int, offset: int = 0
) -> Mapping[str, Any]:
    """Return a node's mempool as of a moment as page and API show it, in a dict.

    `said` is a sentence on whether the node was watched, `steps` are the moments to step to.
    """
    found = replay(reader, at, node, limit=limit, offset=offset)
    steps = steps_around(reader.cursor, found.at, found.node)
    return {"said": said(found.verdict), **asdict(found), "steps": steps}


def steps_by_time(at: dt.datetime) -> list[tuple[int, dt.datetime, dt.datetime]]:
    """Return for each step by time its length in seconds, and the moments so long before and after `at`."""
    lengths = [(seconds, dt.timedelta(seconds=seconds)) for seconds in STEPS_S]
    return [(seconds, at - length, at + length) for seconds, length in lengths]
