"""Sentences on template audit, users, network and attribution, made of the numbers and their intervals."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report.data import ALL, Marts, Row
from analysis.report.sections.comparison import SIGNIFICANCE
from analysis.report.text import (
    INTERVAL,
    count,
    duration,
    median,
    p_claim,
    percent,
    percent_interval,
    plural,
    printable,
    signed,
)

FACTORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "package": "Package feerate",
        "cluster": "Cluster-order feerate",
        "plain": "Plain feerate",
        "waiting": "Waiting time",
        "size": "Size",
    }
)
# What a verdict of the mart says, and how it goes on in a sentence.
VERDICTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "agrees": ("agrees with the paper", "which agrees with it"),
        "below": ("below the paper", "which is below that"),
        "above": ("above the paper", "which is above that"),
        "open": ("cannot tell: inside the interval", "too close to that to tell"),
    }
)


def _ratio(row: Row, name: str) -> str:
    """Write a ratio and its interval, as the findings do."""
    low, high = row[f"{name}_low_ratio"], row[f"{name}_high_ratio"]
    interval = (
        "no interval: too few blocks, or all alike"
        if low is None
        else f"{INTERVAL} {percent_interval(low, high)}"
    )
    return f"{percent(row[f'{name}_ratio'])} ({interval})"


def cause_sentences(marts: Marts) -> list[str]:
    """Say what speaks for why blocks are empty, and whether a pool's own parent makes a difference."""
    row = next((r for r in marts.rows("empty_classes") if r["pool"] == ALL), None)
    if row is None:
        return []
    n_empty = row["n_validationless"] + row["n_idle"] + row["n_unknown"] + row["n_mempool_empty"]
    if not n_empty:
        return []
    sentences = _with_something_waiting(marts)
    judged = row["n_validationless"] + row["n_idle"]
    if judged:
        sentences.append(
            f"{count(row['n_validationless'])} of {plural(n_empty, 'empty block')} came within 30 s of "
            "the parent "
            f"while transactions were waiting, {_none(row['n_idle'])} later."
        )
    if row["n_unknown"]:
        sentences.append(
            f"Of {plural(row['n_unknown'], 'empty block')} the reason cannot be judged: the mempool or the "
            "interval is not known."
        )
    own = next((r for r in marts.rows("empty_predecessors") if r["owner"] == ALL), None)
    if own is None or own["stratified_p_value"] is None:
        return sentences
    rates = (
        f"{_ratio(own, 'same')} after a block of the same pool against {_ratio(own, 'other')} after another's"
        f", {p_claim(own['stratified_p_value'])} within pools"
    )
    if own["stratified_p_value"] < SIGNIFICANCE:
        odds = own["stratified_odds"]
        word = "rarer" if odds is not None and odds < 1 else "more frequent"
        return [*sentences, f"Empty blocks are {word} after a pool's own: {rates}."]
    return [*sentences, f"That a pool's own parent matters is not shown: {rates}."]


def _with_something_waiting(marts: Marts) -> list[str]:
    """Say how intervals compare without blocks that nobody could have filled, or by header times alone."""
    clocks = {row["clock"]: row for row in marts.rows("empty_timing") if row["owner"] == ALL}
    arrival, header = clocks.get("arrival"), clocks.get("header")
    if arrival is not None and arrival["p_value"] is not None and arrival["n_mempool_empty"]:
        blocks = plural(arrival["n_mempool_empty"], "block")
        return [f"Without {blocks} at which nothing was waiting, {_medians(arrival)}."]
    if (
        arrival is not None
        and arrival["p_value"] is None
        and header is not None
        and header["p_value"] is not None
    ):
        bias = header["empty_bias_s"]
        known = "not known" if bias is None else f"{signed(bias)}\u00a0s in the median of empty blocks"
        return [f"By header times, a fallback whose bias is {known}, {_medians(header)}."]
    return []


