"""Sentences on concentration, hashrate, revenue and halvings, made of the numbers and their intervals."""

from typing import Final

from analysis.report.data import Marts, Row
from analysis.report.sections.comparison import SIGNIFICANCE
from analysis.report.text import (
    INTERVAL,
    MINUS,
    NO_BLOCKS,
    bitcoin,
    count,
    decimal,
    hashprice,
    listed,
    metric,
    p_claim,
    percent,
    percent_interval,
    plural,
)

MAX_NAMED: Final = 4
TOP: Final = 3
NO_CHANGES: Final = (
    "Not enough data to say whether the shares changed: that takes two days or epochs with blocks."
)
NO_GROWTH: Final = "Not enough data to say whether it grew exponentially: that takes 30 days with blocks."
NO_THRESHOLD: Final = (
    "Not enough data for a threshold of revenue: that takes 21 difficulty epochs in a row, about ten months."
)
NO_DILEMMAS: Final = (
    "Not enough data on the Malthusian trap and the prisoner's dilemma: that takes 30 days with blocks."
)
HALF_DEPENDENT: Final = 1.0  # Durbin-Watson below this: neighbouring residuals are alike


def _whole(marts: Marts, name: str) -> Row | None:
    """Give the row of the whole window."""
    return next((row for row in marts.rows(name) if row["period_kind"] == "all"), None)


def concentration_sentences(marts: Marts) -> list[str]:
    """Say how concentrated the pools are, and whether and how their shares changed."""
    row = next(
        (
            row
            for row in marts.rows("concentration_index")
            if row["period_kind"] == "all" and row["grouped_by"] == "pool"
        ),
        None,
    )
    if row is None or row["nakamoto"] is None:
        return [NO_BLOCKS]
    pools = plural(int(row["nakamoto"]), "pool")
    if row["nakamoto_low"] is not None:
        interval = f" ({INTERVAL} {_span(row['nakamoto_low'], row['nakamoto_high'])})"
    else:
        interval = ""
    bounds = sorted((row["nakamoto_if_apart"], row["nakamoto_if_largest"]))
    unknown = f"; with the unknown blocks, {_span(*bounds)}" if row["unknown_block_count"] else ""
    sentences = [f"{pools} together mined more than half of the named blocks{interval}{unknown}."]
    if row["hhi_low"] is not None:
        sentences.append(
            f"The Herfindahl-Hirschman index is {row['hhi']:.3f} ({INTERVAL} {row['hhi_low']:.3f} to "
            f"{row['hhi_high']:.3f})."
        )
    sentences += _top(marts)
    return sentences + _changes(marts) + _lives(marts)


def _span(low: float, high: float) -> str:
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def _top(marts: Marts) -> list[str]:
    row = next(
        (r for r in marts.rows("owner_share") if r["grouped_by"] == "owner" and r["position"] == TOP), None
    )
    if row is None:
        return []
    interval = percent_interval(row["cumulative_low_ratio"], row["cumulative_high_ratio"])
    return [
        (
            f"The {TOP} largest owners mined {percent(row['cumulative_ratio'])} of all blocks ({INTERVAL} "
            f"{interval})."
        )
    ]


def _changes(marts: Marts) -> list[str]:
    tested = [row for row in marts.rows("share_change") if row["adjusted_p_value"] is not None]
    if not tested:
        return [NO_CHANGES]
    kind = "epoch" if any(row["period_kind"] == "epoch" for row in tested) else "day"
    tested = [row for row in tested if row["period_kind"] == kind]
    changed = [row for row in tested if row["adjusted_p_value"] < SIGNIFICANCE]
    periods = plural(len(tested), f"{kind}")
    if not changed:
        return [
            f"No change of the shares is shown: {periods} compared with the one before, none below p = 0.05."
        ]
    return [
        (
            f"The shares changed in {count(len(changed))} of {periods} compared with the one before "
            "(p < 0.05, corrected for their number)."
        )
    ]


def _lives(marts: Marts) -> list[str]:
    sentences = []
    for flag, verb in (("is_birth", "began"), ("is_death", "stopped")):
        found = [marts.name(row["pool"]) for row in marts.ranked("pool_life") if row[flag]]
        if found:
            named = [*found[:MAX_NAMED], plural(len(found) - MAX_NAMED, "other pool")]
            shown = listed(found if len(found) <= MAX_NAMED else named)
            sentences.append(f"{shown} {verb} inside the window.")
    return sentences


def hashrate_sentences(marts: Marts) -> list[str]:
    """Say how large the hashrate was, and whether it grew exponentially."""
    row = _whole(marts, "hashrate")
    if row is None:
        return [NO_BLOCKS]
    by_difficulty = metric(row["paper_hashes_per_s"], "H/s")
    sentences = []
    if row["observed_hashes_per_s"] is None:
        sentences.append(
            f"By difficulty the hashrate was {by_difficulty}; the blocks' own time is not known."
        )
    else:
        low, high = (metric(row[f"observed_{end}_hashes_per_s"], "H/s") for end in ("low", "high"))
        sentences.append(
            f"The blocks found stand for {metric(row['observed_hashes_per_s'], 'H/s')} on average "
            f"({INTERVAL} {low} "
            f"to {high}), the difficulty for {by_difficulty}."
        )
    fit = next((r for r in marts.rows("hashrate_growth") if r["grouped_by"] == "network"), None)
    if fit is None or fit["lambda_per_day"] is None:
        return [*sentences, NO_GROWTH]
    return [*sentences, *_growth(marts, fit)]


