"""Checks the statements of arXiv:1902.07549 with the data that its authors published.

Each statement gets the paper's figure, our figure for the same thing, and a verdict.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import duckdb

from analysis.attribution.rules import RuleSet
from analysis.database import connect
from analysis.replication import conference, economy
from analysis.replication.arrivals import load_arrivals
from analysis.replication.empty_blocks import empty_intervals
from analysis.replication.published import load
from analysis.replication.statement import CheckedStatement, interval, one_row, percent

POOL_COUNTS: Final = {"AntPool": 27_026, "F2Pool": 19_282, "BTC.com": 17_488, "ViaBTC": 12_100}
LABELLED: Final = 0.9818
TOP_25: Final = 0.94
TOP_3: Final = 1 / 3
RUN_BLOCKS: Final = 144

# Counts runs of $1 heights without a missing one, and runs with a part above $2 for three labels.
TOP_3_OF_RUNS: Final = """
    WITH counts AS (
        SELECT height // $1 AS run, label, count(*) AS n_blocks
        FROM paper_labels GROUP BY run, label
    ),
    runs AS (SELECT run, sum(n_blocks) AS n_blocks FROM counts GROUP BY run HAVING sum(n_blocks) = $1),
    largest AS (
        SELECT run, list_sum(max(n_blocks, 3)) AS n_top
        FROM counts WHERE label != 'unknown' GROUP BY run
    )
    SELECT count(*), count(*) FILTER (WHERE n_top > $2 * n_blocks) FROM runs INNER JOIN largest USING (run)
"""


def replicate(folder: Path, rules: RuleSet, arrivals: Sequence[Path] = ()) -> list[CheckedStatement]:
    """Check every statement of the paper on the authors' files in `folder`; return all CheckedStatements.

    The rules serve only to merge labels that are names of one pool. `arrivals` are files of block arrivals,
    which the statement on empty blocks needs; the first of them counts most. Raises PublishedDataError if a
    file is missing or is not the published one.
    """
    with connect() as connection:
        load(connection, folder)
        load_arrivals(connection, arrivals)
        connection.execute("CREATE TABLE slugs (name VARCHAR, slug VARCHAR)")
        connection.executemany("INSERT INTO slugs VALUES (?, ?)", list(rules.slug_of_name.items()))
        return [finding for statement in STATEMENTS for finding in statement(connection)]


def _labelled(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    n_rows, n_named, first, last = one_row(
        connection,
        """
        SELECT count(*), count(*) FILTER (WHERE label != 'unknown'), min(height), max(height)
        FROM paper_labels
        """,
    )
    last_sized, n_sized = one_row(
        connection,
        "SELECT max(height), count(DISTINCT height) FILTER (WHERE height > $1) FROM paper_sizes",
        last,
    )
    n_heights, n_window = last - first + 1, last_sized - first + 1
    found = n_named / n_rows
    least, most = (n_named + n_sized) / n_window, (n_named + n_window - n_rows) / n_window
    yield CheckedStatement(
        statement="Blocks that carry a pool label",
        paper=percent(LABELLED),
        ours=f"{percent(found)} ({n_named:,} of {n_rows:,}; {interval(n_named, n_rows)})",
        verdict="replicated" if round(found, 4) == LABELLED else "differs",
        reason=f"Published labels end at height {last}, the paper's window near {last_sized};"
        f" {n_heights - n_rows} heights of {n_heights:,} are missing from the file. Of the"
        f" {n_window - n_rows:,} blocks without a published label the size files name {n_sized:,}, so over"
        f" the whole window it is {percent(least)} to {percent(most)}, and the paper's figure"
        f" {'can' if least <= LABELLED <= most else 'cannot'} be right.",
    )


def _blocks_of_pools(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement on the number of blocks for each of four pools.

    Blocks are counted over two of the authors' files, because each file lacks some.
    """
    for label, expected in POOL_COUNTS.items():
        n_labels, n_sizes, n_both = one_row(
            connection,
            """
            SELECT count(labels.height), count(sizes.height), count(*)
            FROM (SELECT DISTINCT height FROM paper_labels WHERE label = $1) AS labels
            FULL JOIN (SELECT DISTINCT height FROM paper_sizes WHERE label = $1) AS sizes USING (height)
            """,
            label,
        )
        yield CheckedStatement(
            statement=f"Blocks of {label} over the window",
            paper=f"{expected:,}",
            ours=f"{n_both:,}",
            verdict="replicated" if n_both == expected else "differs",
            reason=f"Heights in the label file ({n_labels:,}) or in the pool's size file ({n_sizes:,}), which"
            " goes on to the end of the window. Neither file alone gives the figure.",
        )