def _medians(row: Row) -> str:
    return (
        f"empty blocks came after a median of {median(row, 'empty')} and others after "
        f"{median(row, 'nonempty')}; rank test {p_claim(row['p_value'])}"
    )


def _verdict(verdict: str) -> str:
    """Say how our figure lies to the paper's."""
    return VERDICTS[verdict][1] if verdict in VERDICTS else f"which is {printable(verdict)}"


def _none(number: int) -> str:
    """Write a count inside a sentence."""
    return count(number) if number else "none"


def choice_sentences(marts: Marts) -> list[str]:
    """Say what the paper's figures are here, which factor explains most, and what fees were captured."""
    sentences = []
    for claim, paper, label in (
        ("top_x", "about 90\u00a0%", "of the top X"),
        ("outside_2x", "below 5\u00a0%", "of those outside the top 2X"),
    ):
        row = next(
            (
                r
                for r in marts.rows("feerate_claims")
                if r["claim"] == claim and r["feerate_kind"] == "plain" and r["age_s"] == 0
            ),
            None,
        )
        if row is not None and row["measured_ratio"] is not None:
            sentences.append(
                f"The paper says that pools take {paper} {label}; by plain feerates as of arrival it is "
                f"{_ratio(row, 'measured')} here, {_verdict(row['verdict'])}."
            )
    factors = [r for r in marts.rows("inclusion_factors") if r["pool"] == ALL and r["auc_ratio"] is not None]
    if factors:
        best = max(factors, key=lambda r: abs(r["auc_ratio"] - 0.5))
        name = FACTORS.get(best["factor"], printable(best["factor"])).lower()
        sentences.append(
            f"Of the factors, {name} explains best which transactions are taken: area under the ROC curve "
            f"{_ratio(best, 'auc')}."
        )
    fees = next((r for r in marts.rows("fee_capture") if r["pool"] == ALL), None)
    if fees is not None and fees["captured_ratio"] is not None:
        sentences.append(
            f"Blocks that are not empty captured {_ratio(fees, 'captured')} of the most that their "
            "weight could hold."
        )
    return sentences


def audit_sentences(marts: Marts) -> list[str]:
    """Say how well blocks match templates, and which pools take what was not worth it."""
    ages = [
        r
        for r in marts.rows("template_audit")
        if r["pool"] == ALL and r["score_ratio"] is not None and r["n_blocks"]
    ]
    if not ages:
        return ["Not enough data: no block could be compared with a template of our node."]
    most = max(ages, key=lambda r: r["n_blocks"])
    sentences = [
        (
            f"Against templates {duration(most['mean_age_s'])} old on average "
            f"({plural(most['n_blocks'], 'block')}), "
            f"{_ratio(most, 'score')} of what was promised and not excused was mined."
        )
    ]
    judged = [r for r in marts.ranked("out_of_band") if r["pool"] != ALL and r["candidate_low_ratio"]]
    overall = next((r for r in marts.rows("out_of_band") if r["pool"] == ALL), None)
    if overall is not None and overall["candidate_ratio"] is not None:
        sentences.append(
            f"{_ratio(overall, 'candidate')} of the transactions look as if paid for elsewhere: far "
            "below what the "
            "blocks left behind."
        )
    if judged:
        most = max(judged, key=lambda r: r["candidate_ratio"])
        sentences.append(f"Highest is {marts.name(most['pool'])}: {_ratio(most, 'candidate')}.")
    return sentences


