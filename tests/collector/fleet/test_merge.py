"""Datasets of several collectors become one, whose times are those of one clock."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.check.run import check
from collector.cli import main
from collector.dataset.files import WRITE_LOCK, is_lock_held
from collector.dataset.open import Dataset
from collector.dataset.schema import (
    BLOCK_ARRIVALS,
    BLOCKS,
    MEMBER_CLOCKS,
    MEMPOOL_BODIES,
    MEMPOOL_TXS,
    NODES,
    TRANSACTIONS,
)
from collector.errors import DatasetError, SettingsError, WrongUsage
from collector.fleet.clocks import ClockOffset, MemberClock
from collector.fleet.merge import FLEET_FILE, Member, merge_datasets
from tests.collector.compaction.made_files import flip_a_bit_unseen_by_duckdb

DAY_US = 86_400_000_000
BEGIN_US = 20_000 * DAY_US  # a midnight in 2024
SESSION = "20241004T000000Z-0"


class Fleet:
    """Two collectors that watch the same transactions; the second one's clock is wrong and drifts."""

    def __init__(self, root: Path, seed: int, ahead_us: int = 3_600_000_000, drift: float = 20e-6) -> None:
        self.root = root
        self.random = random.Random(seed)  # noqa: S311 - it plants a world
        self.ahead_us, self.drift = ahead_us, drift
        self.alice = Dataset.open(root / "alice", "regtest", create=True)
        self.bob = Dataset.open(root / "bob", "regtest", create=True)
        self.true_us: dict[bytes, int] = {}  # when Bob's node really saw a transaction

    @property
    def members(self) -> list[Member]:
        """Return both members; the first one's clock is right."""
        return [Member("alice", self.alice), Member("bob", self.bob)]

    def on_bobs_clock(self, at_us: int) -> int:
        """Return what Bob's clock shows at a moment."""
        return at_us + self.ahead_us + round(self.drift * (at_us - BEGIN_US))

    def day(self, number: int, n_txs: int = 600) -> None:
        """Let both watch one day; each node is later than the other in half of the cases."""
        rows: tuple[list[dict[str, Any]], ...] = ([], [])
        for _ in range(n_txs):
            txid = self.random.randbytes(32)
            at_us = BEGIN_US + number * DAY_US + self.random.randrange(2 * 3_600_000_000, DAY_US)
            seen_us = [at_us + round(self.random.expovariate(1 / 200_000)) for _ in rows]
            self.true_us[txid] = seen_us[1]
            for member, moment_us in ((0, seen_us[0]), (1, self.on_bobs_clock(seen_us[1]))):
                rows[member].append(
                    {
                        "node": "main",
                        "session": SESSION,
                        "txid": txid,
                        "entered_at": moment_us,
                        "first_seen_kind": "pushed",
                    }
                )
        for dataset, content in zip((self.alice, self.bob), rows, strict=True):
            dataset.write(MEMPOOL_TXS, content, stem=f"day-{number}")

    def merged(self, *, members: list[Member] | None = None, same_clock: bool = False) -> Dataset:
        """Merge into one dataset and return it."""
        merge_datasets(self.root / "merged", members or self.members, trust_clocks=same_clock)
        return Dataset(self.root / "merged", "regtest")


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Fleet:
    """Make a fleet with a day of transactions, by a seed that a failure shows."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed} in {request.node.name}")
    planted = Fleet(tmp_path, seed)
    planted.day(0)
    return planted


def rows_of(dataset: Dataset, table: Any = MEMPOOL_TXS) -> list[dict[str, Any]]:
    """Return the rows of a table in an order that does not depend on its files."""
    return sorted(dataset.read(table).to_pylist(), key=repr)


def micros(moment: Any) -> int:
    """Return a moment in microseconds since 1970."""
    return round(moment.timestamp() * 1e6)


def test_times_are_those_of_the_first_clock(fleet: Fleet) -> None:
    """A clock that is wrong by an hour and drifts is corrected to well below the lags of the network."""
    fleet.day(1)
    merged = fleet.merged()

    errors_us = [
        micros(row["entered_at"]) - fleet.true_us[row["txid"]]
        for row in rows_of(merged)
        if row["node"] == "bob.main"
    ]
    stated_us = [row["error_us"] for row in rows_of(merged, MEMBER_CLOCKS)]
    assert len(errors_us) == 1200
    assert np.abs(errors_us).max() <= 2 * max(stated_us)  # a quartile is no bound of the error
    assert np.abs(errors_us).mean() < 100_000
    assert {row["member"] for row in rows_of(merged, MEMBER_CLOCKS)} == {"bob"}
    assert all(3_599_500_000 < row["offset_us"] < 3_604_000_000 for row in rows_of(merged, MEMBER_CLOCKS))


def test_the_bytes_of_a_transaction_move_with_its_entry(fleet: Fleet) -> None:
    """The moment at which bytes were kept is corrected as that of the entry is."""
    entries = fleet.bob.read(MEMPOOL_TXS).to_pylist()[:5]
    kept = {"node": "main", "session": SESSION, "kept_because": "entered", "raw": bytes(60)}
    bodies = [kept | {"txid": row["txid"], "kept_at": micros(row["entered_at"])} for row in entries]
    fleet.bob.write(MEMPOOL_BODIES, bodies, stem="bodies")
    merged = fleet.merged()

    moved = {row["txid"]: row["kept_at"] for row in rows_of(merged, MEMPOOL_BODIES)}
    entered = {row["txid"]: row["entered_at"] for row in rows_of(merged) if row["node"] == "bob.main"}
    assert moved == {row["txid"]: entered[row["txid"]] for row in entries}


def test_the_order_of_a_members_rows_stays(fleet: Fleet) -> None:
    """The correction never changes which of two rows of one node came first."""
    fleet.day(1)
    before = [
        row["txid"] for row in sorted(fleet.bob.read(MEMPOOL_TXS).to_pylist(), key=lambda r: r["entered_at"])
    ]
    rows = [row for row in fleet.merged().read(MEMPOOL_TXS).to_pylist() if row["node"] == "bob.main"]

    assert [row["txid"] for row in sorted(rows, key=lambda r: r["entered_at"])] == before


def test_nodes_of_one_name_are_told_apart_and_the_first_clock_stays(fleet: Fleet) -> None:
    """Each member's nodes carry its name, and the first member's times are as they were."""
    rows = rows_of(fleet.merged())

    assert {row["node"] for row in rows} == {"alice.main", "bob.main"}
    alices = {row["txid"]: row["entered_at"] for row in fleet.alice.read(MEMPOOL_TXS).to_pylist()}
    assert {row["txid"]: row["entered_at"] for row in rows if row["node"] == "alice.main"} == alices


def test_one_clock_is_not_corrected(fleet: Fleet) -> None:
    """With `--same-clock` every time is as the member wrote it."""
    rows = rows_of(fleet.merged(same_clock=True))

    theirs = sorted(micros(row["entered_at"]) for row in fleet.bob.read(MEMPOOL_TXS).to_pylist())
    assert sorted(micros(row["entered_at"]) for row in rows if row["node"] == "bob.main") == theirs


def test_only_what_changed_is_written_again(fleet: Fleet) -> None:
    """A second call writes nothing; a new day adds its files and leaves those of older days alone."""
    for number in (1, 2, 3):
        fleet.day(number)
    merged = fleet.merged()
    before = {path: path.stat().st_ino for path in merged.paths(MEMPOOL_TXS)}
    assert {path: path.stat().st_ino for path in fleet.merged().paths(MEMPOOL_TXS)} == before

    fleet.day(4)
    after = {path: path.stat().st_ino for path in fleet.merged().paths(MEMPOOL_TXS)}
    # A new day may change the offset at the end of the day before. Bob's files of that day begin an hour
    # before its true midnight, so one day more may have a new file.
    old = {path for path in before if path.parent.name < "date=2024-10-06"}
    assert len(old) >= 4
    assert {path: after[path] for path in old} == {path: before[path] for path in old}
    assert rows_of(merged) == rows_of(Fleet.merged(_copy(fleet)))


def _copy(fleet: Fleet) -> Fleet:
    """Return a fleet of the same members that merges into another folder."""
    other = object.__new__(Fleet)
    other.__dict__ |= fleet.__dict__ | {"root": fleet.root / "again"}
    return other


def test_a_member_may_be_named_by_another_path(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same folder, named from where the user stands, is not written again."""
    fleet.merged()
    monkeypatch.chdir(fleet.root)
    near = [Member(name, Dataset.open(Path(name), "regtest")) for name in ("alice", "bob")]
    results = merge_datasets(Path("merged"), near)
    assert [result.n_written for result in results] == [0, 0]