def _top_25(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    n_top, n_all, n_names, n_top_as_published = one_row(
        connection,
        """
        WITH counts AS (
            SELECT coalesce(slug, lower(label)) AS pool, count(*) AS n_blocks
            FROM paper_labels LEFT JOIN slugs ON lower(label) = slugs.name
            GROUP BY pool
        ),
        ranked AS (
            SELECT *, row_number() OVER (ORDER BY n_blocks DESC, pool) AS position
            FROM counts WHERE pool != 'unknown'
        ),
        published AS (
            SELECT count(*) AS n_blocks FROM paper_labels
            WHERE label != 'unknown' GROUP BY label ORDER BY n_blocks DESC LIMIT 25
        )
        SELECT
            sum(n_blocks) FILTER (WHERE position <= 25),
            (SELECT count(*) FROM paper_labels),
            count(*),
            (SELECT sum(n_blocks) FROM published)
        FROM ranked
        """,
    )
    found = n_top / n_all
    yield CheckedStatement(
        statement="Blocks of the 25 largest pools",
        paper=f"over {percent(TOP_25, 0)}",
        ours=f"{percent(found)} ({interval(n_top, n_all)})",
        verdict="replicated" if found > TOP_25 else "differs",
        reason=f"Labels that our rules know as one pool are merged, which leaves {n_names} pools; with the"
        f" labels as published it is {percent(n_top_as_published / n_all)}. Blocks without a label count in"
        " the total. The paper does not say which labels it merged.",
    )


def _top_3(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    days = connection.execute(
        """
        WITH ranked AS (
            SELECT
                day,
                hashes_per_s,
                row_number() OVER (PARTITION BY day ORDER BY hashes_per_s DESC) AS position
            FROM paper_hashrates WHERE NOT list_contains($1, label)
        ),
        networks AS (SELECT day, hashes_per_s FROM paper_hashrates WHERE label = 'ALL')
        SELECT
            strftime(day, '%Y-%m-%d'),
            sum(ranked.hashes_per_s) / any_value(networks.hashes_per_s) AS share
        FROM ranked INNER JOIN networks USING (day) WHERE position <= 3 GROUP BY day ORDER BY share
        """,
        [list(conference.NO_POOL)],
    ).fetchall()
    n_runs, n_over = one_row(connection, TOP_3_OF_RUNS, RUN_BLOCKS, TOP_3)
    below = [day for day, share in days if share <= TOP_3]
    yield CheckedStatement(
        statement="Hashrate of the three largest pools, each day",
        paper="over one third every day",
        ours=f"over one third on {len(days) - len(below):,} of {len(days):,} days;"
        f" least {percent(days[0][1])}",
        verdict="differs" if below else "replicated",
        reason=(f"Not on {', '.join(sorted(below))}. " if below else "")
        + "Pools inside the columns 'Unknown' and 'others' cannot be told apart, so ours is a lower bound. In"
        f" the label file the three largest have over one third of {n_over:,} of {n_runs:,} runs of"
        f" {RUN_BLOCKS} blocks, about a day each.",
    )


def _feerates(_connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    for statement, figure in (
        ("Of the X best-paying transactions, a block takes", "about 90 %"),
        ("Of the transactions behind the best 2X, a block takes", "below 5 %"),
    ):
        yield CheckedStatement(
            statement=statement,
            paper=figure,
            ours="none",
            verdict="cannot be replicated",
            reason="No transaction, feerate or mempool was published. The mart feerate_strategy measures it"
            " on your own dataset.",
        )


STATEMENTS: Final[tuple[Callable[[duckdb.DuckDBPyConnection], Iterator[CheckedStatement]], ...]] = (
    _labelled,
    _blocks_of_pools,
    _top_25,
    _top_3,
    conference.top_five,
    economy.growth,
    conference.growth_rates,
    conference.two_stages,
    economy.unit_revenue,
    conference.falling_shares,
    conference.shares_at_end,
    economy.threshold,
    conference.unit_cost,
    economy.halving,
    empty_intervals,
    _feerates,
)
