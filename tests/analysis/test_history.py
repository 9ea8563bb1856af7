"""Test marts that are built from public lists alone, imported without a node."""

import csv
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from analysis.attribution.rules import default_rules_dir
from analysis.database import open_database
from analysis.engine import build
from analysis.late import early_name
from analysis.parts import parts_folder
from collector.dataset.open import Dataset
from collector.external.imported_rows import Origin, read_import, store_import

pytestmark = pytest.mark.data
MARTS = (
    "pool_share",
    "empty_rate",
    "hashrate",
    "revenue",
    "block_intervals",
    "block_disagreement",
    "arrival_summary",
    "arrival_spread",
    "block_order",
)
LABELS = "pool-labels-610683-699999.parquet"

Stamps = dict[str, dict[str, tuple[int, int]]]  # of a list, by hash: height and seconds


@pytest.fixture(scope="module")
def database(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Import labels, a week of blocks, prices and arrivals, as the README says, and build."""
    root = tmp_path_factory.mktemp("history") / "dataset"
    dataset = Dataset.open(root, "main", create=True)
    files = [
        ("labels", "labels", data_dir / LABELS),
        ("prices", "brk", data_dir / "brk/date_price_ohlc.json"),
    ]
    files += [
        ("blocks", "blockchair", file) for file in sorted((data_dir / "blockchair-2025-03").glob("*.tsv"))
    ]
    for file in sorted((data_dir / "block-arrival-times").glob("*.csv")):
        files.append(("arrivals", file.stem, file))
    for kind, source, file in files:
        store_import(
            dataset, read_import(kind, file, Origin(source, "see its README", "https://example.org"))
        )
    result = build(root, default_rules_dir(), root.parent / "history.duckdb", marts=MARTS)
    assert [check.name for check in result.failed_checks] == []
    return result.database


def test_shares_by_label_are_a_plain_count(database: Path, data_dir: Path) -> None:
    """At heights that only the label list has, each pool has as many blocks as it has labels."""
    labels = pq.ParquetFile(data_dir / LABELS).read()["pool_slug"].to_pylist()
    with open_database(database) as connection:
        rows = connection.execute(
            "SELECT pool, count(*) FROM block_pool WHERE height BETWEEN 610683 AND 699999 GROUP BY pool"
        ).fetchall()
        names = dict(connection.execute("SELECT name, slug FROM pool_names").fetchall())

    expected = Counter(names.get(label.lower(), "unknown") for label in labels)
    assert dict(rows) == expected
    assert expected["unknown"] == labels.count("unknown")


def test_a_week_of_coinbases_is_named_by_our_rules(database: Path) -> None:
    """Our rules name the pool of at least 98.9 % of 1,012 blocks, from coinbases of a block table."""
    with open_database(database) as connection:
        ((n_blocks, n_by_rule),) = connection.execute(
            "SELECT count(*), count(rule_id) FROM block_pool WHERE told_by = 'blockchair'"
        ).fetchall()

    assert n_blocks == 1012
    assert n_by_rule / n_blocks >= 0.989


def test_every_result_names_its_sources(database: Path, data_dir: Path) -> None:
    """Shares rest on labels and the block table; empty blocks, hashrate and fees on the block table alone."""
    with open_database(database) as connection:

        def sources(mart: str) -> set[str]:
            rows = connection.execute(f"SELECT DISTINCT unnest(told_by) FROM {mart}").fetchall()  # noqa: S608 - names above
            return {source for (source,) in rows}

        assert sources("pool_share") == {"labels", "blockchair"}
        assert sources("empty_rate") == {"blockchair"}
        ((n_empty, n_blocks),) = connection.execute(
            "SELECT n_empty, n_blocks FROM empty_rate WHERE grouped_by = 'network' AND period_kind = 'all'"
        ).fetchall()
        ((priced, fees),) = connection.execute(
            "SELECT priced_block_count, fee_block_count FROM revenue"
            " WHERE grouped_by = 'network' AND period_kind = 'all'"
        ).fetchall()
    files = sorted((data_dir / "blockchair-2025-03").glob("*.tsv"))
    counts = pd.concat([pd.read_csv(file, sep="\t") for file in files])["transaction_count"]
    assert (n_empty, n_blocks) == ((counts == 1).sum(), 1012)
    assert priced == fees == 1012


def test_blocks_of_others_cost_no_range(database: Path) -> None:
    """A mart of transactions is made once and has no row, though others tell of more than 100,000 blocks."""
    with open_database(database) as connection:
        assert connection.execute("SELECT count(*) FROM block_order").fetchone() == (0,)
        ((n_blocks,),) = connection.execute("SELECT count(*) FROM chain_blocks").fetchall()

    assert n_blocks > 100_000
    assert len(list((parts_folder(database) / early_name("block_order")).iterdir())) == 1


def test_intervals_are_on_the_clock_of_one_source(database: Path) -> None:
    """Each list of arrivals gives block intervals on its own clock, 9 to 10 minutes on average."""
    with open_database(database) as connection:
        rows = connection.execute(
            "SELECT clock, count(*), avg(interval_s) FROM block_intervals"
            " WHERE clock IS NOT NULL GROUP BY clock"
        ).fetchall()

    found = {clock: (n, mean_s) for clock, n, mean_s in rows}
    assert found.keys() == {"offing-gcp", "darosior_node0", "vostrnad_node1"}
    assert all(540 < mean_s < 600 for _, mean_s in found.values())
    assert sum(n for n, _ in found.values()) > 54_000


@pytest.fixture(scope="module")
def stamps(data_dir: Path) -> Stamps:
    """Read the published files with no help of ours."""
    found: Stamps = {}
    for path in sorted((data_dir / "block-arrival-times").glob("*.csv")):
        with path.open() as file:
            first: dict[str, tuple[int, int]] = {}
            for height, name, ms in csv.reader(file):
                # A node that came back to a branch lists the block twice; it arrived at the first time.
                first[name] = min(first.get(name, (int(height), int(ms))), (int(height), int(ms)))
            found[path.stem] = {name: (height, ms // 1000) for name, (height, ms) in first.items()}
    return found


def rows_of(database: Path, mart: str) -> list[dict[str, Any]]:
    """Return the rows of a mart by column."""
    with open_database(database) as connection:
        rows: list[dict[str, Any]] = connection.sql(f"FROM {mart}").to_arrow_table().to_pylist()
        return rows


def test_intervals_of_each_list_are_ten_minutes_in_whole_seconds(database: Path, stamps: Stamps) -> None:
    """Each list has its number of blocks, says that it has whole seconds, and gives a plausible mean."""
    rows = {row["clock"]: row for row in rows_of(database, "arrival_summary")}

    assert {clock: row["block_count"] for clock, row in rows.items()} == {
        source: len(blocks) for source, blocks in stamps.items()
    }
    for clock, row in rows.items():
        assert row["is_whole_seconds"]
        assert 570 < row["interval_mean_s"] < 595
        # Of exponential intervals the median is ln 2 of the mean, a little more where the hashrate changes.
        assert 0.68 < row["interval_median_s"] / row["interval_mean_s"] < 0.72
        heights = defaultdict(set)
        for name, (height, _) in stamps[clock].items():
            heights[height].add(name)
        assert row["fork_height_count"] == sum(len(names) > 1 for names in heights.values())
        assert row["missing_height_count"] == max(heights) - min(heights) + 1 - len(heights)


def test_the_spread_of_two_nodes_over_their_common_blocks(database: Path, stamps: Stamps) -> None:
    """Lag, order and quantiles of the two nodes equal those computed from the files."""
    (row,) = rows_of(database, "arrival_spread")
    first, second = stamps["darosior_node0"], stamps["vostrnad_node1"]
    lags = np.array([second[name][1] - first[name][1] for name in first.keys() & second.keys()])

    assert (row["clock"], row["other_clock"]) == ("darosior_node0", "vostrnad_node1")
    assert row["shared_count"] == len(lags) > 39_000
    assert row["is_whole_seconds"]
    assert (row["first_count"], row["equal_count"], row["other_first_count"]) == (
        (lags > 0).sum(),
        (lags == 0).sum(),
        (lags < 0).sum(),
    )
    assert [row["lag_p5_s"], row["lag_median_s"], row["lag_p95_s"]] == np.quantile(
        lags, [0.05, 0.5, 0.95]
    ).tolist()
    assert row["spread_p99_s"] == np.quantile(np.abs(lags), 0.99)