def test_one_dataset_is_not_two_members(fleet: Fleet) -> None:
    """All that one collector saw would count twice."""
    (fleet.root / "link").symlink_to(fleet.root / "alice")
    again = Member("carol", Dataset.open(fleet.root / "link", "regtest"))
    with pytest.raises(WrongUsage, match="alice and carol are one dataset"):
        fleet.merged(members=[*fleet.members, again])
    assert not (fleet.root / "merged").exists()


@pytest.mark.parametrize("name", ["x", "date=", "date=2024-13-45", "date=20241004", "date=0001-01-01"])
def test_a_folder_of_no_day_is_refused(fleet: Fleet, name: str) -> None:
    """The error names it, and nothing is made."""
    folder = fleet.bob.folder / "mempool_txs" / name
    folder.mkdir()
    (folder / "x.parquet").write_bytes(b"")
    with pytest.raises(DatasetError, match=re.escape(f"{folder} is no folder of a day; move it out")):
        fleet.merged()
    assert not (fleet.root / "merged").exists()


@pytest.mark.parametrize(
    "content",
    [
        {"units": []},
        {"units": {"alice mempool_txs date=2024-10-04": 5}},
        {"units": {"alice": {"digest": "x", "files": []}}},
        {"units": {"alice x": {"digest": "x", "files": ["../../victim"]}}},
        {"form": 1, "units": {"alice x": {"digest": "x", "files": ["../../victim"]}}},
        {"offsets": {"bob 2024-10-04": 3}},
        {"offsets": {"bob 2024-10-04": {"digest": "x", "offsets": [[1, 2]]}}},
    ],
)
def test_a_list_of_another_form_is_refused(fleet: Fleet, content: dict[str, Any]) -> None:
    """It says what to do, and no file outside of the merged dataset is removed."""
    merged = fleet.merged()
    path = merged.root / FLEET_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | content))
    (fleet.root / "victim").touch()
    with pytest.raises(DatasetError, match=r"fleet\.json cannot be read; remove .* and merge again"):
        fleet.merged()
    assert (fleet.root / "victim").exists()


