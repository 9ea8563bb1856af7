"""Test that every pool name in the label lists that we have seen leads to a pool of ours."""

import csv
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis.attribution.rules import default_rules_dir

# Names of nobody, and why.
NO_POOL = {
    "unknown",  # the source does not know
    "failed",  # the authors' page could not be read
    "others",  # a sum over small pools
    "bitcoin-russia/ukraine",  # two pools
    "codeblack",  # a miner at ckpool, whose tag several solo pools carried
}
pytestmark = pytest.mark.data


def csv_column(path: Path, name: str, delimiter: str = ",") -> Iterator[str]:
    """Yield the values of a column of a file with a line of names."""
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter=delimiter):
            yield row[name]


def hashrate_head(path: Path) -> list[str]:
    """Return the names of pools in the first line of the authors' table of hashrates."""
    with path.open(encoding="utf-8") as lines:
        names = next(csv.reader(lines))
    return names[1 : names.index("")]


LISTS: dict[str, Callable[[Path], Iterable[str]]] = {
    "bitcoin-data/mining-pools": lambda data: (
        json.loads(path.read_text())["name"]
        for path in (data / "bitcoin-data-mining-pools" / "pools").glob("*.json")
    ),
    "brk and mempool.space": lambda data: (
        pool["name"] for pool in json.loads((data / "brk" / "pools-v2.json").read_text())
    ),
    "consensus-decentralization": lambda data: (
        pool["name"]
        for pool in json.loads(
            (data / "consensus-decentralization" / "mapping_information_identifiers_bitcoin.json").read_text()
        ).values()
    ),
    "labels of the paper": lambda data: csv_column(data / "paper" / "miningpool.csv", "miningpool"),
    "hashrates of the paper": lambda data: hashrate_head(data / "paper" / "hash_rate.csv"),
    "labels 610683 to 699999": lambda data: (
        pq.ParquetFile(data / "pool-labels-610683-699999.parquet").read()["pool_slug"].to_pylist()
    ),
    "blockchair": lambda data: (
        name
        for path in (data / "blockchair-2025-03").glob("*.tsv")
        for name in csv_column(path, "guessed_miner", "\t")
    ),
}


@pytest.fixture(scope="module")
def our_names() -> set[str]:
    """Return every slug, name and alias in data/pools, in small letters."""
    found: set[str] = set()
    for path in default_rules_dir().glob("*.toml"):
        pool = tomllib.loads(path.read_text())
        if "rules" in pool:
            found |= {name.lower() for name in (path.stem, pool["name"], *pool.get("aliases", []))}
    return found


@pytest.mark.parametrize("publisher", LISTS)
def test_every_name_of_a_list_is_a_pool_of_ours(publisher: str, our_names: set[str], data_dir: Path) -> None:
    """No name of the list is unmapped, so that label_agreement can compare all its blocks."""
    names = {name.lower() for name in LISTS[publisher](data_dir)}

    unmapped = sorted(names - our_names - NO_POOL)

    assert names
    assert unmapped == [], f"{len(unmapped)} of {len(names)} names: add them as aliases in data/pools"


def test_what_is_called_no_pool_is_none(our_names: set[str]) -> None:
    """A name that became a pool of ours leaves the list of names of nobody."""
    assert NO_POOL & our_names == set()
