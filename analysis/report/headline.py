"""Makes the headline numbers of the report: one number per question, with its interval and a small chart."""

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from analysis.report.charts.sparkline import (
    SharePart,
    SparkPoint,
    interval_mark,
    share_strip,
    sparkline,
)
from analysis.report.data import ALL, Marts, Row, is_template_judged
from analysis.report.model import Headline
from analysis.report.pools import pool_colour, whole_concentration
from analysis.report.text import (
    GAP,
    bitcoin,
    count,
    duration,
    hashprice,
    metric,
    percent,
    plural,
    printable,
)

MIN_COURSE: Final = 3  # with fewer periods a line says nothing
Write = Callable[[Any], str]
Course = Iterable[tuple[dt.date, Row]]


class Columns(NamedTuple):
    """Names the columns of a mart that a headline number shows: the value and the ends of its interval.

    The names of the ends are empty if the number has no interval.
    """

    value: str
    low: str = ""
    high: str = ""


def headlines(marts: Marts) -> list[Headline]:
    """Return the headline numbers of the report for which there is data, in the order of the sections."""
    makers = (
        _largest,
        _half_of_blocks,
        _hashrate,
        _earned,
        _empty,
        _top_taken,
        _audit,
        _wait,
        _stale,
        _labels,
    )
    return [made for make in makers if (made := make(marts)) is not None]


def _largest(marts: Marts) -> Headline | None:
    ranked = [row for row in marts.shares if not row["is_unknown"] and row["block_count"]]
    if not ranked:
        return None
    first = ranked[0]
    parts = [
        SharePart(
            row["share_ratio"],
            pool_colour(marts, row["pool"]),
            f"{marts.name(row['pool'])}: {percent(row['share_ratio'])}",
        )
        for row in marts.shares
        if row["block_count"]
    ]
    blocks = f"{count(first['block_count'])} of {plural(first['total_block_count'], 'block')}"
    return Headline(
        section="share",
        label="Largest pool",
        value=percent(first["share_ratio"]),
        interval=_interval(_point(first, _ratio("share"), percent), percent),
        note=f"{marts.name(first['pool'])}, {blocks}",
        chart=share_strip("spark-share", "Shares of all pools", parts),
    )


def _half_of_blocks(marts: Marts) -> Headline | None:
    row = whole_concentration(marts)
    if row is None:
        return None
    return _headline(
        "concentration",
        "Pools mining half",
        Columns("nakamoto", "nakamoto_low", "nakamoto_high"),
        row,
        count,
        note=f"of the named blocks, among {plural(row['n_owners'], 'pool')}",
        course=marts.over_time("concentration_index"),
        largest=row["n_owners"],
    )


def _hashrate(marts: Marts) -> Headline | None:
    row = marts.whole_window("hashrate")
    if row is None or row["observed_hashes_per_s"] is None:
        return None
    columns = Columns(*(f"observed{end}_hashes_per_s" for end in ("", "_low", "_high")))
    # A difficulty that never changes tells nothing of the hashrate.
    note = f"{_hashes_per_s(row['paper_hashes_per_s'])} by difficulty" if marts.has_retargets else ""
    if row["timed_block_count"] < row["block_count"] - 1:
        timed, known = row["timed_block_count"], row["difficulty_block_count"]
        by_difficulty = f"; {note} of {plural(known, 'block')}" if note else ""
        note = f"{plural(timed, 'block')} of known time{by_difficulty}"
    course = marts.over_time("hashrate", "observed_hashes_per_s")
    return _headline("hashrate", "Hashrate", columns, row, _hashes_per_s, note=note, course=course)


def _hashes_per_s(rate: float | None) -> str:
    return metric(rate, "H/s")


def _earned(marts: Marts) -> Headline | None:
    row = marts.whole_window("revenue")
    if row is None or not row["fee_block_count"]:
        return None
    note = f"{bitcoin(row['revenue_sat'])} BTC in {plural(row['fee_block_count'], 'block')}"
    if row["hashprice_usd_per_ph_day"] is not None:
        note += f"; {hashprice(row['hashprice_usd_per_ph_day'], 'USD')} a day"
    course = marts.over_time("revenue", "fee_block_count")
    columns = Columns("fee_ratio")
    return _headline("revenue", "Fees in revenue", columns, row, note=note, course=course, largest=1.0)


def _empty(marts: Marts) -> Headline | None:
    row = _all(marts.empties)
    if row is None or not row["n_blocks"]:
        return None
    note = f"{count(row['n_empty'])} of {plural(row['n_blocks'], 'block')}"
    course = marts.over_time("empty_rate")
    return _headline("empty", "Empty blocks", _ratio("empty"), row, note=note, course=course, largest=1.0)


