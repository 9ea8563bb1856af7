"""Say in plain sentences what the numbers show, each with its 95 % interval, or that they do not suffice.

A sentence claims a difference only where the numbers carry it: intervals of two shares that do not
overlap, or a test below 5 %, corrected for the number of pools compared. The same sentences stand at the head
of the report and in the terminal summary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from analysis.report.data import ALL, Marts, Row
from analysis.report.sections.comparison import SIGNIFICANCE, by_blocks, by_count
from analysis.report.sections.economy import (
    concentration_sentences,
    halving_sentences,
    hashrate_sentences,
    revenue_sentences,
)
from analysis.report.sections.practice import (
    attribution_sentences,
    audit_sentences,
    cause_sentences,
    choice_sentences,
    network_sentences,
    user_sentences,
)
from analysis.report.text import (
    INTERVAL,
    NO_BLOCKS,
    count,
    duration,
    listed,
    median,
    p_claim,
    percent,
    percent_interval,
    plural,
    printable,
)

MAX_NAMED: Final = 4
NO_MEMPOOL: Final = "Not enough data: the mempool is not known at the arrival of any block with transactions."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question, in sentences; `section` is the id of the section that shows it."""

    section: str
    question: str
    sentences: tuple[str, ...]


def findings(marts: Marts) -> list[Finding]:
    """Answer every question of the report, in its order."""
    return [
        Finding(section=section, question=question, sentences=tuple(sentences(marts)))
        for section, question, sentences in QUESTIONS
    ]


def share_sentences(marts: Marts) -> list[str]:
    """Say who mined most, whether that is certain, and how much is unknown."""
    ranked = [row for row in marts.shares if not row["is_unknown"] and row["block_count"]]
    unknown = next((row for row in marts.shares if row["is_unknown"] and row["block_count"]), None)
    if not ranked and unknown is None:
        return [NO_BLOCKS]
    sentences = _leaders(marts, ranked) if ranked else []
    if unknown is None:
        sentences.append(f"Every block is attributed, to {plural(len(ranked), 'pool')} in all.")
    else:
        blocks = plural(unknown["block_count"], "block")
        sentences.append(f"No rule names the pool of {blocks}, {_ratio(unknown, 'share')}; they stand apart.")
    return sentences


def _leaders(marts: Marts, ranked: Sequence[Row]) -> list[str]:
    """Say who is first, and whether the second is surely behind."""
    first = ranked[0]
    of_all = f"{count(first['block_count'])} of {plural(first['total_block_count'], 'block')}"
    tied = [marts.name(row["pool"]) for row in ranked if row["block_count"] == first["block_count"]]
    if len(tied) > 1:
        return [f"{_some(tied)} mined the most: {of_all} each, {_ratio(first, 'share')}."]
    sentence = f"{tied[0]} mined the most: {of_all}, {_ratio(first, 'share')}."
    if len(ranked) == 1:
        return [sentence]
    second = ranked[1]
    follows = f"{marts.name(second['pool'])} follows with {_ratio(second, 'share')}"
    if second["share_high_ratio"] < first["share_low_ratio"]:
        return [sentence, f"{follows}, and the two intervals do not overlap."]
    return [sentence, f"{follows}; the two intervals overlap, so the order of the two is not certain."]


def empty_sentences(marts: Marts) -> list[str]:
    """Say how many blocks were empty, whether they came sooner, and which pools stand out."""
    overall = next((row for row in marts.empties if row["pool"] == ALL), None)
    if overall is None or not overall["n_blocks"]:
        return [NO_BLOCKS]
    n_empty, n_blocks = overall["n_empty"], overall["n_blocks"]
    be = "was" if n_empty == 1 else "were"
    sentences = [f"{count(n_empty)} of {plural(n_blocks, 'block')} {be} empty, {_ratio(overall, 'empty')}."]
    sentences += _outliers(
        marts,
        marts.empties,
        "empty",
        by_count(marts.empties, "n_empty", "n_blocks").above,
        "mine empty blocks more often",
    )
    sentences.append(_interval_sentence(overall))
    return sentences + cause_sentences(marts)


def _interval_sentence(overall: Row) -> str:
    timed = f"{count(overall['n_empty_timed'])} empty and {count(overall['n_nonempty_timed'])} other"
    if not overall["enough_data"] or overall["p_value"] is None:
        return (
            f"Not enough data to compare their intervals: {timed} blocks have a known "
            "arrival of their own and of their parent."
        )
    medians = (
        f"median {median(overall, 'empty')} after the parent against "
        f"{median(overall, 'nonempty')} of the others"
    )
    test = f"rank test {p_claim(overall['p_value'])}, {timed} blocks"
    if overall["p_value"] >= SIGNIFICANCE:
        return f"The intervals do not show that empty blocks come sooner or later: {medians} ({test})."
    effect = overall["rank_biserial"]
    word, share = ("sooner", (1 - effect) / 2) if effect < 0 else ("later", (1 + effect) / 2)
    return f"Empty blocks came {word}: {medians}, and {word} in {percent(share)} of all pairs ({test})."


