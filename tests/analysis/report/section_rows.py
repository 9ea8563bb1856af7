"""Plants a few rows, with numbers to look for, in the marts that only the sections of the report read."""

import datetime as dt
from typing import Any

Rows = list[dict[str, Any]]
DAYS = tuple(dt.date(2026, 3, 2) + dt.timedelta(days=day) for day in range(6))
OBSERVED_HASHES_PER_S = 6.1234567890123e20
AGES_S = (0.0, 30.0, 120.0)


NETWORK = {"grouped_by": "network", "owner": "all"}
EVERYBODY = {"grouped_by": "pool", "owner": "all"}
# An owner of the two largest pools.
LETTERS = {"grouped_by": "owner", "owner": "letters"}
WHOLE = {"period_kind": "all", "period": "all", "first_height": 0}
PERIODS: Rows = [
    WHOLE,
    *({"period_kind": "day", "period": f"{day}", "first_height": place} for place, day in enumerate(DAYS)),
]


def ratio(name: str, value: float, width: float = 0.05) -> dict[str, float]:
    """Return the columns of the ratio `name`, and of an interval of `width` to each side."""
    return {
        f"{name}_ratio": value,
        f"{name}_low_ratio": max(0.0, value - width),
        f"{name}_high_ratio": min(1.0, value + width),
    }


def owned(pools: list[str]) -> Rows:
    """Return the (grouped_by, owner) columns of three pools and of two owners.

    The owner LETTERS has the two largest pools; the other owner has only the third.
    """
    return [
        *[{"grouped_by": "pool", "owner": pool} for pool in pools[:3]],
        LETTERS,
        {"grouped_by": "owner", "owner": pools[2]},
    ]


def groups(pools: list[str]) -> dict[str, Rows]:
    """Return the planted rows by the name of the mart. `pools` lists slugs of pools, the largest first."""
    return {
        "block_owner": _owners(pools),
        "dated_change": _changes(pools),
        **_shares(pools),
        **_luck(pools),
        **_hashrate(pools),
        **_revenue(pools),
        **_empty(pools),
        **_choices(pools),
        **_audit(pools),
        **_policy(pools),
        **_users(),
        **_network(pools),
        **_attribution(pools),
    }


def _owners(pools: list[str]) -> Rows:
    own = owned(pools)
    return [
        owner | {"block_hash": bytes([place % 3]) * 32, "owner_name": "Letters Inc."}
        for place, owner in enumerate([*own[:3], LETTERS, *own[3:]])
    ]


def _changes(pools: list[str]) -> Rows:
    at = [dt.datetime.combine(day, dt.time(6), dt.UTC) for day in DAYS]
    rows: Rows = [
        {"kind": "halving", "from_at": at[1], "height": 941_200, "relative_change": -0.5},
        {"kind": "retarget", "from_at": at[2], "height": 941_472, "relative_change": 0.031},
        {"kind": "owner", "from_at": at[3], "subject": pools[1], "other": "Letters Inc."},
        {
            "kind": "hole",
            "from_at": at[4],
            "to_at": at[4] + dt.timedelta(hours=3),
            "subject": "main",
            "other": "mempool",
        },
    ]
    names = ("kind", "from_at", "to_at", "height", "subject", "other", "relative_change")
    return [{name: row.get(name) for name in names} | {"is_end": False} for row in rows]


