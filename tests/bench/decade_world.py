"""Write a dataset of a decade: ten years of blocks, as a backfill leaves them, and then a planted world.

    python -m tests.bench.decade_world --out FOLDER [--years N] [--blocks N] [--entering N]

FOLDER gets `dataset/` and `pools/`. The world (`planted_files`) begins in 2026, with a mempool and confirmed
transactions; before it lie the years, each of about 52,600 blocks of five transactions. Coinbases have tags
of real pools: pools come and go, fees have seasons, targets follow a hashrate that grows by half every year,
the subsidy halves, and each day has a price. `pools/` has the rules of the package, and those of the world.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.attribution.rules import default_rules_dir
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from tests.bench.planted_files import (
    BEGIN_US,
    CHAIN,
    FIRST_HEIGHT,
    binary,
    block_hashes,
    filled,
    hashes,
    header_times,
    lists,
    write_world,
)
from tests.bench.planted_world import INTERVAL_S, SECOND_US, Floats, Ints, Size, simulate

YEAR_S: Final = 31_556_952
YEARS: Final = 10.0
DAY_S: Final = 86_400
RETARGET: Final = 2016
HALVING: Final = 210_000
FIRST_SUBSIDY_SAT: Final = 50 * 10**8
GROWTH: Final = 1.5  # of the hashrate in a year
HASHES_PER_S: Final = 1e18  # ten years before the world
EMPTY_RATIO: Final = 0.006
TX_PER_BLOCK: Final = 4  # besides the coinbase; the chain's 1.2 billion would fill a disk
MOST_TX: Final = 64
BLOCKS_AT_ONCE: Final = 50_000
DOMAIN: Final = 5  # of the hashes; the world has the ones before


class Pool(NamedTuple):
    """Describes a pool: its tag, the years in which it mines (0 is ten before the world), its weight."""

    tag: str
    from_year: float
    to_year: float
    weight: float


POOLS: Final = (
    Pool("/AntPool/", 0, 10, 18),
    Pool("F2Pool", 0, 10, 14),
    Pool("/ViaBTC/", 0.4, 10, 9),
    Pool("/slush/", 0, 6.7, 8),
    Pool("/BTCC/", 0, 2.4, 9),
    Pool("/BTC.COM/", 0.7, 6.5, 15),
    Pool("/BTC.TOP/", 0.9, 5.5, 9),
    Pool("/poolin.com", 2.3, 8, 12),
    Pool("/Foundry USA Pool #dropgold/", 4.5, 10, 30),
    Pool("/Binance/", 4.3, 10, 11),
    Pool("/LUXOR/", 4, 10, 3),
    Pool("/MARA Pool/", 5.4, 10, 3),
    Pool("/SBICrypto.com Pool/", 5.2, 10, 2),
    Pool("/SpiderPool/", 7.3, 10, 5),
    Pool("", 0, 10, 1),  # no rule names it
)


def write_decade(out: Path, years: float, size: Size) -> Path:
    """Write the years, and then the world; return the dataset's folder."""
    folder = write_world(simulate(size), out)
    for rules in default_rules_dir().glob("*.toml"):
        shutil.copy(rules, out / "pools")
    dataset = Dataset.open(folder, CHAIN)
    for name, stem, n_rows, columns in _tables(years, np.random.default_rng(size.seed)):
        dataset.write(TABLES[name], filled(TABLES[name], n_rows, columns), stem=stem, is_sorted=True)
    return folder


def _tables(years: float, rng: np.random.Generator) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """Give table name, file stem, number of rows and columns, some thousand blocks at a time."""
    n_blocks = round(years * YEAR_S / INTERVAL_S)
    back_s = np.cumsum(rng.exponential(INTERVAL_S, n_blocks))[::-1]  # before the world's begin
    weights = np.array([pool.weight * rng.uniform(0.7, 1.3, round(YEARS * 12) + 1) for pool in POOLS])
    for begin in range(0, n_blocks, BLOCKS_AT_ONCE):
        heights = FIRST_HEIGHT - n_blocks + np.arange(begin, min(begin + BLOCKS_AT_ONCE, n_blocks))
        before_s = back_s[begin : begin + BLOCKS_AT_ONCE]
        year = np.maximum(YEARS - before_s / YEAR_S, 0)
        transactions = _transactions(heights, year, rng)
        columns = _blocks(heights, before_s, _drawn(year, weights, rng), transactions)
        yield "blocks", f"history-{begin}", len(heights), columns
        yield "transactions", f"history-{begin}", len(transactions["height"]), transactions
    prices = _prices(round(years * YEAR_S / DAY_S), rng)
    yield "external_prices", "history", len(prices["source"]), prices


def _transactions(heights: Ints, year: Floats, rng: np.random.Generator) -> dict[str, Any]:
    """Give rows of `transactions`: a coinbase in each block, and a few more in all but the empty ones."""
    n_tx = 1 + np.where(
        rng.random(len(heights)) < EMPTY_RATIO, 0, 1 + rng.poisson(TX_PER_BLOCK - 1, len(heights))
    )
    place = np.repeat(np.arange(len(heights)), n_tx)
    tx_index = np.arange(len(place)) - np.repeat(np.cumsum(n_tx) - n_tx, n_tx)
    season = 0.8 * np.sin(year * 5.1) + 0.5 * np.sin(year * 1.3)
    vsize = 110 + rng.geometric(1 / 300, len(place))
    fee = (vsize * rng.lognormal(2, 0.8, len(place)) * np.exp(season[place])).astype(np.int64)
    return {
        "block_hash": _hash_at(heights)[place],
        "height": heights[place],
        "tx_index": tx_index,
        "txid": hashes(DOMAIN + 1, heights[place] * MOST_TX + tx_index),
        "vsize_vb": vsize,
        "weight_wu": vsize * 4,
        "size_bytes": vsize,
        "n_inputs": np.ones(len(place), np.int64),
        "n_outputs": np.full(len(place), 2),
        "output_value_sat": vsize * 5000,
        "fee_sat": pa.array(fee, mask=tx_index == 0),
        "is_coinbase": tx_index == 0,
    }


