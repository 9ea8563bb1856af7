"""Test that what our nodes saw can be written for others, and read in again unchanged."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import (
    BLOCK_ARRIVALS,
    BLOCKS,
    EXTERNAL_ARRIVALS,
    EXTERNAL_STALE_BLOCKS,
    hash_hex,
)
from collector.external.exports import lost_blocks
from collector.external.header_files import header_bytes
from tests.collector.check.made_dataset import Rows, header, make_rows
from tests.gpuhash.header_chains import EASIEST, hash_of, mined

RIVAL = mined(header(100).block_hash, 1_728_000_000, EASIEST)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `pool-collector`; return the exit status."""
    monkeypatch.setattr(sys, "argv", ["pool-collector", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def with_rival() -> Rows:
    """Return the rows of a session in which a rival of block 101 came first and lost."""
    rows = make_rows()
    block = next(each for each in rows["blocks"] if each["height"] == 101)
    lost = {
        "block_hash": hash_of(RIVAL),
        "merkle_root": RIVAL[36:68],
        "header_time": int.from_bytes(RIVAL[68:72], "little"),
        "version": 1,
        "nonce": int.from_bytes(RIVAL[76:80], "little"),
    }
    rows["blocks"].append(block | lost)
    arrival = rows["block_arrivals"][0]
    earlier = {"block_hash": hash_of(RIVAL), "event_at": arrival["event_at"] - 5_432_100}
    rows["block_arrivals"].append(arrival | earlier)
    rows["block_arrivals"].append(
        arrival | earlier | {"event": "disconnected", "event_at": arrival["event_at"]}
    )
    rows["block_arrivals"].append(arrival | {"kind": "pulled", "event_at": arrival["event_at"] - 9_000_000})
    return rows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a dataset in which a node saw three blocks of two heights."""
    dataset = Dataset.open(tmp_path / "ds", "regtest", create=True)
    rows = with_rival()
    for table in (BLOCKS, BLOCK_ARRIVALS):
        dataset.write(table, rows[table.name], stem="made")
    return dataset.root


def test_arrivals_go_out_and_come_in_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the form of bitcoin-data; an import of it has each block once, to the millisecond."""
    out, there = tmp_path / "my-node.csv", tmp_path / "there"
    options = ("--dataset", str(root), "--chain", "regtest")

    assert run(monkeypatch, "export", "arrivals", "--node", "n", "--out", str(out), *options) == 0
    into = ("--dataset", str(there), "--chain", "regtest")
    assert run(monkeypatch, "import", str(out), "--from", "bitcoin-data", *into) == 0

    ours = {}
    for row in Dataset.open(root, "regtest").read(BLOCK_ARRIVALS).to_pylist():
        if row["kind"] == "pushed" and row["event"] != "disconnected":
            ours[row["block_hash"]] = int(row["event_at"].timestamp() * 1000)
    theirs = Dataset.open(there, "regtest").read(EXTERNAL_ARRIVALS).to_pylist()
    assert {row["block_hash"]: int(row["arrived_at"].timestamp() * 1000) for row in theirs} == ours
    assert len(theirs) == 3
    assert {row["source"] for row in theirs} == {"bitcoin-data.my-node"}
    assert [line.split(",")[0] for line in out.read_text().split()] == ["102", "101", "101"]


def test_stale_blocks_go_out_and_come_in_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the rival is stale; its header is written whole, so that others can check its work."""
    out, there = tmp_path / "stale-blocks.csv", tmp_path / "there"

    options = ("--dataset", str(root), "--chain", "regtest")
    assert run(monkeypatch, "export", "stale-blocks", "--node", "n", "--out", str(out), *options) == 0

    rival = f"101,{hash_hex(hash_of(RIVAL))},{RIVAL.hex()}"
    assert out.read_text().split() == ["height,hash,header", rival]
    into = ("--dataset", str(there), "--chain", "regtest")
    assert run(monkeypatch, "import", str(out), "--from", "bitcoin-data", *into) == 0
    (row,) = Dataset.open(there, "regtest").read(EXTERNAL_STALE_BLOCKS).to_pylist()
    assert (row["height"], header_bytes(row)) == (101, RIVAL)


def test_a_node_that_saw_nothing_is_an_error(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error lists the nodes that there are, and no file is made; nor is one where none can be."""
    out = tmp_path / "x.csv"
    options = ("--dataset", str(root), "--chain", "regtest")

    assert run(monkeypatch, "export", "arrivals", "--node", "m", "--out", str(out), *options) == 1
    assert "of a node 'm' on chain regtest, only those of n; --chain" in capsys.readouterr().err
    assert not out.exists()
    nowhere = str(tmp_path / "no" / "x.csv")
    assert run(monkeypatch, "export", "arrivals", "--node", "n", "--out", nowhere, *options) == 1
    assert "cannot write" in capsys.readouterr().err


def test_the_only_chain_of_a_dataset_is_taken(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --chain, export and import use the chain that the dataset has, and add no second one."""
    out, into = tmp_path / "my-node.csv", ("--dataset", str(root))

    assert run(monkeypatch, "export", "arrivals", "--node", "n", "--out", str(out), *into) == 0
    assert run(monkeypatch, "import", str(out), "--from", "bitcoin-data", *into) == 0

    words = ("export", "arrivals", str(root), "--node", "n", "--out", str(tmp_path / "same.csv"))
    assert run(monkeypatch, *words) == 0
    assert (tmp_path / "same.csv").read_text() == out.read_text()
    assert run(monkeypatch, *words, "--dataset", str(tmp_path)) == 2
    assert [path.name for path in root.glob("chain=*")] == ["chain=regtest"]
    assert len(Dataset.open(root, "regtest").read(EXTERNAL_ARRIVALS)) == 3
    assert run(monkeypatch, "import", str(out), "--from", "bitcoin-data", *into, "--chain", "main") == 0
    for words in (("import", str(out), "--from", "kit"), ("export", "arrivals", "--node", "n", "--out", "x")):
        assert run(monkeypatch, *words, *into) == 1
        assert "has the chains main, regtest; choose one with --chain" in capsys.readouterr().err
    there = ("--dataset", str(tmp_path / "new"))
    assert run(monkeypatch, "import", str(out), "--from", "bitcoin-data", *there) == 0
    assert [path.name for path in (tmp_path / "new").glob("chain=*")] == ["chain=main"]


HEAVY, LIGHT = 0x1B00FFFF, 0x1D00FFFF  # a block of the first has the work of 65,536 of the second
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tree", "came", "lost"),
    [
        # A block of full difficulty, and two of the least one: more blocks, less work.
        ("a100-H b101aH c101aL d102cL", "abcd", "dc"),
        ("a100-H b101aH c101aL d102cH", "abcd", "b"),
        # Two branches with the same work: neither has lost, at any of its heights.
        ("a100-H b101aH c102bH d101aH e102dH", "abcde", ""),
        ("a100-H b101aH c102bH d101aH e102dH f103eH", "abcdef", "cb"),
        # At the height of the tip a block with less work has lost, one with as much has not.
        ("a100-H b101aH c101aL d101aH", "abcd", "c"),
        # The parent of d is missing: the chain begins again below it, with the block that came first.
        ("a100-H e100-H b101aH c101aH d103xH", "eacbd", "be"),
        ("a100-H e100-H b101aH c101aH d102xH", "aecbd", "cbe"),
        # A block as high as the tip whose ancestors are missing may belong to anything.
        ("a100-H b101aH c102bH d102xH", "abcd", ""),
        ("", "", ""),
    ],
)
def test_the_branch_with_least_work_is_stale(tree: str, came: str, lost: str) -> None:
    """Work decides, not height. A block is its name, height, parent and work; `came` is their order."""
    hashes = {name: name.encode() * 32 for name in "-abcdefx"}
    blocks = [
        {"block_hash": hashes[each[0]], "height": int(each[1:4]), "prev_hash": hashes[each[4]]}
        | {"bits": HEAVY if each[5] == "H" else LIGHT}
        for each in tree.split()
    ]
    seen_at = {hashes[name]: FIRST + timedelta(seconds=at) for at, name in enumerate(came)}

    found = lost_blocks(blocks, seen_at)

    assert "".join(chr(block["block_hash"][0]) for block in found) == lost
    assert found == lost_blocks(reversed(blocks), seen_at)