def _shares(pools: list[str]) -> dict[str, Rows]:
    periods = [("all", "all"), *[("day", f"{day}") for day in DAYS]]
    index = {
        f"{name}{end}": value * factor
        for name, value in (("hhi", 0.2), ("nakamoto", 3.0), ("gini", 0.4), ("entropy_bits", 2.5))
        for end, factor in (("", 1), ("_low", 0.9), ("_high", 1.1), ("_if_apart", 0.8), ("_if_largest", 1.2))
    }
    owners = [(pool, position, 100 - 10 * position) for position, pool in enumerate(pools[:5], start=1)]
    return {
        "concentration_index": [
            {"grouped_by": group, "period_kind": kind, "period": period, "block_count": 900}
            | {"unknown_block_count": 9, "n_owners": 7, "first_height": 941_000 + place}
            | index
            | {"gini_least": 0.31, "gini_most": 0.52}
            for group in ("pool", "owner", "proxy")
            for place, (kind, period) in enumerate(periods)
        ],
        "owner_share": [
            {"grouped_by": group, "period_kind": "all", "period": "all", "owner": pool, "owner_name": pool}
            | {"is_unknown": False, "position": position, "block_count": blocks, "total_block_count": 900}
            | ratio("share", 0.3 / position)
            | ratio("cumulative", min(1.0, 0.2 * position))
            | {"cumulative_if_largest_ratio": 0.9}
            for group in ("pool", "owner")
            for pool, position, blocks in owners
        ],
        "share_change": [
            {
                "grouped_by": "pool",
                "period_kind": "day",
                "period": f"{DAYS[1]}",
                "previous_period": f"{DAYS[0]}",
            }
            | {"block_count": 150, "previous_block_count": 140, "p_value": 0.001, "adjusted_p_value": 0.004}
            | {"cramers_v": 0.31, "most_gained_owner": pools[0], "most_gained_share": 0.12}
            | {"most_lost_owner": pools[1], "most_lost_share": -0.08}
        ],
        "pool_life": [
            {"pool": pool, "block_count": 50, "first_day": DAYS[0], "last_day": DAYS[-1], "is_death": False}
            | {"silent_before_count": 300 * place, "is_birth": place == 1, "silent_after_count": 0}
            for place, pool in enumerate(pools[:3])
        ],
        "pool_rename": [
            {"pool": pools[0], "other": pools[1], "evidence": "payout", "n_scripts": 1, "n_blocks": 12}
            | {"first_height": 941_000, "last_height": 941_050, "is_succession": True}
        ],
    }


def _luck(pools: list[str]) -> dict[str, Rows]:
    chance = {"p_value": 0.0004, "adjusted_p_value": 0.0123}
    first = {"grouped_by": "pool", "owner": pools[0], "owner_name": pools[0]}
    found = {"found_multiple": 2.57, "found_low_multiple": 1.51, "found_high_multiple": 4.12}
    return {
        "luck": [
            first
            | {"epoch": 466, "block_count": 171, "expected_count": 112.5, **chance}
            | {"luck_multiple": 1.52, "luck_low_multiple": 1.2, "luck_high_multiple": 1.9},
        ],
        "block_runs": [
            first
            | found
            | chance
            | {"run_length": 3, "found_count": 18, "expected_count": 7.0, "longest_run": 5},
            LETTERS | {"owner_name": "Letters", "run_length": 3, "found_count": 40, "expected_count": 41.0},
        ],
        "race_outcome": [
            {"pool": pools[0], "rival_pool": pools[1], "rival_pool_name": pools[1], "race_count": 7}
            | {"won_count": 4, "expected_ratio": 0.52, "p_value": 0.9, "adjusted_p_value": 1.0}
            | ratio("won", 4 / 7),
        ],
        "published_hashrate": [
            {"source": "paper", "pool": pools[0], "n_days": 30, "found_count": 90, "expected_count": 100.0}
            | {"found_multiple": 0.9, "found_low_multiple": 0.72, "found_high_multiple": 1.11},
        ],
    }


def _hashrate(pools: list[str]) -> dict[str, Rows]:
    power = {"observed_hashes_per_s": OBSERVED_HASHES_PER_S, "observed_low_hashes_per_s": 5.9e20}
    power |= {"observed_high_hashes_per_s": 6.3e20, "paper_hashes_per_s": 6e20, "mean_difficulty": 8e13}
    fit = {"lambda_per_day": 0.002, "lambda_low_per_day": 0.001, "lambda_high_per_day": 0.003, "n_days": 60}
    return {
        "hashrate": [
            *[
                NETWORK
                | period
                | power
                | {"block_count": 144, "timed_block_count": 143, "difficulty_block_count": 144}
                for period in PERIODS
            ],
            *[
                WHOLE
                | power
                | owner
                | {
                    "is_unknown": False,
                    "block_count": 40,
                    "timed_block_count": 39,
                    "difficulty_block_count": 40,
                }
                for owner in owned(pools)
            ],
        ],
        "hashrate_growth": [
            owner
            | fit
            | {"intercept": 40.0, "r_squared": 0.95, "adjusted_r_squared": 0.949, "residual_sd": 0.1}
            | {"durbin_watson": 0.6, "normality_p_value": 0.2}
            for owner in (NETWORK, LETTERS)
        ],
        "hashrate_segment": [
            NETWORK
            | {"segment": number, "first_day": first, "last_day": last, "n_days": 3, "lambda_per_day": 0.001}
            | {"intercept": 27.3, "r_squared": 0.5, "first_day_low": low, "first_day_high": high}
            for number, low, first, high, last in (
                (1, None, DAYS[0], None, DAYS[2]),
                (2, DAYS[2], DAYS[3], DAYS[4], DAYS[5]),
            )
        ],
    }