def _blocks(heights: Ints, before_s: Floats, pool: Ints, transactions: dict[str, Any]) -> dict[str, Any]:
    """Give rows of `blocks`, so many seconds before the world; the last one is the parent of its first."""
    n = len(heights)
    first = np.flatnonzero(transactions["is_coinbase"])
    n_tx = np.diff(np.append(first, len(transactions["height"])))
    fees = np.add.reduceat(transactions["fee_sat"].fill_null(0).to_numpy(), first)
    weight = np.add.reduceat(transactions["weight_wu"], first) + 320
    reward = fees + (FIRST_SUBSIDY_SAT >> (heights // HALVING))
    tags = [POOLS[each].tag for each in pool]
    scripts = [_coinbase(int(height), tag) for height, tag in zip(heights, tags, strict=True)]
    keys = np.concatenate([np.full((len(POOLS), 2), [0, 20], np.uint8), _keys()], axis=1)  # of P2WPKH
    outputs = pa.StructArray.from_arrays(
        [pa.array(reward), binary(keys[pool]).cast(pa.binary())], ["value_sat", "script"]
    )
    return {
        "block_hash": _hash_at(heights),
        "prev_hash": _hash_at(heights - 1),
        "coinbase_txid": transactions["txid"][first],
        "height": heights,
        "version": np.full(n, 0x20000000),
        "header_time": header_times((-before_s * SECOND_US).astype(np.int64)),
        "bits": _bits(heights),
        "n_tx": n_tx,
        "n_inputs": n_tx - 1,
        "n_outputs": n_tx * 2,
        "size_bytes": weight // 4,
        "stripped_bytes": weight // 4,
        "weight_wu": weight,
        "fees_sat": fees,
        "subsidy_sat": reward - fees,
        "coinbase_value_sat": reward,
        "coinbase_script": pa.array(scripts, pa.binary()),
        "coinbase_outputs": lists(np.arange(n + 1), outputs),
        "source": pa.repeat(pa.scalar("blkfile"), n),
    }


def _keys() -> npt.NDArray[np.uint8]:
    """Return the 20 bytes that the payouts of each pool have."""
    return hashes(DOMAIN + 2, np.arange(len(POOLS)))[:, :20]


def _drawn(year: Floats, weights: Floats, rng: np.random.Generator) -> Ints:
    """Draw the pool of each block among those of its time, by weights that change every month."""
    here = np.array([[pool.from_year, pool.to_year] for pool in POOLS])
    chances = weights[:, (year * 12).astype(np.int64)].copy()
    chances[(year < here[:, :1]) | (year >= here[:, 1:])] = 0
    upto = np.cumsum(chances, axis=0)
    return (rng.random(len(year)) * upto[-1] >= upto).sum(axis=0)


def _coinbase(height: int, tag: str) -> bytes:
    """Return a coinbase script: the height as BIP34 has it, the tag, and an extranonce."""
    return b"\x03" + height.to_bytes(3, "little") + tag.encode() + height.to_bytes(8, "big")


def _hash_at(heights: Ints) -> Any:
    """Return the hashes of blocks at heights; that below the first of the world is its parent."""
    numbers = heights - FIRST_HEIGHT
    return np.where((numbers == -1)[:, None], block_hashes(numbers), hashes(DOMAIN, heights))


def _bits(heights: Ints) -> Ints:
    """Return the compact targets that a hashrate which grows evenly asks for; one for each 2016 heights."""
    first = heights // RETARGET * RETARGET
    year = YEARS + (first - FIRST_HEIGHT) * INTERVAL_S / YEAR_S
    epochs, place = np.unique(HASHES_PER_S * GROWTH**year * INTERVAL_S, return_inverse=True)
    compact = []
    for work in epochs:
        target = int((1 << 256) / work)
        n_bytes = (target.bit_length() + 8) // 8
        compact.append(n_bytes << 24 | target >> 8 * (n_bytes - 3))
    return np.array(compact)[place]


def _prices(n_days: int, rng: np.random.Generator) -> dict[str, Any]:
    """Give a price for each day before those of the world."""
    days = np.arange(-n_days, -1) * DAY_S * SECOND_US
    return {
        "source": ["made up"] * len(days),
        "currency": ["USD"] * len(days),
        "close": 500 * np.exp(np.cumsum(rng.normal(0.0015, 0.03, len(days)))),
        "day_at": header_times(days),
        "imported_at": pa.repeat(pa.scalar(BEGIN_US, pa.timestamp("us", tz="UTC")), len(days)),
    }


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--years", type=float, default=YEARS, help="length of the history")
    parser.add_argument("--blocks", type=int, default=300, help="blocks of the world after it")
    parser.add_argument("--entering", type=int, default=250, help="its transactions per block interval")
    options = parser.parse_args()
    size = Size(options.blocks, options.entering, options.entering * 4 // 5)
    print(write_decade(options.out, options.years, size))


if __name__ == "__main__":
    main()
