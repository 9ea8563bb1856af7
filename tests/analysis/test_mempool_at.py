"""Test the replay of a mempool: against a node played step by step, and as the command line shows it."""

import csv
import datetime as dt
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.engine import build
from analysis.errors import DatabaseError, MomentError
from analysis.mempool_at import MICROSECOND, mempool_at, moment_of, steps_around
from tests.analysis.shared_build import RULES, SharedBuild
from tests.analysis.test_cli import run
from tests.analysis.test_feerate_oracle import World, cluster_feerate
from tests.analysis.world import at, label_bytes, label_of, write_world

N_STEPS = 80
MARTS = ["mempool_residence", "coverage_intervals", "mempool_clusters", "mempool_cuts"]


def drawn_steps(seed: int) -> Iterator[tuple[Any, ...]]:
    """Draw what happens to a node: most transactions have a fee, and many have parents."""
    draw = random.Random(seed)  # noqa: S311 - a drawn history, no secret
    for _ in range(N_STEPS):
        kind = draw.choices(("add", "remove", "mine", "cover", "restart"), (60, 10, 8, 2, 1))[0]
        picks = [draw.randrange(30) for _ in range(draw.randrange(3))]
        if kind == "add":
            yield kind, draw.choice([100, 200, 300, 1000, 5000, None]), draw.choice([100, 200, 300]), picks
        elif kind == "remove":
            yield kind, draw.randrange(9)
        elif kind == "mine":
            yield kind, picks, 1, draw.choice([None, 3])
        else:
            yield (kind,)


@pytest.mark.parametrize("seed", range(2))
def test_every_moment_shows_what_waited_then(shared: SharedBuild, seed: int) -> None:
    """At every moment of a drawn history, the transactions and their chunk feerates are those of the node."""
    world = World()
    truth: dict[int, dict[str, float | None] | None] = {}
    for name, *arguments in drawn_steps(seed):
        world.now += 1
        getattr(world, name)(*arguments)
        rated = {txid: tx for txid, tx in world.mempool.items() if tx.fee_sat is not None}
        truth[world.now] = (
            None
            if world.covered_since is None
            else {txid: cluster_feerate(rated, txid) if txid in rated else None for txid in world.mempool}
        )
    world.now += 1
    if world.covered_since is not None:
        world.cover()
    world.tables["nodes"] = [{"session": f"s{i}", "started_at": 0} for i in range(world.session + 1)]

    with shared.built(world.tables, MARTS) as connection:
        for second, expected in truth.items():
            found = mempool_at(connection, at(second), limit=1000)
            assert (found.totals is None) == (expected is None), second
            rows = {label_of(row["txid"]): row["chunk_feerate_sat_vb"] for row in found.rows}
            assert rows == (expected or {}), second
            assert sum(band["n_waiting"] for band in found.bands) == sum(
                feerate is not None for feerate in (expected or {}).values()
            )

        places = connection.execute(
            "SELECT position FROM mempool_residence UNION SELECT left_position FROM mempool_residence"
            " WHERE left_position IS NOT NULL"
        ).fetchall()
        stamps_us = {int(place) >> 32 for (place,) in places}
        changed_at = sorted(dt.datetime.fromtimestamp(stamp_us / 1e6, dt.UTC) for stamp_us in stamps_us)
        for second in truth:
            steps = steps_around(connection, at(second), "n")
            assert steps["change_before"] == max(
                (each for each in changed_at if each < at(second)), default=None
            )
            assert steps["change_after"] == min(
                (each for each in changed_at if each > at(second)), default=None
            )


def test_the_best_paying_stand_first_with_what_is_ahead(shared: SharedBuild) -> None:
    """A child pays for its parent, both stand before a better-paying single, and sizes add up."""
    entries = [
        {"txid": "poor", "entered_at": 10, "fee_sat": 100, "vsize_vb": 100},
        {"txid": "single", "entered_at": 11, "fee_sat": 400, "vsize_vb": 100},
        {"txid": "rich", "entered_at": 12, "fee_sat": 1900, "vsize_vb": 100, "parents": "poor"},
        {"txid": "free", "entered_at": 13},
    ]
    tables = {"mempool_txs": entries, "blocks": [{"block_hash": "b1", "height": 1, "arrived_at": 50}]}
    with shared.built(tables, MARTS) as connection:
        found = mempool_at(connection, at(20))
        before = mempool_at(connection, at(12) - MICROSECOND)
        steps = steps_around(connection, at(12), "n")

    listed = [
        (label_of(row["txid"]), row["chunk_feerate_sat_vb"], row["vsize_ahead_vb"]) for row in found.rows
    ]
    assert listed == [("poor", 10, 0), ("rich", 10, 100), ("single", 4, 200), ("free", None, 300)]
    assert found.totals is not None
    assert (found.totals["n_waiting"], found.totals["n_unrated"], found.totals["vsize_vb"]) == (4, 1, 400)
    assert [label_of(row["txid"]) for row in before.rows] == ["single", "poor"]
    assert (steps["change_before"], steps["change_after"]) == (at(11), at(13))
    assert (steps["block_before"], steps["block_after"]) == (None, at(50) - MICROSECOND)