def _revenue(pools: list[str]) -> dict[str, Rows]:
    earned = {"block_count": 144, "fee_block_count": 144, "priced_block_count": 144}
    earned |= {"subsidy_sat": 45_000_000_000, "fees_sat": 400_000_000, "revenue_sat": 45_400_000_000}
    earned |= {"fee_ratio": 0.0088, "share_ratio": 1.0}
    earned |= {"revenue_usd": 3.8e7, "hashprice_sat_per_ph_day": 58_000.0, "hashprice_usd_per_ph_day": 49.5}
    return {
        "revenue": [
            *[NETWORK | period | earned for period in PERIODS],
            *[WHOLE | earned | owner | {"is_unknown": False} for owner in owned(pools)],
        ],
        "revenue_threshold": [
            {"unit": "usd", "n_epochs": 45, "threshold_per_ph_day": 347.5, "threshold_low_per_ph_day": 84.0}
            | {"threshold_high_per_ph_day": 350.0, "below_growth": -0.01, "above_growth": 0.08}
            | {"r_squared": 0.11, "p_value": 0.02}
        ],
        "revenue_growth": [
            owner
            | {"metric": metric, "n_days": 60, "r_squared": 0.5}
            | {"lambda_per_day": slope, "lambda_low_per_day": slope - 0.0005}
            | {"lambda_high_per_day": slope + 0.0005}
            for owner in (NETWORK, *owned(pools))
            for metric, slope in (("hashrate", 0.002), ("revenue_usd", 0.001), ("hashprice_usd", -0.001))
        ],
        "halving_effect": [
            {"halving_day": dt.date(2020, 5, 11), "metric": "price_usd", "change_ratio": 1.2, "p_value": 0.42}
            | {"placebo_low_ratio": 0.7, "placebo_high_ratio": 2.46, "n_placebos": 5526}
            | {"adjusted_p_value": 0.42, "least_adjusted_p_value": 0.0054},
            {"halving_day": dt.date(2024, 4, 20), "metric": "fees_sat"},
        ],
    }


