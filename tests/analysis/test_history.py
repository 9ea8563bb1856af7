"""Test marts that are built from public lists alone, imported without a node."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from analysis.attribution.rules import default_rules_dir
from analysis.database import open_database
from analysis.engine import build
from collector.dataset.open import Dataset
from collector.external.store import Origin, import_file

pytestmark = pytest.mark.data
MARTS = ("pool_share", "empty_rate", "hashrate", "revenue", "block_intervals", "block_disagreement")
LABELS = "pool-labels-610683-699999.parquet"


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
        import_file(dataset, kind, file, Origin(source, "see its README", "https://example.org"))
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