def test_a_damaged_file_of_a_member_is_named_and_not_copied(fleet: Fleet) -> None:
    """A wrong value would get a right checksum; what was merged before stays."""
    rows = rows_of(fleet.merged())
    fleet.day(1, n_txs=100)
    damaged = fleet.alice.paths(MEMPOOL_TXS)[1]
    flip_a_bit_unseen_by_duckdb(damaged, "txid")

    with pytest.raises(DatasetError, match=f"cannot read {damaged}: .*checksum"):
        fleet.merged()
    assert rows_of(Dataset(fleet.root / "merged", "regtest")) == rows


def test_a_member_may_leave_and_come_back(fleet: Fleet) -> None:
    """Without a member its rows are gone, the others' files stay, and it can be added again."""
    whole = rows_of(fleet.merged())
    files = {path.stat().st_ino for path in fleet.merged().paths(MEMPOOL_TXS) if "fleet-alice-" in path.name}
    alone = fleet.merged(members=fleet.members[:1])

    assert {row["node"] for row in rows_of(alone)} == {"alice.main"}
    assert {path.stat().st_ino for path in alone.paths(MEMPOOL_TXS)} == files
    assert rows_of(alone, MEMBER_CLOCKS) == []
    assert rows_of(fleet.merged()) == whole


def test_a_member_that_leaves_is_told(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says which member it removes, once."""
    fleet.merged()
    words = ["merge", str(fleet.root / "merged"), f"alice={fleet.alice.root}"]
    monkeypatch.setattr(sys, "argv", ["pool-collector", *words])
    told = []
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        told.append(re.findall(r"^(\w+): (removed \(\d+ parts?\))?", capsys.readouterr().out, re.MULTILINE))

    assert [name for name, _ in told[0]] == ["alice", "bob"]
    assert told[0][1][1].startswith("removed (")
    assert told[1] == [("alice", "")]


def test_the_merged_dataset_is_named_in_either_way(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind --dataset every word is a member; another folder before them is wrong usage."""
    merged, member = str(fleet.root / "merged"), f"alice={fleet.alice.root}"
    told = []
    for words in ([merged, member], ["--dataset", merged, member], ["--dataset", merged, "other", member]):
        monkeypatch.setattr(sys, "argv", ["pool-collector", "merge", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        told.append((ended.value.code, said.out[:9], "give one dataset" in said.err))

    assert told == [(0, "alice: it", False), (0, "alice: it", False), (2, "", True)]


def test_a_member_is_not_taken_for_the_merged_dataset(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without MERGED the command says so and makes nothing; a folder of such a name may be given."""
    monkeypatch.chdir(fleet.root)
    told = []
    for words in (["alice=alice", "bob=bob"], ["./c=merged", "bob=bob"], ["c=merged", "bob=bob"]):
        monkeypatch.setattr(sys, "argv", ["pool-collector", "merge", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        told.append((ended.value.code, "'alice=alice' names a member; write MERGED" in said))

    assert told == [(2, True), (0, False), (0, False)]
    assert {path.name for path in fleet.root.iterdir()} == {"alice", "bob", "c=merged"}


def test_a_block_of_both_is_there_once_with_its_fees(fleet: Fleet) -> None:
    """Of a block that two members stored, the row that knows the fees is taken, and its transactions once."""
    block = _block_rows()
    for dataset, fees_sat in ((fleet.alice, None), (fleet.bob, 500)):
        dataset.write(BLOCKS, [block[0] | {"fees_sat": fees_sat}], stem="b")
        dataset.write(TRANSACTIONS, [row | {"fee_sat": fees_sat} for row in block[1]], stem="b")
    merged = fleet.merged()

    assert [row["fees_sat"] for row in rows_of(merged, BLOCKS)] == [500]
    assert [row["fee_sat"] for row in rows_of(merged, TRANSACTIONS)] == [500]
    assert rows_of(fleet.merged(members=fleet.members[:1]), BLOCKS)[0]["fees_sat"] is None


def test_rows_that_tie_are_one_and_keep_what_either_knows(tmp_path: Path) -> None:
    """A block that two versions stored is there once, the same at each merge, with the values of both."""
    fleet = Fleet(tmp_path, 1)
    block, (transaction,) = _block_rows()
    blocks = {bytes([number]) * 32: number for number in range(40)}
    known = (
        {"fee_sat": 7, "op_return_bytes": None, "source": "zmq", "coinbase_locktime": None},
        {"fee_sat": None, "op_return_bytes": 9, "source": "rpc", "coinbase_locktime": 5},
    )
    for dataset, facts in zip((fleet.alice, fleet.bob), known, strict=True):
        of_block = {name: facts[name] for name in ("source", "coinbase_locktime")}
        of_transaction = {name: facts[name] for name in ("fee_sat", "op_return_bytes")}
        dataset.write(BLOCKS, [block | of_block | {"block_hash": name} for name in blocks], stem="b")
        rows = [
            transaction
            | {"block_hash": name, "tx_index": index, "is_coinbase": not index}
            | (of_transaction if index else of_transaction | {"fee_sat": None})
            for name in blocks
            for index in range(2_000)
        ]
        dataset.write(TRANSACTIONS, rows, stem="b")
    merged = fleet.merged(same_clock=True)

    found = merged.read(TRANSACTIONS)
    values = [found[name].to_pylist() for name in ("is_coinbase", "fee_sat", "op_return_bytes")]
    assert len(found) == 80_000
    assert set(zip(*values, strict=True)) == {(True, None, 9), (False, 7, 9)}
    assert [(row["source"], row["coinbase_locktime"]) for row in rows_of(merged, BLOCKS)] == [("rpc", 5)] * 40
    turned = merge_datasets(tmp_path / "turned", fleet.members[::-1], trust_clocks=True)
    assert [result.name for result in turned] == ["bob", "alice"]
    again = Dataset(tmp_path / "turned", "regtest")
    assert again.read(TRANSACTIONS).equals(found)
    assert again.read(BLOCKS).equals(merged.read(BLOCKS))


def _block_rows() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return rows that hold what the contract asks for: the value of each column is of its type."""
    values: dict[str, Any] = {
        "int32": 1,
        "int64": 1,
        "bool": True,
        "string": "x",
        "binary": b"x",
        "double": 1.0,
    }

    def row(table: Any) -> dict[str, Any]:
        made = {}
        for column in table.columns:
            kind = str(column.type)
            if column.nullable:
                continue
            made[column.name] = (
                column.values[0]
                if column.values and not kind.startswith("list")
                else b"h" * 32
                if kind == "fixed_size_binary[32]"
                else []
                if kind.startswith("list")
                else values.get(kind, 0)
            )
        return made

    return row(BLOCKS), [row(TRANSACTIONS)]


def test_members_that_saw_nothing_in_common_are_refused(fleet: Fleet) -> None:
    """Without shared sightings there is no offset; the error says what to do, and `--same-clock` merges."""
    stranger = Fleet(fleet.root / "far", seed=1)
    stranger.day(0)
    members = [fleet.members[0], Member("eve", stranger.alice)]

    with pytest.raises(DatasetError, match=r"alice have seen nothing .* --same-clock"):
        merge_datasets(fleet.root / "new", members)
    assert not (fleet.root / "new").exists()
    merged = fleet.merged().root
    before = {path: path.read_bytes() for path in merged.rglob("*") if path.is_file()}
    with pytest.raises(DatasetError, match=r"alice have seen nothing .* --same-clock"):
        fleet.merged(members=[*fleet.members, members[1]])
    assert {path: path.read_bytes() for path in merged.rglob("*") if path.is_file()} == before
    assert len(rows_of(fleet.merged(members=members, same_clock=True))) == 1200


def test_a_member_with_a_path_that_is_no_file_is_refused(fleet: Fleet) -> None:
    """A link to nothing in a member is named, and no merged dataset is left behind."""
    link = fleet.alice.paths(MEMPOOL_TXS)[0].with_name("gone.parquet")
    link.symlink_to("nothing.parquet")
    with pytest.raises(DatasetError, match=r"gone\.parquet is a link to a file that is not there"):
        fleet.merged()
    assert not (fleet.root / "merged").exists()


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (("a", "a"), "two members"),
        (("A b", "c"), "no name of a member"),
        (("../x", "c"), "no name of a member"),
    ],
)
def test_names_that_do_not_fit_are_refused(fleet: Fleet, names: tuple[str, str], match: str) -> None:
    """Names become part of file names and nodes, so their alphabet is small and each is there once."""
    members = [Member(name, member.dataset) for name, member in zip(names, fleet.members, strict=True)]

    with pytest.raises(SettingsError, match=match):
        fleet.merged(members=members)
    assert not (fleet.root / "merged").exists()


def test_a_dataset_of_a_collector_is_not_merged_into(fleet: Fleet) -> None:
    """Files that `merge` did not write are never removed or mixed with others: they are refused."""
    merged = fleet.merged()
    merged.write(BLOCK_ARRIVALS, [_arrival()], stem="live-1")

    with pytest.raises(DatasetError, match="was not written by `merge`"):
        fleet.merged()
    assert any(path.name == "live-1.parquet" for path in merged.paths(BLOCK_ARRIVALS))
    with pytest.raises(SettingsError, match="choose another folder"):
        merge_datasets(fleet.alice.root, fleet.members)


def _arrival() -> dict[str, Any]:
    return {
        "node": "main",
        "session": SESSION,
        "block_hash": b"b" * 32,
        "event": "seen",
        "event_at": BEGIN_US,
        "kind": "pushed",
    }


def test_a_kill_at_any_moment_costs_nothing(fleet: Fleet) -> None:
    """However often a merge is killed, the next one leaves exactly the rows of an undisturbed one."""
    for number in (1, 2):
        fleet.day(number, n_txs=100)
    expected = rows_of(Fleet.merged(_copy(fleet)))
    command = [
        *(sys.executable, "-P", "-m", "collector", "merge", fleet.root / "merged", "--chain", "regtest"),
        *(f"alice={fleet.alice.root}", f"bob={fleet.bob.root}"),
    ]
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole_s = time.monotonic() - started
    for _ in range(4):
        (fleet.root / "merged" / FLEET_FILE).unlink(missing_ok=True)  # everything is to be made again
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with_luck_s = fleet.random.uniform(0.4, 1) * whole_s
        try:
            process.wait(with_luck_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    merged = fleet.merged()

    assert rows_of(merged) == expected
    assert list((fleet.root / "merged").glob(".fleet-*")) == []


def test_a_list_of_the_first_form_is_taken_over(fleet: Fleet) -> None:
    """Its files were called otherwise: each is made again."""
    merged = fleet.merged()
    files, rows = merged.paths(MEMPOOL_TXS), rows_of(merged)
    listed = json.loads((merged.root / FLEET_FILE).read_text())
    for unit in listed["units"].values():
        old = {name: name.rpartition("-")[0] + ".parquet" for name in unit["files"]}
        for name, old_name in old.items():
            (merged.folder / name).rename(merged.folder / old_name)
        unit["files"] = list(old.values())
    (merged.root / FLEET_FILE).write_text(json.dumps(listed | {"form": 1}))

    assert rows_of(fleet.merged()) == rows
    assert len(merged.paths(MEMPOOL_TXS)) == len(files)


def test_no_file_is_removed_under_a_reader(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed run left is removed with the lock for which a reader makes the merge wait."""
    merged = fleet.merged()
    path = merged.paths(MEMPOOL_TXS)[0]
    left = path.with_name("fleet-alice-0123456789abcdef.parquet")
    left.write_bytes(path.read_bytes())
    held: dict[Path, bool] = {}
    unlink = Path.unlink

    def spy(self: Path, *, missing_ok: bool = False) -> None:
        held[self] = is_lock_held(merged.folder / WRITE_LOCK)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", spy)
    fleet.merged()

    assert not left.exists()
    assert held[left]


def test_a_merged_dataset_passes_the_check(fleet: Fleet) -> None:
    """`pool-collector check` finds the merged dataset as whole as its members."""
    for dataset in (fleet.alice, fleet.bob):
        dataset.write(NODES, [_session(dataset)], stem="n")

    results = {result.name: result.status for result in check(fleet.merged())}

    assert {name for name, status in results.items() if status == "breach"} <= {
        result.name for result in check(fleet.alice) if result.status == "breach"
    }


def _session(dataset: Dataset) -> dict[str, Any]:
    return {
        "node": "main",
        "session": SESSION,
        "started_at": BEGIN_US,
        "chain": dataset.chain,
        "node_version": 290000,
        "subversion": "/Satoshi:29.0.0/",
        "tip_height": 1,
        "tip_hash": b"t" * 32,
        "n_mempool_at_start": 0,
        "policy": "{}",
        "zmq": "{}",
        "collector_version": "0",
        "software": "{}",
        "settings": "{}",
        "clock_offset_us": 5_000_000,
    }


def test_a_clock_drifts_evenly_between_its_offsets() -> None:
    """Between two estimates the offset is interpolated, outside of them it stays."""
    clock = MemberClock([ClockOffset(2_000, 300, 1, 9), ClockOffset(1_000, 100, 1, 9)])

    found = clock.reference_us(np.array([0, 1_000, 1_500, 2_000, 9_000], np.int64))
    assert found.tolist() == [-100, 900, 1_300, 1_700, 8_700]


def test_wrong_words_are_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member without a name ends the command with one line and status 2."""
    monkeypatch.setattr(sys, "argv", ["pool-collector", "merge", str(tmp_path / "mg"), str(tmp_path / "a")])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert "names no member; write NAME=DATASET" in capsys.readouterr().err