def _empty(pools: list[str]) -> dict[str, Rows]:
    rates = {"empty_per_s": 0.001, "empty_low_per_s": 0.0005, "empty_high_per_s": 0.002}
    rates |= {"nonempty_per_s": 0.0016, "nonempty_low_per_s": 0.001, "nonempty_high_per_s": 0.002}
    timing = {"n_empty": 8, "n_nonempty": 80, "empty_median_s": 41.5, "nonempty_median_s": 402.0}
    timing |= {"empty_median_low_s": 21.0, "empty_median_high_s": 71.0, "rank_biserial": -0.7}
    timing |= {"p_value": 0.0011, "adjusted_p_value": 0.0022, "empty_bias_s": -3.5, "nonempty_bias_s": 1.5}
    counts = {"n_blocks": 900, "n_empty": 18, "n_nothing_waiting": 2, "n_empty_nothing_waiting": 1}
    counts |= ratio("empty", 0.02, 0.01) | ratio("fillable_empty", 0.019, 0.01)
    return {
        "empty_rate": [
            *[NETWORK | {"owner_name": "all blocks"} | period | counts for period in PERIODS],
            *[WHOLE | counts | owner for owner in owned(pools)],
        ],
        "empty_hazard": [
            EVERYBODY
            | {"clock": clock, "from_s": start, "to_s": end, "n_at_risk": 900, "exposure_s": 1000.0}
            | {"n_empty": 4, "n_nonempty": 7}
            | rates
            for clock in ("arrival", "header")
            for start, end in ((0.0, 30.0), (30.0, 600.0), (600.0, None))
        ],
        "empty_timing": [
            owner | {"clock": clock} | timing
            for owner in (EVERYBODY, *owned(pools))
            for clock in ("arrival", "header")
        ],
        "empty_classes": [
            {"pool": pool, "n_blocks": 900, "n_mempool_empty": 1, "n_before_template": 12, "n_soon": 2}
            | {"n_late": 1, "n_unknown": 2}
            | ratio("excluded_empty", 0.02, 0.01)
            for pool in ("all", pools[0])
        ],
        "empty_predecessors": [
            owner
            | {"n_after_same": 100, "n_empty_after_same": 1, "n_after_other": 800, "n_empty_after_other": 20}
            | {"odds": 0.39, "odds_low": 0.05, "odds_high": None, "p_value": 0.5, "adjusted_p_value": 0.625}
            | {"stratified_odds": 0.41, "stratified_odds_low": 0.06, "stratified_odds_high": 2.7}
            | {"stratified_p_value": 0.6}
            | ratio("same", 0.01)
            | ratio("other", 0.025)
            for owner in (EVERYBODY, *owned(pools))
        ],
        "empty_evidence": [
            {"block_hash": b"\1" * 32, "height": 941_007, "pool": pools[0], "parent_pool": None}
            | {"interval_s": 3.25, "header_interval_s": -2.0, "n_mempool": 9000}
            | {"evidence": "before_template"}
        ],
    }


def _choices(pools: list[str]) -> dict[str, Rows]:
    kinds = ("package", "plain")
    return {
        "feerate_age": [
            {"pool": pool, "age_s": age_s, "feerate_kind": kind, "n_blocks": 90, "n_clamped": 3}
            | {"real_age_s": age_s}
            | ratio("top_x", 0.9 - age_s / 1000)
            | ratio("outside_2x", 0.03, 0.01)
            for pool in ("all", pools[0])
            for kind in kinds
            for age_s in AGES_S
        ],
        "feerate_claims": [
            {"claim": claim, "feerate_kind": kind, "age_s": age_s, "n_blocks": 90, "paper_ratio": paper}
            | {"verdict": "agrees"}
            | ratio("measured", paper)
            for claim, paper in (("top_x", 0.9), ("outside_2x", 0.05))
            for kind in kinds
            for age_s in AGES_S
        ],
        "inclusion_factors": [
            {"pool": pool, "factor": factor, "n_blocks": 90, "n_taken": 500, "n_left": 5000}
            | {"coefficient": 2.5, "coefficient_low": 1.5, "coefficient_high": 3.5}
            | ratio("auc", area)
            for pool in ("all", pools[0])
            for factor, area in (("package", 0.93), ("plain", 0.9), ("waiting", 0.45), ("size", 0.5))
        ],
        "fee_capture": [
            {"pool": pool, "n_blocks": 90, "n_template_blocks": 80, "template_multiple": 1.01}
            | {"template_multiple_low": 0.99, "template_multiple_high": 1.03}
            | ratio("captured", 0.97, 0.01)
            | ratio("captured_full", 0.95, 0.01)
            for pool in ("all", pools[0])
        ],
    }