def feerate_sentences(marts: Marts) -> list[str]:
    """Say how much of the best-paying and of the low-paying transactions pools took, and who differs."""
    rows = [row for row in marts.feerates if row["feerate_kind"] == "package"]
    overall = next((row for row in rows if row["pool"] == ALL), None)
    if overall is None or overall["top_x_ratio"] is None:
        return [NO_MEMPOOL]
    blocks = plural(overall["n_blocks"], "block")
    sentences = [
        f"By package feerate, pools took {_ratio(overall, 'top_x')} of the top X transactions ({blocks})."
    ]
    sentences += _outliers(
        marts, rows, "top_x", by_blocks(marts.choices, "top_x_ratio").below, "take fewer of the top X"
    )
    if overall["outside_2x_ratio"] is None:
        sentences.append("Not enough data on low feerates: no mempool held more than 2X transactions.")
    else:
        sentences.append(f"They took {_ratio(overall, 'outside_2x')} of those outside the top 2X.")
        sentences += _outliers(
            marts,
            rows,
            "outside_2x",
            by_blocks(marts.choices, "outside_2x_ratio").above,
            "take more of those outside the top 2X",
        )
    if overall["n_unmeasured"]:
        sentences.append(
            f"{plural(overall['n_unmeasured'], 'block')} with transactions could not be measured, because "
            "the mempool at their arrival is not known."
        )
    return sentences + choice_sentences(marts)


def coverage_sentences(marts: Marts) -> list[str]:
    """Say how much of the window was really watched."""
    watched = [row for row in marts.coverage if row["observed_ratio"] is not None]
    if not watched:
        return ["Not enough data: no coverage is recorded, so nothing vouches for the time between messages."]
    names = sorted({printable(row["node"]) for row in watched})
    nodes = f"{'Node' if len(names) == 1 else 'Nodes'} {listed(names)}"
    shortest = duration(min(row["window_s"] for row in watched))
    least = min(watched, key=lambda row: (row["observed_ratio"], row["node"], row["topic"]))
    n_gaps = sum(row["n_gaps"] for row in watched)
    if not n_gaps:
        return [f"{nodes}: every stream was observed without a hole, the shortest for {shortest}."]
    part = f"{percent(least['observed_ratio'])} of {duration(least['window_s'])}"
    return [
        f"{nodes}: {plural(n_gaps, 'hole')} in {plural(len(watched), 'stream')}.",
        f"Least observed is {printable(least['topic'])} of {printable(least['node'])}: {part}.",
    ]


def _outliers(marts: Marts, rows: Iterable[Row], name: str, pools: set[str], claim: str) -> list[str]:
    """Say a claim of some pools, with their ratio `name`; the claim begins with a regular verb."""
    found = [row for row in rows if row["pool"] in pools]
    if not found:
        return []
    if len(found) == 1:
        verb, rest = claim.split(" ", 1)
        return [
            f"{marts.name(found[0]['pool'])} {verb}s {rest} than the others ({_figures(found[0], name)})."
        ]
    named = [f"{marts.name(row['pool'])} ({_figures(row, name)})" for row in found]
    return [f"{_some(named)} {claim} than the others."]


def _some(pools: list[str]) -> str:
    """List pools as a sentence does; of many, the first few and a count."""
    rest = len(pools) - MAX_NAMED
    return listed(pools if rest <= 0 else [*pools[:MAX_NAMED], plural(rest, "other pool")])


def _ratio(row: Row, name: str) -> str:
    """Write a ratio and its interval: `28.9 % (95 % interval 22.0 to 36.8 %)`."""
    return f"{percent(row[f'{name}_ratio'])} ({_interval(row, name)})"


def _figures(row: Row, name: str) -> str:
    """Write them inside brackets: `28.9 %, 95 % interval 22.0 to 36.8 %`."""
    return f"{percent(row[f'{name}_ratio'])}, {_interval(row, name)}"


def _interval(row: Row, name: str) -> str:
    low, high = row[f"{name}_low_ratio"], row[f"{name}_high_ratio"]
    if low is None:
        return "no interval: too few blocks, or all alike"
    return f"{INTERVAL} {percent_interval(low, high)}"


QUESTIONS: Final[tuple[tuple[str, str, Callable[[Marts], list[str]]], ...]] = (
    ("share", "Who mines the blocks?", share_sentences),
    ("concentration", "How concentrated is mining, and does that change?", concentration_sentences),
    ("hashrate", "How much hashing power is there, and how does it grow?", hashrate_sentences),
    ("revenue", "What does mining earn, and does hashrate follow?", revenue_sentences),
    ("halving", "Did a halving change anything?", halving_sentences),
    ("empty", "When are blocks empty?", empty_sentences),
    ("feerate", "Do pools take transactions by feerate?", feerate_sentences),
    ("audit", "How do blocks differ from what a stock node would mine?", audit_sentences),
    ("users", "How long do users wait, by what they pay?", user_sentences),
    ("network", "How many blocks are lost, and how fast do blocks spread?", network_sentences),
    ("attribution", "How sure is it who mined a block?", attribution_sentences),
    ("coverage", "How much was really observed?", coverage_sentences),
)