def _growth(marts: Marts, fit: Row) -> list[str]:
    low, high = (100 * fit[f"lambda_{end}_per_day"] for end in ("low", "high"))
    rate = (
        f"{_signed(100 * fit['lambda_per_day'])}\u00a0% per day ({INTERVAL} {_signed(low)} to "
        f"{_signed(high)}\u00a0%)"
    )
    pieces = sum(1 for row in marts.rows("hashrate_segment") if row["grouped_by"] == "network")
    sentences = [
        (
            f"One exponential over {plural(fit['n_days'], 'day')} changes by {rate}, with R² "
            f"{fit['r_squared']:.2f}."
        )
    ]
    if pieces > 1 or fit["durbin_watson"] < HALF_DEPENDENT:
        sentences.append(
            f"It is not one exponential: {plural(pieces, 'piece')} of constant growth fit better, and "
            "its residuals "
            f"have a Durbin-Watson statistic of {fit['durbin_watson']:.2f} (2 if independent)."
        )
    return sentences


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", MINUS)


def revenue_sentences(marts: Marts) -> list[str]:
    """Say what was earned, whether hashrate follows a threshold, and what the two dilemmas come to."""
    row = _whole(marts, "revenue")
    if row is None or not row["fee_block_count"]:
        return ["Not enough data: the fees of no block are known."]
    sentences = [
        (
            f"{plural(row['fee_block_count'], 'block')} with known fees earned "
            f"{bitcoin(row['revenue_sat'])} BTC, "
            f"{percent(row['fee_ratio'])} of it fees."
        )
    ]
    if row["hashprice_usd_per_ph_day"] is not None:
        sentences.append(f"{hashprice(row['hashprice_usd_per_ph_day'], 'USD')} in a day on average.")
    else:
        sentences.append("Nothing is said in USD: no prices were imported.")
    return sentences + _threshold(marts) + _dilemmas(marts)


def _threshold(marts: Marts) -> list[str]:
    units = {row["unit"]: row for row in marts.rows("revenue_threshold")}
    row = units.get("usd") or units.get("sat")
    if row is None or row["threshold_per_ph_day"] is None:
        return [NO_THRESHOLD]
    unit = "USD" if row["unit"] == "usd" else "sat"
    found = (
        f"{decimal(row['threshold_per_ph_day'])} {unit} per PH/s and day ({INTERVAL} "
        f"{decimal(row['threshold_low_per_ph_day'])} to {decimal(row['threshold_high_per_ph_day'])})"
    )
    if row["p_value"] < SIGNIFICANCE and row["above_growth"] > row["below_growth"]:
        return [f"Hashrate grows faster above a hashprice of {found}: {p_claim(row['p_value'])}."]
    return [
        (
            f"A threshold above which hashrate grows is not shown: the best split is at {found}, "
            f"{p_claim(row['p_value'])}."
        )
    ]


def _dilemmas(marts: Marts) -> list[str]:
    found = {row["metric"]: row for row in marts.rows("revenue_growth") if row["grouped_by"] == "network"}
    unit = "usd" if "hashprice_usd" in found else "sat"
    price, rate = found.get(f"hashprice_{unit}"), found.get("hashrate")
    if price is None or rate is None:
        return [NO_DILEMMAS]
    name = f"hashprice in {'USD' if unit == 'usd' else 'BTC'}"
    if rate["lambda_low_per_day"] > 0 and price["lambda_high_per_day"] < 0:
        trap = f"As in a Malthusian trap, hashrate grew while {name} fell."
    elif price["lambda_low_per_day"] > 0:
        trap = f"No Malthusian trap in this window: {name} rose."
    else:
        trap = f"No Malthusian trap is shown: the intervals of growth of hashrate and {name} do not say so."
    pools = {row["owner"] for row in marts.rows("revenue_growth") if row["grouped_by"] == "pool"}
    own = {
        (row["owner"], row["metric"]): row
        for row in marts.rows("revenue_growth")
        if row["grouped_by"] == "pool"
    }
    caught = [
        pool
        for pool in pools
        if (pool, "hashrate") in own
        and (pool, f"hashprice_{unit}") in own
        and own[pool, "hashrate"]["lambda_low_per_day"] > 0
        and own[pool, f"hashprice_{unit}"]["lambda_high_per_day"] < 0
    ]
    if not pools:
        return [trap, "Not enough data on the prisoner's dilemma: no pool has 30 days with blocks."]
    dilemma = (
        f"Prisoner's dilemma: {count(len(caught))} of {plural(len(pools), 'pool')} with enough days surely "
        f"grew although their {name} surely fell."
    )
    return [trap, dilemma]


def halving_sentences(marts: Marts) -> list[str]:
    """Say what changed at halvings more than at placebo dates."""
    known = [row for row in marts.rows("halving_effect") if row["p_value"] is not None]
    if not known:
        return ["Not enough data: no series has 30 days on either side of a halving."]
    sentences = []
    for name, label in (
        ("price_usd", "price"),
        ("fees_sat", "fees in BTC"),
        ("hashrate", "hashrate"),
        ("revenue_sat", "revenue in BTC"),
    ):
        rows = [row for row in known if row["metric"] == name]
        if not rows:
            continue
        unusual = [row for row in rows if row["p_value"] < SIGNIFICANCE]
        halvings = plural(len(rows), "halving")
        if not unusual:
            least = min(row["p_value"] for row in rows)
            sentences.append(
                f"The {label} did not change more than at placebo dates at {halvings} (least p = "
                f"{least:.2g})."
            )
        else:
            changes = [f"{row['halving_day']:%Y} by \u00d7{row['change_ratio']:.2f}" for row in unusual]
            sentences.append(
                f"The {label} changed more than at placebo dates in {listed(changes)}, of {halvings}."
            )
    return sentences or ["Not enough data on price, fees, hashrate and revenue around a halving."]
