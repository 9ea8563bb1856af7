"""Three marts as one would write them in pandas, beside the SQL: the same numbers, and how long each takes.

What both read is read before: tables of the database on one side, data frames on the other. Blocks are looked
at one by one in pandas, so only some are measured there, and the time is told for all of them.
"""

import statistics
import time
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pandas as pd

from analysis.catalog import load_catalog
from analysis.database import connect
from analysis.incremental import create_model

SAMPLE: Final = 40
ROUNDS: Final = 3


def compare(database: Path) -> dict[str, dict[str, Any]]:
    """Compare the three marts in one run; a ratio is the time of pandas by ours."""
    found = {}
    with connect() as connection:
        connection.execute(f"ATTACH '{database}' AS built (READ_ONLY)")
        connection.execute("SET search_path = 'memory,built'")
        for name, by_hand in (
            ("block_mempool", block_mempool),
            ("feerate_age_block", feerate_age_block),
            ("mempool_packages", mempool_packages),
        ):
            sql_s = statistics.median(_made(connection, name) for _ in range(ROUNDS))
            pandas_s, n_measured, n_all = by_hand(connection)
            whole_s = pandas_s * n_all / n_measured
            found[name] = {
                "sql_s": sql_s,
                "pandas_s": whole_s,
                "pandas_measured_on": f"{n_measured} of {n_all}",
                "ratio": whole_s / sql_s,
            }
    return found


def _made(connection: duckdb.DuckDBPyConnection, name: str) -> float:
    """Make a mart again in memory; return the seconds that it takes."""
    connection.execute(f"DROP TABLE IF EXISTS memory.{name}")
    begun_s = time.perf_counter()
    create_model(connection, load_catalog().by_name[name])
    return time.perf_counter() - begun_s


def _stays(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    columns = "stay_no, first_cut_no, last_cut_no, mined_cut_no, fee_sat, vsize_vb"
    return connection.sql(f"SELECT {columns} FROM mempool_residence WHERE first_cut_no <= last_cut_no").df()  # noqa: S608 - names above


def _sample(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose rows evenly, without the first ones, where hardly anything waits."""
    return frame.iloc[np.linspace(len(frame) // 10, len(frame) - 1, min(SAMPLE, len(frame))).astype(int)]


def block_mempool(connection: duckdb.DuckDBPyConnection) -> tuple[float, int, int]:
    """Count who waits at each block."""
    stays = _stays(connection)
    blocks = connection.sql("SELECT cut_no, n_mempool, n_own FROM memory.block_mempool ORDER BY cut_no").df()
    sample = _sample(blocks)
    begun_s = time.perf_counter()
    counts = []
    for cut_no in sample["cut_no"]:
        waiting = stays[(stays["first_cut_no"] <= cut_no) & (stays["last_cut_no"] >= cut_no)]
        counts.append((cut_no, len(waiting), int((waiting["mined_cut_no"] == cut_no).sum())))
    took_s = time.perf_counter() - begun_s
    assert counts == list(sample.itertuples(index=False, name=None))
    return took_s, len(sample), len(blocks)


def feerate_age_block(connection: duckdb.DuckDBPyConnection) -> tuple[float, int, int]:
    """Rank the mempool of each block by plain feerate and look at the X best; one age and one kind of 24."""
    stays = _stays(connection)
    blocks = connection.sql(
        "SELECT cut_no, x, n_ranked, n_top_taken, n_outside_taken FROM memory.feerate_age_block"
        " INNER JOIN mempool_cuts USING (block_hash, node)"
        " WHERE age_s = 0 AND feerate_kind = 'plain' AND x > 0 ORDER BY cut_no"
    ).df()
    sample = _sample(blocks)
    begun_s = time.perf_counter()
    counts = []
    for cut_no, x in zip(sample["cut_no"], sample["x"], strict=True):
        waiting = stays[(stays["first_cut_no"] <= cut_no) & (stays["last_cut_no"] >= cut_no)]
        waiting = waiting.assign(feerate=waiting["fee_sat"] / waiting["vsize_vb"])
        ranked = waiting.sort_values(["feerate", "stay_no"], ascending=[False, True])
        taken = ranked["mined_cut_no"] == cut_no
        counts.append((cut_no, x, len(ranked), int(taken[:x].sum()), int(taken[2 * x :].sum())))
    took_s = time.perf_counter() - begun_s
    assert counts == list(sample.itertuples(index=False, name=None))
    n_all = connection.sql("SELECT count(*) FROM memory.feerate_age_block WHERE x > 0").fetchall()[0][0]
    return took_s, len(sample), n_all


def mempool_packages(connection: duckdb.DuckDBPyConnection) -> tuple[float, int, int]:
    """Sum up the ancestors of everything that has relatives, at each block."""
    stays = _stays(connection)
    stays = stays[stays["fee_sat"].notna() & (stays["vsize_vb"] > 0)]
    links = connection.sql("SELECT child_no, parent_no FROM mempool_links").df()
    blocks = connection.sql("SELECT cut_no FROM mempool_cuts ORDER BY cut_no").df()
    sample = _sample(blocks)
    took_s = 0.0
    for cut_no in sample["cut_no"]:
        begun_s = time.perf_counter()
        found = _packages(stays, links, cut_no)
        took_s += time.perf_counter() - begun_s
        expected = connection.sql(
            "SELECT stay_no, package_feerate_sat_vb FROM memory.mempool_packages"  # noqa: S608 - a number
            f" WHERE {cut_no} BETWEEN first_cut_no AND last_cut_no ORDER BY stay_no"
        ).df()
        related = found.reindex(expected["stay_no"])
        assert (related.to_numpy() == expected["package_feerate_sat_vb"].to_numpy()).all()
    return took_s, len(sample), len(blocks)


def _packages(stays: pd.DataFrame, links: pd.DataFrame, cut_no: int) -> pd.Series:
    """Return the package feerate of everything that waits at a block, by stay."""
    waiting = stays[(stays["first_cut_no"] <= cut_no) & (stays["last_cut_no"] >= cut_no)].set_index("stay_no")
    links = links[links["child_no"].isin(waiting.index) & links["parent_no"].isin(waiting.index)]
    own = pd.DataFrame({"child_no": waiting.index, "parent_no": waiting.index})
    pairs = pd.concat([own, links])
    edge = links
    while len(edge):
        edge = edge.merge(links, left_on="parent_no", right_on="child_no", suffixes=("", "_above"))
        edge = edge[["child_no", "parent_no_above"]].rename(columns={"parent_no_above": "parent_no"})
        pairs = pd.concat([pairs, edge])
    pairs = pairs.drop_duplicates().merge(waiting, left_on="parent_no", right_index=True)
    sums = pairs.groupby("child_no")[["fee_sat", "vsize_vb"]].sum()
    score = np.minimum(sums["fee_sat"] / sums["vsize_vb"], waiting["fee_sat"] / waiting["vsize_vb"])
    pairs["score"] = pairs["child_no"].map(score)
    packages: pd.Series = pairs.groupby("parent_no")["score"].max()
    return packages