def test_the_next_block_asks_for_a_feerate_only_where_not_all_fits(shared: SharedBuild) -> None:
    """While all fits into a block, none is needed; then it is that of the last that fits."""
    sizes_vb = {"best": 400_000, "last": 600_000, "left": 100}
    feerates = {"best": 9, "last": 5, "left": 2}
    entries = [
        {"txid": txid, "entered_at": 10 + place, "fee_sat": feerates[txid] * size_vb, "vsize_vb": size_vb}
        for place, (txid, size_vb) in enumerate(sizes_vb.items())
    ]
    tables = {"mempool_txs": entries, "blocks": [{"block_hash": "b1", "height": 1, "arrived_at": 50}]}
    with shared.built(tables, MARTS) as connection:
        totals = [mempool_at(connection, at(second)).totals for second in (11, 12)]

    assert [found and found["next_block_feerate_sat_vb"] for found in totals] == [None, 5]


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("2026-01-01T00:00:05Z", 5),
        ("2026-01-01 00:00:05", 5),
        ("2026-01-01T02:00:05+02:00", 5),
        ("2026-01-01", 0),
    ],
)
def test_a_moment_is_read_as_people_write_it(text: str, second: int) -> None:
    """A moment without a zone is UTC, another zone is converted, and a day is its midnight."""
    assert moment_of(text) == at(second)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59Z", "9" * 500]
)
def test_a_wrong_moment_is_one_sentence(text: str) -> None:
    """What is no time, or outside the calendar, is answered with how to write one."""
    with pytest.raises(MomentError, match="write it in UTC as 2026-01-31T12:00:00Z"):
        moment_of(text)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a world that was watched from second 100 to 200 and from 300 to 400."""
    folder = tmp_path_factory.mktemp("replay")
    coverage = [
        {"topic": "mempool", "from_at": 100, "to_at": 200, "end_reason": "gap"},
        {"topic": "mempool", "from_at": 300, "to_at": 400, "end_reason": "shutdown"},
    ]
    entries = [{"txid": f"t{number}", "entered_at": 110 + number, "fee_sat": 500} for number in range(3)]
    write_world(folder / "dataset", {"mempool_txs": entries, "coverage": coverage})
    return build(folder / "dataset", RULES, folder / "a.duckdb", marts=MARTS).database


def test_the_command_tells_the_verdict_first(database: Path) -> None:
    """A table begins with whether the node was watched; CSV has only the rows."""
    table = run("mempool", database, "--at", "2026-01-01T00:01:52Z")
    rows = run("mempool", database, "--at", "2026-01-01T00:01:52Z", "--format", "csv", "--limit", "2")

    assert table.stdout.startswith("n: Watched from 2026-01-01T00:01:40Z to 2026-01-01T00:03:20Z.")
    assert "3 transactions, 300 vB, 1,500 sat of fees" in table.stdout
    assert [row["txid"] for row in csv.DictReader(io.StringIO(rows.stdout))] == [
        label_bytes(f"t{number}")[::-1].hex() for number in range(2)
    ]
    assert "Watched from" in rows.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--at", "2026-01-01T00:04:10Z"],
            "ended at 2026-01-01T00:03:20Z (gap), and the next begins at 2026-01-01T00:05:00Z",
        ),
        (["--at", "2025-01-01"], "the observation begins at 2026-01-01T00:01:40Z"),
        (["--at", "2027-01-01"], "ended at 2026-01-01T00:06:40Z (shutdown)"),
        (["--node", "other"], "no node of this name was watched; those that were: n\n"),
    ],
)
def test_a_moment_that_is_not_known_is_no_empty_mempool(
    database: Path, options: list[str], words: str
) -> None:
    """It is one sentence with the nearest observation, and exit 1."""
    result = run("mempool", database, *options)

    assert (result.returncode, result.stdout) == (1, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("given", ["yesterday", "9999-12-31"])
def test_what_is_no_time_is_wrong_usage(database: Path, given: str) -> None:
    """The sentence says what was given and which times there are, and the exit status is 2."""
    result = run("mempool", database, "--at", given)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"'{given}' is no time in the years 2009 to 9998" in " ".join(
        result.stderr.replace("│", " ").split()
    )


def test_a_database_of_another_version_is_to_be_built_again(shared: SharedBuild) -> None:
    """Without a column that another version did not have, the error says what to do, in one line."""
    tables = {
        "blocks": [{"block_hash": "a1", "height": 1, "arrived_at": 50}],
        "mempool_txs": [{"txid": "t", "entered_at": 10, "fee_sat": 1}],
    }
    with shared.built(tables, MARTS) as connection:
        assert mempool_at(connection, at(20)).totals is not None
        connection.execute("ALTER TABLE mempool_residence DROP COLUMN left_at")

        with pytest.raises(DatabaseError, match=r"^another version .* run pool-analysis build again .*$"):
            mempool_at(connection, at(20))
