"""Score out-of-band candidates and policies that a build found against planted truth: precision and recall.

    python -m tests.bench.score_candidates [--demo DIR] [--seeds N] [--first SEED]

DIR is what `make demo` wrote: its truth.json says which transactions were paid for outside the chain, and its
demo.duckdb has the candidates. Then each scenario of ordering_world is played with N seeds from SEED on, and
scored. `sold` counts transactions that a pool took because they were paid for, `found` the candidates, and
`ahead` those that the order of the blocks shows without any mempool (mart ahead_of_feerate). `policy` counts
pairs of pool and kind: planted are those in which the pool refuses the kind, found those with a verdict of
refuses, disfavours or favours.
"""

import argparse
import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from analysis.database import open_database
from analysis.engine import build
from tests.analysis.world import label_of, write_world
from tests.bench.ordering_world import SCENARIOS, Scenario, World, simulate, write_rules

MARTS: Final = ("out_of_band", "out_of_band_score", "ahead_of_feerate")
FOUND: Final[Mapping[str, str]] = {
    "found": "SELECT DISTINCT pool, txid FROM out_of_band_candidates",
    "ahead": "SELECT DISTINCT pool, txid FROM ahead_of_feerate",
}
POLICIES: Final = """
    SELECT pool || ' ' || feature FROM pool_policy WHERE verdict IN ('refuses', 'disfavours', 'favours')
"""
REFUSED: Final = frozenset({"censor truc"})  # what ordering_world plants


@dataclass(frozen=True)
class Score:
    """Holds how many transactions were found, how many were sold, and how many are both."""

    n_found: int
    n_sold: int
    n_both: int

    @property
    def precision(self) -> float:
        """Return the part of what was found that was sold; 1 where nothing was found."""
        return self.n_both / self.n_found if self.n_found else 1.0

    @property
    def recall(self) -> float:
        """Return the part of what was sold that was found; 1 where nothing was sold."""
        return self.n_both / self.n_sold if self.n_sold else 1.0


def score(found: Collection[str], sold: Collection[str]) -> Score:
    """Compare two sets of transactions."""
    return Score(len(set(found)), len(set(sold)), len(set(found) & set(sold)))


def build_world(world: World, folder: Path) -> Path:
    """Write a world as a dataset below `folder`, build what is scored, and return the database.

    What was sold is imported as a list, `truth`.
    """
    sold = [{"source": "truth", "txid": txid, "seller": "seller"} for txid in sorted(world.sold)]
    dataset = write_world(folder / "dataset", world.tables | {"external_accelerated": sold})
    rules = write_rules(folder / "pools")
    marts = (*MARTS, "template_audit", "pool_policy")
    return build(dataset, rules, folder / "analysis.duckdb", marts=marts).database


def found_by_pool(connection: duckdb.DuckDBPyConnection, what: str) -> dict[str, set[bytes]]:
    """Return the txids of `what`, a key of FOUND, by pool; internal byte order."""
    found: dict[str, set[bytes]] = {}
    for pool, txid in connection.execute(FOUND[what]).fetchall():
        found.setdefault(pool, set()).add(txid)
    return found


def score_world(scenario: Scenario, seed: int) -> Iterator[tuple[str, Score]]:
    """Play and build a world; yield the score of each way to find, and where wrong ones lie."""
    world = simulate(scenario, seed)
    with tempfile.TemporaryDirectory() as folder, open_database(build_world(world, Path(folder))) as opened:
        for what in FOUND:
            pools = found_by_pool(opened, what)
            names = {pool: {label_of(txid) for txid in txids} for pool, txids in pools.items()}
            yield what, score(set().union(*names.values()), world.sold)
            for pool, found in sorted(names.items()):
                if found - world.sold:
                    yield f"{what}, wrong of {pool}", score(found, found & world.sold)
        yield from score_policies(opened, REFUSED)


def score_policies(
    connection: duckdb.DuckDBPyConnection, refused: Collection[str]
) -> Iterator[tuple[str, Score]]:
    """Yield the score of what pools are said to treat differently, and each finding that was not planted.

    `refused` has pool and kind, with a space between.
    """
    found = {pair for (pair,) in connection.execute(POLICIES).fetchall()}
    yield "policy", score(found, refused)
    for pair in sorted(found.difference(refused)):
        yield f"policy, wrong: {pair}", score({pair}, ())


def score_demo(folder: Path) -> Iterator[tuple[str, Score]]:
    """Yield the score of each way to find on what `make demo` wrote."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    sold = {txid for pool in truth["pools"] for txid in pool["out_of_band_txids"]}
    with open_database(folder / "demo.duckdb") as connection:
        for what in FOUND:
            pools = found_by_pool(connection, what)
            yield what, score({txid[::-1].hex() for txids in pools.values() for txid in txids}, sold)
        refused = {f"{pool['slug']} {kind}" for pool in truth["pools"] for kind in pool["refuses"]}
        yield from score_policies(connection, refused)


def main() -> None:
    """Print a table with a line for each world and way to find."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", type=Path, help="folder that `make demo` wrote")
    parser.add_argument("--seeds", type=int, default=3, help="worlds of each scenario")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    options = parser.parse_args()
    print("| world | seed | what | planted | found | both | precision | recall |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    if options.demo:
        for what, result in score_demo(options.demo):
            print(line("demo", "", what, result))
    for scenario in SCENARIOS:
        for seed in range(options.first, options.first + options.seeds):
            for what, result in score_world(scenario, seed):
                print(line(scenario.name, str(seed), what, result), flush=True)


def line(world: str, seed: str, what: str, result: Score) -> str:
    """Write a line of the table."""
    counts = f"{result.n_sold} | {result.n_found} | {result.n_both}"
    return f"| {world} | {seed} | {what} | {counts} | {result.precision:.2f} | {result.recall:.2f} |"


if __name__ == "__main__":
    main()