def _top_taken(marts: Marts) -> Headline | None:
    row = _all(row for row in marts.feerates if row["feerate_kind"] == "package")
    if row is None or row["top_x_ratio"] is None:
        return None
    note = f"of the X that pay most, in blocks of X; {plural(row['n_blocks'], 'block')}"
    return _headline("feerate", "Best payers taken", _ratio("top_x"), row, note=note, largest=1.0)


def _audit(marts: Marts) -> Headline | None:
    rows = [r for r in marts.rows("template_audit") if r["pool"] == ALL and r["score_ratio"] is not None]
    if not rows:
        return None
    row = max(rows, key=lambda row: row["n_blocks"])
    if not is_template_judged(row):
        return None
    note = (
        f"of the promised transactions without an excuse to be missing; of all {count(row['n_promised'])} "
        f"promised, {count(row['n_matched'])} were in the {plural(row['n_blocks'], 'block')}; templates of "
        f"our node, {duration(row['mean_age_s'])} old"
    )
    return _headline("audit", "Stock template followed", _ratio("score"), row, note=note, largest=1.0)


def _wait(marts: Marts) -> Headline | None:
    deciles = {row["decile"]: row["half_mined_s"] for row in marts.rows("confirmation_decile")}
    best, least = deciles.get(10), deciles.get(1)
    if best is None:
        return None
    points = [
        SparkPoint(half_s, None, None, f"decile {decile}: {duration(half_s)}")
        for decile, half_s in sorted(deciles.items())
        if decile and half_s is not None
    ]
    least_note = "" if least is None else f"; of the worst-paying tenth {duration(least)}"
    name, title = "spark-users", "Time until half is mined, from the least-paying to the best-paying tenth"
    if len(points) >= MIN_COURSE:
        chart = sparkline(name, title, points)
    else:
        chart = interval_mark(name, title, points[-1], 1.1 * best)
    return Headline(
        section="users",
        label="Wait of the best payers",
        value=duration(best),
        interval="",
        note=f"until half are mined{least_note}",
        chart=chart,
    )


def _stale(marts: Marts) -> Headline | None:
    row = _all(marts.rows("stale_rate"))
    if row is None or not row["n_blocks"]:
        return None
    note = f"{count(row['n_stale'])} of {plural(row['n_blocks'], 'announced block')}"
    return _headline("network", "Stale blocks", _ratio("stale"), row, note=note, largest=1.0)


def _labels(marts: Marts) -> Headline | None:
    rows = [row for row in marts.rows("label_summary") if row["agree_ratio"] is not None]
    if not rows:
        return None
    row = max(rows, key=lambda row: row["agree_count"] + row["disagree_count"])
    named = plural(row["agree_count"] + row["disagree_count"], "block")
    note = f"{printable(row['source'])}, {named} that both name"
    return _headline("attribution", "Third-party labels agree", _ratio("agree"), row, note=note, largest=1.0)


def _headline(
    section: str,
    label: str,
    columns: Columns,
    row: Row,
    write: Write = percent,
    *,
    note: str,
    course: Course = (),
    largest: float | None = None,
) -> Headline:
    """Return the Headline made from the `columns` of a row; the function `write` formats its numbers.

    `course` has rows with the same columns, one per period. Its line is drawn if it has enough points, else
    the interval on a scale that ends at `largest`.
    """
    point = _point(row, columns, write)
    points = [
        _point(found, columns, write, f"{day:%Y-%m-%d}: ")
        for day, found in course
        if found[columns.value] is not None
    ]
    name, title = f"spark-{section}", label
    if len(points) >= MIN_COURSE:
        chart = sparkline(name, f"{title} over time", points)
    else:
        chart = interval_mark(name, title, point, largest or 1.1 * (point.high or point.value))
    return Headline(
        section=section,
        label=label,
        value=write(point.value),
        interval=_interval(point, write),
        note=note,
        chart=chart,
    )


def _point(row: Row, columns: Columns, write: Write, before: str = "") -> SparkPoint:
    value, low, high = (row[name] if name else None for name in columns)
    point = SparkPoint(value or 0.0, low, high, "")
    interval = _interval(point, write)
    return point._replace(label=f"{before}{write(value)}{f' ({interval})' if interval else ''}")


def _interval(point: SparkPoint, write: Write) -> str:
    """Return the interval of a point as text, such as `2 to 3 s`; empty if the point has none.

    A unit that both ends have is written once.
    """
    if point.low is None or point.high is None:
        return ""
    low, high = write(point.low), write(point.high)
    number, _, unit = low.rpartition(GAP)
    return f"{number if number and high.endswith(f'{GAP}{unit}') else low} to {high}"


def _ratio(name: str) -> Columns:
    return Columns(f"{name}_ratio", f"{name}_low_ratio", f"{name}_high_ratio")


def _all(rows: Iterable[Row]) -> Row | None:
    return next((row for row in rows if row["pool"] == ALL), None)
