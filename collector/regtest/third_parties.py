"""Write the files of invented third parties: daily prices and pool labels."""

import csv
import math
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from collector.regtest.scenario import Labels, Pool, Prices, Scenario
from collector.regtest.truth import NO_LABEL, BlockTruth, LabelTruth, PriceTruth

THIRD_PARTIES: Final = "third-parties"


def publish(
    scenario: Scenario, blocks: Iterable[BlockTruth], last_day: date, out: Path
) -> tuple[list[PriceTruth], list[LabelTruth]]:
    """Write `prices.csv` and `labels.csv` into `out` if the scenario has such parties; return their rows.

    `last_day` is the last day with a price, UTC.
    """
    folder = out / THIRD_PARTIES
    folder.mkdir(exist_ok=True)
    prices: list[PriceTruth] = []
    labels: list[LabelTruth] = []
    if scenario.prices is not None:
        prices = _prices(scenario.prices, last_day, scenario.seed)
        _write(folder / "prices.csv", ("day", "close"), ((row.day, row.close_usd) for row in prices))
    if scenario.labels is not None:
        labels = _labels(scenario.labels, blocks, scenario.pools, scenario.seed)
        _write(folder / "labels.csv", ("height", "label"), ((row.height, row.label) for row in labels))
    return prices, labels


def _prices(exchange: Prices, last_day: date, seed: int) -> list[PriceTruth]:
    """Return invented daily prices up to `last_day`: a random walk drawn from the seed, rounded to cents."""
    draw = random.Random(f"{seed} prices")  # noqa: S311 - a scenario wants repeatable chance
    rows = []
    price_usd = exchange.first_usd
    for days_ago in reversed(range(exchange.days)):
        day = last_day - timedelta(days=days_ago)
        rows.append(PriceTruth(day=day.isoformat(), close_usd=round(price_usd, 2)))
        price_usd *= math.exp(draw.gauss(0, exchange.daily_sigma))
    return rows


def _labels(
    party: Labels, blocks: Iterable[BlockTruth], pools: Sequence[Pool], seed: int
) -> list[LabelTruth]:
    """Return each block's pool name as an invented party gives it, with some wrong and some missing."""
    draw = random.Random(f"{seed} labels")  # noqa: S311 - a scenario wants repeatable chance
    names = {pool.slug: pool.name for pool in pools}
    rows = []
    for block in blocks:
        name = names[block.pool]
        others = sorted(set(names.values()) - {name})
        wrong = draw.choice(others) if others else NO_LABEL
        luck = draw.random()
        if luck < party.wrong_share:
            rows.append(LabelTruth(height=block.height, label=wrong, error="wrong"))
        elif luck < party.wrong_share + party.missing_share:
            rows.append(LabelTruth(height=block.height, label=NO_LABEL, error="missing"))
        else:
            rows.append(LabelTruth(height=block.height, label=name, error=None))
    return rows


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)