def user_sentences(marts: Marts) -> list[str]:
    """Say how long those who pay least and most wait, and how many use RBF and CPFP."""
    deciles = {r["decile"]: r for r in marts.rows("confirmation_decile")}
    if 0 not in deciles or not deciles[0]["n_entered"]:
        return ["Not enough data: no transaction was seen entering a mempool."]
    sentences = []
    low, high = deciles.get(1), deciles.get(10)
    if low is not None and high is not None:
        sentences.append(
            f"Half of the best-paying tenth was mined {_half(high)}, of the least-paying tenth {_half(low)}."
        )
        if low["accepted_ratio"] is not None and high["accepted_ratio"] is not None:
            sentences.append(
                f"Of those whose end was seen, {_ratio(low, 'accepted')} of the least-paying tenth "
                "were mined, "
                f"and {_ratio(high, 'accepted')} of the best-paying."
            )
    everyone = deciles[0]
    sentences.append(
        f"{count(everyone['n_censored'])} of {plural(everyone['n_entered'], 'transaction')} were still "
        "waiting when we lost sight of them."
    )
    entered = sum(r["n_entered"] for r in marts.rows("user_day"))
    if entered:
        replaced = sum(r["n_replaced"] for r in marts.rows("user_day")) / entered
        paying = sum(r["n_cpfp"] for r in marts.rows("user_day")) / entered
        sentences.append(f"{percent(replaced)} were replaced, {percent(paying)} paid for a waiting parent.")
    return sentences


def _half(row: Row) -> str:
    if row["half_mined_s"] is None:
        return "not within the time watched"
    return f"within {duration(row['half_mined_s'])}"


def network_sentences(marts: Marts) -> list[str]:
    """Say how many blocks were lost, how deep reorganisations went, and how far nodes lie apart."""
    row = next((r for r in marts.rows("stale_rate") if r["pool"] == ALL), None)
    if row is None or not row["n_blocks"]:
        return ["Not enough data on stale blocks: no block was pushed to us."]
    sentences = [
        (
            f"{count(row['n_stale'])} of {plural(row['n_blocks'], 'block')} pushed to us went stale, "
            f"{_ratio(row, 'stale')}."
        )
    ]
    followed = [r for r in marts.rows("reorg_depth") if r["n_reorgs"]]
    if followed:
        n_reorgs = sum(r["n_reorgs"] for r in followed)
        deepest = max(r["depth"] for r in followed)
        were = "There was 1 reorganisation" if n_reorgs == 1 else f"There were {n_reorgs:,} reorganisations"
        n_undone = sum(r["n_undone"] for r in followed)
        undone = f", {n_undone:,} of them undone again" if n_undone else ""
        sentences.append(f"{were}, the deepest of {plural(deepest, 'block')}{undone}.")
    nodes = [r for r in marts.rows("node_propagation") if r["kind"] == "block"]
    if not nodes:
        return [*sentences, "Not enough data on propagation: that takes two nodes."]
    slowest = max(nodes, key=lambda r: r["lag_median_s"])
    return [
        *sentences,
        (
            f"Half of the blocks reached {printable(slowest['node'])} within "
            f"{median(slowest, 'lag')} of our "
            f"first node, 90\u00a0% within {duration(slowest['lag_p90_s'])}."
        ),
    ]


def attribution_sentences(marts: Marts) -> list[str]:
    """Say how blocks were attributed, how many are in conflict, and what others say."""
    rows = [r for r in marts.rows("attribution_method") if r["period_kind"] == "all"]
    if not rows:
        return ["Not enough data: no block was observed."]
    total = rows[0]["total_block_count"]
    by = {r["method"]: r["block_count"] for r in rows}
    conflicts = sum(r["conflict_count"] for r in rows)
    sentences = [
        (
            f"Of {plural(total, 'block')}, {_none(by.get('payout', 0))} were attributed by payout script and "
            f"{_none(by.get('tag', 0))} by coinbase tag; {_none(by.get('none', 0))} match no rule."
        ),
        f"In {plural(conflicts, 'block')} a rule of another pool matches as well.",
    ]
    labels = marts.rows("label_summary")
    if not labels:
        return [*sentences, "No labels of third parties were imported to compare with."]
    for row in labels:
        named = row["agree_count"] + row["disagree_count"]
        if named:
            sentences.append(
                f"{printable(row['source'])} agrees on {_ratio(row, 'agree')} of "
                f"{plural(named, 'block')} that both "
                f"name; it alone names {count(row['only_there_count'])}, we alone "
                f"{count(row['only_here_count'])}."
            )
    return sentences
