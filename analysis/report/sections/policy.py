"""Makes the report's section on what each pool runs: what it mines, refuses, signals; its clock and order."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.data import Marts, Read, Row
from analysis.report.model import SectionContent, Table
from analysis.report.pools import named_pools
from analysis.report.sections.algorithm import algorithm_table, algorithm_words, told_apart
from analysis.report.tables import (
    MartColumn,
    column,
    interval_columns,
    mart_table,
    pool_head,
    ratio_columns,
)
from analysis.report.text import (
    count,
    decimal,
    duration,
    listed,
    listed_pools,
    p_value,
    plural,
    printable,
)
from analysis.report.topic import Topic

FEATURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "truc": "version 3 transactions",
        "anchor": "pay-to-anchor outputs",
        "ephemeral_dust": "ephemeral dust",
        "large_op_return": "OP_RETURN outputs above 83 bytes",
        "below_1_sat_vb": "transactions below 1 sat/vB",
        "envelope": "envelopes",
        "bare_multisig": "bare multisig",
        "full_rbf": "replacements that were not signalled",
    }
)
WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "refuses": "took none of the {} that paid enough",
        "disfavours": "takes fewer {} than others that pay as much",
        "favours": "takes more {} than others that pay as much",
        "mines": "mines {}",
    }
)
TELLING: Final = ("refuses", "disfavours", "favours")  # verdicts that tell a pool from others
MOST_NAMED: Final = 3
MIN_BLOCKS_WITH: Final = 5  # blocks with candidates for payments elsewhere; with fewer nothing is said
Facts = Mapping[str, Sequence[Row]]  # rows by mart
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "pool_policy": Read("pool_policy", "pool, feature"),
        "signalling": Read("signalling", "pool, signal", "n_signalling > 0"),
        "pool_clock": Read("pool_clock", "pool", "n_blocks > 0 or n_earliest > 0"),
        "pool_algorithm": Read("pool_algorithm", "pool, segment", "pool != 'unknown'"),
        "out_of_band": Read("out_of_band", "pool"),
        "sub_pool": Read("sub_pool", "pool, block_count desc, maker"),
    }
)
LACKS: Final = (
    "Nothing yet tells the pools apart. `pool-collector run` watches what waits and what they mine."
)


def sentences(marts: Marts) -> list[str]:
    """Return sentences on pools that took none of a kind of transaction that paid enough, and on signals."""
    return [*_refusals(marts), *_signals(marts)]


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: a line per pool in plain words, then the evidence in folded tables.

    If every pool only mines what our nodes accept, there is no section, because no pool differs from others.
    """
    facts = {name: named_pools(marts.ranked(name)) for name in READS}
    if not _tells_apart(facts):
        return SectionContent(parts=[], missing=[LACKS])
    rows, signals, clocks = facts["pool_policy"], facts["signalling"], facts["pool_clock"]
    segments = facts["pool_algorithm"]
    parts = [_words_table(marts, facts)]
    if rows:
        parts.append(_policy_table(marts, rows))
    if signals:
        parts.append(_signal_table(marts, signals))
    if clocks:
        parts.append(_clock_table(marts, clocks))
    if segments:
        parts.append(algorithm_table(marts, segments))
    return SectionContent(parts=parts, missing=[])


def in_words(facts: Facts) -> str:
    """Return a text on what the rows of one pool show; `facts` has at least the marts of READS.

    The text goes on from the name of the pool: `mines envelopes; signals version bit 4`.
    """
    said = []
    for verdict, words in WORDS.items():
        names = [FEATURES[row["feature"]] for row in facts["pool_policy"] if row["verdict"] == verdict]
        if names:
            said.append(words.format(listed(names)))
    named = [signal_name(row) for row in facts["signalling"] if row["n_signalling"]]
    if named:
        said.append(f"signals {listed(named)}")
    said += [
        f"dates its headers {_clock_words(row)}"
        for row in facts["pool_clock"]
        if row["lag_median_low_s"] is not None
    ]
    said += algorithm_words(facts["pool_algorithm"])
    said += [_candidate_words(row) for row in facts["out_of_band"] if _has_candidates(row)]
    makers = [f"{printable(row['maker'])} ({_of_blocks(row)})" for row in facts["sub_pool"]]
    if makers:
        said.append(f"mines templates of {listed(makers)}")
    return "; ".join(said) or "shows nothing that tells it from others"


