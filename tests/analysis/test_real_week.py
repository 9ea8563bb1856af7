"""Test marts on a real week: 1,012 blocks of 1-7 March 2025 from one provider, with prices of another."""

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from analysis.attribution.rules import default_rules_dir
from analysis.database import open_database
from analysis.engine import build
from analysis.stats import concentration
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES, Table, hash_bytes
from collector.external.imported_rows import Origin, read_import, store_import
from tests.analysis.world import contract_row

pytestmark = pytest.mark.data
PROVIDER = Origin("blockchair", "see its terms", "https://blockchair.com/dumps")
PRICES = Origin("brk", "MIT", "https://github.com/bitcoinresearchkit/brk")
MARTS = (
    *("block_work", "concentration_index", "hashrate", "label_summary", "owner_share", "pool_share"),
    "revenue",
)


@pytest.fixture(scope="module")
def week(data_dir: Path) -> pd.DataFrame:
    """Read the provider's rows."""
    files = sorted((data_dir / "blockchair-2025-03").glob("*.tsv"))
    rows = pd.concat([pd.read_csv(file, sep="\t") for file in files]).sort_values("id")
    # The provider gives no parents. The week has no gap, so the parent is the block of the row before.
    return rows.astype({"difficulty": float}).assign(parent=rows["hash"].shift(fill_value="00" * 32))


@pytest.fixture(scope="module")
def database(week: pd.DataFrame, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the blocks as if observed, import the provider's view of them and the prices, and build."""
    root = tmp_path_factory.mktemp("week") / "dataset"
    dataset = Dataset.open(root, "main", create=True)
    table = TABLES["blocks"]
    blocks = pa.Table.from_pylist([block_row(table, row) for row in week.itertuples()], schema=table.arrow)
    dataset.write(table, blocks, stem="week")
    for file in sorted((data_dir / "blockchair-2025-03").glob("*.tsv")):
        store_import(dataset, read_import("blocks", file, PROVIDER))
    store_import(dataset, read_import("prices", data_dir / "brk" / "date_price_ohlc.json", PRICES))
    return build(root, default_rules_dir(), root.parent / "week.duckdb", marts=MARTS).database


def block_row(table: Table, row: Any) -> dict[str, Any]:
    """Make a row of `blocks` from a row of the provider; columns that the provider lacks are zero."""
    return contract_row(table, {"height_source": "bip34"}) | {
        "block_hash": hash_bytes(row.hash),
        "prev_hash": hash_bytes(row.parent),
        "height": row.id,
        "header_time": pd.Timestamp(row.time, tz="UTC"),
        "bits": row.bits,
        "subsidy_sat": row.generation,
        "fees_sat": row.fee_total,
        "coinbase_script": bytes.fromhex(row.coinbase_data_hex),
        "n_tx": row.transaction_count,
    }


def one(database: Path, query: str) -> tuple[float, ...]:
    """Return the only row of a query as a dictionary."""
    with open_database(database) as connection:
        (row,) = connection.execute(query).fetchall()
    return row


def test_difficulty_and_hashrate_are_the_providers(database: Path, week: pd.DataFrame) -> None:
    """Every difficulty equals the provider's; the week's hashrate is their sum divided by the time."""
    with open_database(database) as connection:
        found = connection.sql("SELECT difficulty FROM block_work ORDER BY height").to_arrow_table()
    assert found["difficulty"].to_pylist() == pytest.approx(week["difficulty"].tolist(), rel=1e-12)
    times = pd.to_datetime(week["time"])
    elapsed_s = (times.iloc[-1] - times.iloc[0]).total_seconds()
    expected = week["difficulty"].iloc[1:].sum() * 2**48 / 65535 / elapsed_s

    low, observed, high = one(
        database,
        "SELECT observed_low_hashes_per_s, observed_hashes_per_s, observed_high_hashes_per_s"
        " FROM hashrate WHERE grouped_by = 'network' AND period_kind = 'all'",
    )

    assert observed == pytest.approx(expected, rel=1e-9)
    assert low < observed < high
    assert (high - low) / observed == pytest.approx(2 * 1.96 / 1011**0.5, rel=0.01)


def test_revenue_adds_up_to_the_providers(database: Path, week: pd.DataFrame) -> None:
    """Revenue in satoshi is exact; USD and hashprice agree within 3 %, as the prices are of other hours."""
    sat, fee_ratio, usd, hashprice = one(
        database,
        "SELECT revenue_sat, fee_ratio, revenue_usd, hashprice_usd_per_ph_day"
        " FROM revenue WHERE grouped_by = 'network' AND period_kind = 'all'",
    )

    assert sat == week["reward"].sum()
    assert fee_ratio == pytest.approx(week["fee_total"].sum() / week["reward"].sum())
    assert usd == pytest.approx(week["reward_usd"].sum(), rel=0.03)
    hashes = (week["difficulty"] * 2**48 / 65535).sum()
    assert hashprice == pytest.approx(week["reward_usd"].sum() * 8.64e19 / hashes, rel=0.03)


def test_labels_of_the_provider_are_never_contradicted(database: Path, week: pd.DataFrame) -> None:
    """Our pool equals the provider's wherever it names one; we name some blocks that it does not."""
    n_blocks, n_agree, n_disagree, n_only_there, n_unmapped, n_only_here, n_neither = one(
        database,
        "SELECT block_count, agree_count, disagree_count, only_there_count, unmapped_count, only_here_count,"
        " neither_count FROM label_summary WHERE source = 'blockchair' AND kind = 'blocks'",
    )

    assert (n_blocks, n_disagree, n_only_there, n_unmapped) == (len(week), 0, 0, 0)
    assert n_agree == (week["guessed_miner"] != "Unknown").sum()
    assert n_only_here + n_neither == (week["guessed_miner"] == "Unknown").sum()
    assert n_only_here > n_neither


def test_concentration_is_that_of_the_counts_and_rises_when_proxies_are_grouped(database: Path) -> None:
    """The index hhi is that of pool_share's counts, inside its interval; merged proxy groups raise it."""
    with open_database(database) as connection:
        counts = connection.execute("SELECT block_count FROM pool_share WHERE NOT is_unknown").fetchall()
        indices = connection.execute(
            "SELECT grouped_by, hhi, nakamoto, hhi_low, hhi_high FROM concentration_index"
            " WHERE period_kind = 'all'"
        ).fetchall()
        friends = owner_counts(connection)
    found = {grouped_by: rest for grouped_by, *rest in indices}
    hhi, nakamoto, *_ = concentration.indices([count for (count,) in counts])

    assert found["pool"][:2] == pytest.approx([hhi, nakamoto])
    assert found["pool"][2] < hhi < found["pool"][3]
    assert found["proxy"][0] > found["pool"][0]
    assert found["proxy"][1] <= found["pool"][1]
    assert friends["antpool-and-friends"] > friends["antpool"]


def owner_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Count the blocks of each pool, and of the proxy group of AntPool, over the week."""
    rows = connection.execute(
        "SELECT owner, block_count FROM owner_share WHERE period_kind = 'all'"
        " AND (grouped_by = 'pool' OR owner = 'antpool-and-friends')"
    ).fetchall()
    return dict(rows)