def _audit(pools: list[str]) -> dict[str, Rows]:
    return {
        "template_audit": [
            {
                "pool": pool,
                "from_age_s": age_s,
                "mean_age_s": age_s + 1,
                "n_blocks": 80,
                "n_promised": 200_000,
            }
            | {"n_matched": 190_000, "missing_ratio": 0.05, "conflicting_ratio": 0.001, "n_extra": 3000}
            | {"unexplained_ratio": 0.01, "unseen_ratio": 0.002, "prioritised_ratio": 0.004}
            | ratio("score", 0.98, 0.01)
            for pool in ("all", pools[0])
            for age_s in AGES_S
        ],
        "out_of_band": [
            {"pool": pool, "n_blocks": 80, "n_blocks_with": 9, "n_txs": 200_000, "n_candidates": 321}
            | {"median_discount_ratio": 0.4, "n_unseen_candidates": 21, "n_judged": 70, "ordering": "feerate"}
            | ratio("candidate", 0.0016, 0.0005)
            for pool in ("all", pools[0])
        ],
        "pool_ordering": [
            {"pool": pool, "n_blocks": 80, "n_unclear": 2, "verdict": verdict}
            | {"median_position_error_ratio": 0.01}
            | ratio("feerate", 0.9, 0.05)
            | ratio("first_come", 0.02, 0.01)
            for pool, verdict in zip(pools[:2], ("feerate", "first_come"), strict=True)
        ],
        "out_of_band_candidates": [
            {"block_hash": b"\1" * 32, "node": "main", "txid": b"\2" * 31 + b"\3", "height": 941_009}
            | {"pool": pools[0], "fee_sat": 141, "vsize_vb": 141, "package_feerate_sat_vb": 1.0}
            | {"kind": "prioritised", "margin_sat_vb": 8.0, "waited_s": 4000.0}
        ],
    }


def _policy(pools: list[str]) -> dict[str, Rows]:
    return {
        "pool_policy": [
            {"pool": pool, "feature": "truc", "n_mined": n_mined, "n_blocks": 3, "n_trials": 417}
            | {"n_taken": 0, "n_passed_over": 417, "n_ordinary": 5000, "n_ordinary_taken": 4900}
            | {"n_passed_over_promised": 400, "n_passed_over_paid": 17}
            | {"verdict": verdict, "adjusted_p_value": 0.001}
            for pool, verdict, n_mined in zip(pools[:2], ("refuses", "mines"), (0, 12), strict=True)
        ],
        "sub_pool": [
            {"pool": pools[0], "maker": "Farm \x1b", "block_count": 7, "pool_block_count": 80}
            | {"first_height": 941_001, "last_height": 941_070}
            | ratio("maker", 0.09, 0.05)
        ],
        "signalling": [
            {"pool": pools[0], "signal": "bit_4", "n_blocks": 80, "n_signalling": 40}
            | {"first_height": 941_000, "last_height": 941_100}
            | ratio("signalling", 0.5, 0.1)
        ],
        "pool_clock": [
            {"pool": pools[0], "n_blocks": 80, "lag_median_s": -27.0, "lag_median_low_s": -31.0}
            | {"lag_median_high_s": -22.0, "drift_s_per_day": -3.46, "n_chained": 80, "n_earliest": 2}
            | {"drift_low_s_per_day": -9.1, "drift_high_s_per_day": 2.2}
            | {"earliest_ratio": 0.025, "n_behind": 1}
        ],
        "pool_algorithm": [
            {"pool": pools[0], "segment": segment, "first_height": height, "last_height": height + 49}
            | {"n_blocks": 40, "n_telling": 40, "n_against": 2, "left_open": left_open}
            | {f"{name}_probability": 1 / len(left_open) for name in left_open}
            | {"algorithm": "cannot_tell", "is_latest": segment == 2}
            for segment, height, left_open in (
                (1, 941_000, ["ancestor_sets", "data_cost"]),
                (2, 941_050, ["chunks", "plain"]),
            )
        ],
    }


def _users() -> dict[str, Rows]:
    quartiles = {f"feerate_{p}_sat_vb": v for p, v in (("q1", 2.0), ("median", 4.0), ("q3", 9.0))}
    quartiles |= {f"fee_{p}_sat": v for p, v in (("q1", 300.0), ("median", 700.0), ("q3", 2000.0))}
    quartiles |= {f"size_{p}_vb": v for p, v in (("q1", 141.0), ("median", 200.0), ("q3", 400.0))}
    return {
        "confirmation_decile": [
            {"decile": decile, "n_entered": 1000, "n_mined": 900, "n_replaced": 40, "n_expired": 10}
            | {"n_other": 0, "n_censored": 50, "feerate_low_sat_vb": 1.0, "feerate_high_sat_vb": 2.0 + decile}
            | {"half_mined_s": 4000.0 / (decile + 1)}
            | ratio("accepted", 0.94, 0.02)
            for decile in range(11)
        ],
        "confirmation_delay": [
            {"decile": decile, "at_s": at_s, "n_at_risk": 900, "expired_ratio": 0.0}
            | ratio("replaced", 0.02, 0.01)
            | ratio("waiting", waiting)
            | ratio("mined", 0.95 * (1 - waiting))
            for decile in range(11)
            for at_s, waiting in ((0.0, 1.0), (60.0, 0.9), (600.0, 0.5), (3600.0, 0.1))
        ],
        "user_day": [
            {"node": "main", "day": day, "n_entered": 1000, "n_known_fee": 990, "n_signalling": 700}
            | {"n_replaced": 40, "n_children": 100, "child_ratio": 0.1, "n_cpfp": 60}
            | ratio("signalling", 0.7, 0.05)
            | ratio("replaced", 0.04, 0.01)
            | ratio("cpfp", 0.06, 0.01)
            | quartiles
            for day in DAYS
        ],
    }