def is_looked_at(facts: Facts) -> bool:
    """Return whether anything was measured that `in_words` could tell of one pool; `facts` as there."""
    dated = [row for row in facts["pool_clock"] if row["lag_median_low_s"] is not None]
    judged = [row for row in facts["out_of_band"] if row["n_judged"]]
    measured = ("pool_policy", "signalling", "pool_algorithm", "sub_pool")
    return bool(dated or judged or any(facts[mart] for mart in measured))


def _tells_apart(facts: Facts) -> bool:
    """Return whether any of these rows (by mart) shows a difference between pools in what they run."""
    return bool(
        facts["signalling"]
        or facts["pool_clock"]
        or facts["sub_pool"]
        or told_apart(facts["pool_algorithm"])
        or any(row["verdict"] in TELLING for row in facts["pool_policy"])
        or any(_has_candidates(row) for row in facts["out_of_band"])
    )


def _has_candidates(row: Row) -> bool:
    return bool(row["n_blocks_with"] >= MIN_BLOCKS_WITH)


def _candidate_words(row: Row) -> str:
    """Return a text on how many transactions of a pool seem to be paid for elsewhere, in how many blocks."""
    found = plural(row["n_candidates"], "transaction that pays", "transactions that pay")
    blocks = plural(row["n_judged"], "block")
    return f"has {found} far less than its own order asks for, in {count(row['n_blocks_with'])} of {blocks}"


def _of_blocks(row: Row) -> str:
    return f"{count(row['block_count'])} of {plural(row['pool_block_count'], 'block')}"


def signal_name(row: Row) -> str:
    """Return the name of a pool's signal for people: `version bit 4`, `BIP 54 coinbase`."""
    name: str = row["signal"]
    return name.replace("bit_", "version bit ").replace("bip54_coinbase", "BIP 54 coinbase")


def _clock_words(row: Row) -> str:
    lag_s = row["lag_median_s"]
    return f"{duration(abs(lag_s))} {'after' if lag_s > 0 else 'before'} the block arrives"


def _refusals(marts: Marts) -> list[str]:
    said = []
    for feature, name in FEATURES.items():
        rows = [
            row
            for row in named_pools(marts.ranked("pool_policy"))
            if row["feature"] == feature and row["verdict"] == "refuses"
        ]
        if rows:
            pools = listed_pools([marts.name(row["pool"]) for row in rows])
            n_promised = sum(row["n_passed_over_promised"] for row in rows)
            n_paid = sum(row["n_passed_over_paid"] for row in rows)
            said.append(
                f"{pools} took others that pay as much, but none of the kind \u201c{name}\u201d, which "
                f"{_evidence(n_promised, n_paid)}. They may never have reached the pool."
            )
    return said


def _evidence(n_promised: int, n_paid: int) -> str:
    """Return a text on what shows that transactions paid enough: our templates, or the block's feerates."""
    promised = f"our templates promised {plural(n_promised, 'time')}"
    paid = f"paid clearly more than the block asked for {plural(n_paid, 'time')}"
    if n_promised and n_paid:
        return f"{promised}, and which {paid} more"
    return promised if n_promised else paid


def _signals(marts: Marts) -> list[str]:
    by_signal: dict[str, list[str]] = {}
    for row in named_pools(marts.ranked("signalling")):
        by_signal.setdefault(signal_name(row), []).append(marts.name(row["pool"]))
    named = [
        f"{name} in blocks of {listed_pools(pools)}" for name, pools in list(by_signal.items())[:MOST_NAMED]
    ]
    return [f"Signalled: {listed(named)}."] if named else []


