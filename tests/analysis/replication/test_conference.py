"""Test the statements of the conference version on the authors' files and on series with a planted answer."""

import datetime as dt
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from analysis.replication import conference
from analysis.replication.published import load
from analysis.replication.statement import CheckedStatement

FIRST_DAY = dt.date(2016, 2, 25)
N_DAYS = 1044
Check = Callable[[duckdb.DuckDBPyConnection], Iterator[CheckedStatement]]
Shape = Callable[[int], float]


def planted(check: Check, *, network: Shape, pool: Shape, unit_usd: float = 1e-13) -> list[CheckedStatement]:
    """Check statements on days with a hashrate of the network and of every pool, and what a hash/s earns."""
    draw = random.Random(5)  # noqa: S311 - a test wants repeatable chance
    rates: list[tuple[dt.date, str, float]] = []
    revenues: list[tuple[dt.date, float]] = []
    for t in range(N_DAYS):
        day, all_pools = FIRST_DAY + dt.timedelta(days=t), network(t) * math.exp(draw.gauss(0, 0.05))
        rates.append((day, "ALL", all_pools))
        rates += [
            (day, label, pool(t) * math.exp(draw.gauss(0, 0.1)))
            for label in ("AntPool", "F2Pool", "BTCCOM", "SlushPool")
        ]
        revenues.append((day, all_pools * unit_usd))
    with duckdb.connect() as connection:
        connection.register("rates", pd.DataFrame(rates, columns=["day", "label", "hashes_per_s"]))
        connection.register("revenues", pd.DataFrame(revenues, columns=["day", "revenue_usd"]))
        connection.execute("CREATE TABLE paper_hashrates AS SELECT * REPLACE (day::DATE AS day) FROM rates")
        connection.execute("CREATE TABLE paper_revenues AS SELECT * REPLACE (day::DATE AS day) FROM revenues")
        return list(check(connection))


def growing(rate: float) -> Shape:
    """Return a hashrate that grows by `rate` per day."""
    return lambda t: 1e18 * math.exp(rate * t)


@pytest.mark.data
def test_the_slides_on_the_authors_data(data_dir: Path) -> None:
    """Figures of the conference version's statements equal those computed by hand from the files."""
    with duckdb.connect() as connection:
        load(connection, data_dir / "paper")
        rates = {found.statement: found for found in conference.growth_rates(connection)}
        (stages,) = conference.two_stages(connection)
        shares = list(conference.falling_shares(connection))
        (cost,) = conference.unit_cost(connection)
        (five,) = conference.top_five(connection)
        (end,) = conference.shares_at_end(connection)

    network = rates["Growth rate of the network"]
    assert network.ours.startswith("lambda = 0.00427 per day")
    assert network.verdict == "differs"
    assert rates["Growth rate of BTC.com"].paper.startswith("lambda = 0.00392 per day, R2 = 0.805")
    assert "-20 % from 25 days before" in stages.ours
    assert (stages.verdict, "t = 257, 675, 939" in stages.reason) == ("replicated", True)
    assert [found.verdict for found in shares] == ["replicated", "replicated"]
    assert cost.ours.startswith("0.187 USD per TH/s and day at t = 1004")
    assert cost.verdict == "differs"
    assert "in our range if its unit is TH/s and day" in cost.reason
    assert five.ours == "47.64 % to 88.68 %, median 67.43 %; over one half on 1,030 of 1,044 days"
    assert end.ours.startswith("AntPool 13.46 % (6.88 % to 19.49 %)")


@pytest.mark.parametrize(("rate", "verdict"), [(0.00405, "replicated"), (0.006, "differs")])
def test_a_planted_growth_rate_decides(rate: float, verdict: str) -> None:
    """The rate of the network is replicated if the planted one is the published one."""
    *_, network = planted(conference.growth_rates, network=growing(rate), pool=growing(0.001))

    assert (network.statement, network.verdict) == ("Growth rate of the network", verdict)


@pytest.mark.parametrize(("falls", "verdict"), [(True, "replicated"), (False, "differs")])
def test_growth_that_ends_at_the_day_is_found(*, falls: bool, verdict: str) -> None:
    """A hashrate that falls by a third from t = 1004 on ends stage S1; one that grows on does not."""

    def network(t: int) -> float:
        return growing(0.004)(t) * (0.67 if falls and t > conference.S1_LAST_T else 1.0)

    (stages,) = planted(conference.two_stages, network=network, pool=growing(0.004))

    assert stages.verdict == verdict


@pytest.mark.parametrize(
    ("pool_rate", "verdict"), [(0.002, "replicated"), (0.006, "differs"), (-0.001, "differs")]
)
def test_the_trap_needs_growth_and_a_falling_share(pool_rate: float, verdict: str) -> None:
    """Of a network that grows by 0.4 % a day, only a pool that grows by less loses share while it grows."""
    found = planted(conference.falling_shares, network=growing(0.004), pool=growing(pool_rate))

    assert [statement.verdict for statement in found] == [verdict, verdict]


@pytest.mark.parametrize(
    ("usd_per_gh", "verdict", "fits_per_th"),
    [(0.1667, "replicated", False), (0.0001667, "differs", True), (0.01, "differs", False)],
)
def test_the_unit_of_the_cost_is_told(usd_per_gh: float, verdict: str, *, fits_per_th: bool) -> None:
    """The published cost is compared in the paper's unit; the reason says if it fits another unit."""

    def network(t: int) -> float:
        return 1e18 * (1 + 0.1 * (t % 2))

    (cost,) = planted(
        lambda connection: conference.unit_cost(_unsteady(connection)),
        network=network,
        pool=network,
        unit_usd=usd_per_gh / 1e9,
    )

    assert cost.verdict == verdict
    assert ("in our range if its unit is TH/s and day" in cost.reason) == fits_per_th


def _unsteady(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Raise the revenue of every second day by a fifth and lower the others by as much."""
    connection.execute("UPDATE paper_revenues SET revenue_usd = revenue_usd * if(day(day) % 2 = 0, 1.2, 0.8)")
    return connection


def test_series_without_the_days_give_no_statement() -> None:
    """Without a day in the files no statement of the slides is checked."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE paper_hashrates (day DATE, label VARCHAR, hashes_per_s DOUBLE)")
        connection.execute("CREATE TABLE paper_revenues (day DATE, revenue_usd DOUBLE)")
        for check in (
            conference.growth_rates,
            conference.two_stages,
            conference.falling_shares,
            conference.shares_at_end,
            conference.unit_cost,
            conference.top_five,
        ):
            assert list(check(connection)) == []