def _network(pools: list[str]) -> dict[str, Rows]:
    lags = {"lag_median_s": 0.12, "lag_median_low_s": 0.11, "lag_median_high_s": 0.13}
    lags |= {"lag_p90_s": 0.9, "lag_p99_s": 3.0, "spread_median_s": 0.2}
    return {
        "stale_rate": [
            {"pool": pool, "n_blocks": 900, "n_stale": 2} | ratio("stale", 0.0022, 0.002)
            for pool in ("all", pools[0])
        ],
        "stale_branches": [
            {"first_hash": b"\4" * 32, "from_height": 941_100, "depth": 1, "n_blocks": 1, "pools": [pools[1]]}
            | {"rival_pool": pools[0], "lead_s": -0.75, "was_active": True, "n_disconnected": 1}
            | {"followed_depth": 1, "is_open": False}
        ],
        "reorg_depth": [
            {"depth": 1, "n_branches": 2, "n_reorgs": 1, "n_undone": 0, "per_1000_blocks": 1.1}
            | {"per_1000_low": 0.03, "per_1000_high": 6.2}
        ],
        "node_propagation": [
            {
                "node": node,
                "kind": "block",
                "n_shared": 900,
                "n_first": 450,
                "connect_median_s": 0.05,
                "clock_error_s": 0.0,
            }
            | ratio("first", 0.5)
            | lags
            for node in ("main", "other")
        ],
        "block_propagation": [
            {"block_hash": number.to_bytes(32, "little"), "node": "main", "spread_s": 0.01 * (number + 1)}
            for number in range(20)
        ],
    }


def _attribution(pools: list[str]) -> dict[str, Rows]:
    counts = {"agree_count": 880, "disagree_count": 3, "only_here_count": 5, "only_there_count": 9}
    return {
        "attribution_method": [
            {"period_kind": kind, "period": period, "first_height": 941_000 + place, "method": method}
            | {"block_count": 450, "total_block_count": 900, "conflict_count": 9, "mean_candidates": 1.2}
            | ratio("block", 0.5)
            for place, (kind, period) in enumerate((("all", "all"), ("epoch", "466"), ("epoch", "467")))
            for method in ("payout", "tag")
        ],
        "attribution_conflict": [
            {"pool": pools[0], "other": pools[1], "method": "payout", "other_method": "tag", "block_count": 9}
            | {"first_height": 941_001, "last_height": 941_801, "example_rule_id": "a:payout:x"}
            | {"other_example_rule_id": "b:tag:y"}
        ],
        "attribution_rule": [
            {"rule_id": "a:payout:x", "pool": pools[0], "method": "payout", "match_count": 300}
            | {"decided_count": 290, "overruled_count": 1, "first_height": 941_000, "last_height": 941_899}
        ],
        "label_summary": [
            {
                "source": "others",
                "kind": "labels",
                "block_count": 900,
                "neither_count": 3,
                "unmapped_count": 0,
            }
            | {"cohens_kappa": 0.98}
            | counts
            | ratio("agree", 0.9966, 0.003)
        ],
        "label_agreement": [
            {"source": "others", "kind": "labels", "label": label, "pool": pools[0], "verdict": verdict}
            | {"block_count": 3, "first_height": 941_000, "last_height": 941_002}
            for label, verdict in (("Same", "agree"), ("=HYPERLINK(1)", "disagree"))
        ],
    }