def _words_table(marts: Marts, facts: Facts) -> Table:
    found = {row["pool"] for rows in facts.values() for row in rows}
    lines = [
        {
            "pool": row["pool"],
            "words": in_words({name: _of(row["pool"], rows) for name, rows in facts.items()}),
        }
        for row in marts.shares
        if row["pool"] in found
    ]
    return mart_table(
        "policy-words-table",
        "What each pool runs, in words",
        pool_head(marts),
        [MartColumn("What it does", lambda row: row["words"], kind="long")],
        lines,
        mart="pool_policy",
        records=facts["pool_policy"],
        note="The tables below have the evidence, and for low payments the section on templates. None of it "
        "is a proof.",
    )


def _of(pool: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["pool"] == pool]


def _policy_table(marts: Marts, rows: Sequence[Row]) -> Table:
    return mart_table(
        "policy-table",
        "Kinds of transactions that each pool mined and passed over",
        pool_head(marts),
        [
            MartColumn("Kind", lambda row: FEATURES[row["feature"]], kind="text"),
            column("n_mined", "Mined", count),
            column("n_trials", "Tried", count),
            column("n_taken", "Taken", count),
            column("n_passed_over_promised", "Promised", count, group="Passed over"),
            column("n_passed_over_paid", "Paid enough", count, group="Passed over"),
            column("n_ordinary", "Ordinary", count, group="Compared with"),
            column("n_ordinary_taken", "Taken", count, group="Compared with"),
            *interval_columns("odds", "Odds", decimal, "odds_low", "odds_high"),
            column("adjusted_p_value", "Corrected p", p_value),
            MartColumn("Verdict", lambda row: row["verdict"], kind="text"),
        ],
        rows,
        mart="pool_policy",
        note=(
            "Tried: promised by our template, or, where it promised none of the kind, paying clearly more "
            "than the block's margin. Odds of being taken, against ordinary transactions of the same blocks. "
            "Corrected after Holm."
        ),
        is_folded=True,
    )


def _signal_table(marts: Marts, signals: Sequence[Row]) -> Table:
    return mart_table(
        "signalling-table",
        "What each pool signals",
        pool_head(marts),
        [
            MartColumn("Signal", signal_name, kind="text"),
            column("n_blocks", "Blocks", count),
            *ratio_columns("signalling", "Signalling"),
            column("first_height", "First height", count),
            column("last_height", "Last height", count),
        ],
        signals,
        mart="signalling",
        is_folded=True,
    )


def _clock_table(marts: Marts, clocks: Sequence[Row]) -> Table:
    return mart_table(
        "pool-clock-table",
        "How each pool sets the time in its headers",
        pool_head(marts),
        [
            column("n_blocks", "Blocks", count),
            *interval_columns(
                "lag_median_s",
                "Header time minus arrival",
                decimal,
                "lag_median_low_s",
                "lag_median_high_s",
                unit="s",
            ),
            *interval_columns(
                "drift_s_per_day",
                "Drift",
                decimal,
                "drift_low_s_per_day",
                "drift_high_s_per_day",
                unit="s per day",
            ),
            column("n_earliest", "Earliest time", count),
            column("n_behind", "Before its parent", count),
        ],
        clocks,
        mart="pool_clock",
        note="Age of the template, the way to us and the clocks of both cannot be told apart.",
        is_folded=True,
    )


TOPIC: Final = Topic(
    section_id="policy",
    title="What each pool runs",
    question="Which transactions does each pool mine, and which does it pass over?",
    intro=(
        "Nodes and pools disagree about some kinds of transactions. Of each kind we count what a pool "
        "mined, and what it passed over although our template promised it, or although it paid clearly more "
        "than the block asked for. What our own nodes refuse is not seen to be passed over. None of this "
        "proves a wish: a transaction may never have reached the pool, and "
        "a signal in a header is only a statement. Blocks that no rule names are of several miners, so they "
        "have no line here."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
