"""Test that every row made of block files is what the node reports, also beside broken blocks."""

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard

from collector.backfill import run
from collector.backfill.blockfiles import KEY_BYTES, KEY_FILE, MAGIC, BlockFolder, Debris
from collector.backfill.catalogue import read_catalogue
from collector.backfill.file_work import FileWork, cut_units
from collector.backfill.report import Report
from collector.backfill.selection import BlockSelection
from collector.backfill.store import Rejects
from collector.backfill.undofiles import scan as scan_undo
from collector.codec.block import decode_block
from collector.codec.chunk import RejectedBlock
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, OUTPUT_TYPES, REJECTS, hash_hex
from collector.errors import SettingsError
from collector.journal.journal import Journal
from collector.journal.present_blocks import PresentBlocks
from collector.regtest import RegtestNode
from gpuhash.reference import sha256d
from tests.collector.backfill import made_files
from tests.collector.backfill.conftest import Rows, rows_of
from tests.collector.codec.made_undo import undo_of

pytestmark = pytest.mark.bitcoind

Backfill = Callable[..., Report]
# The first block of every signet, src/kernel/chainparams.cpp.
SIGNET_GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e67768f61"
    "7fc81bc3888a51323a9fb8aa4b1e5e4a008f4d5fae77031e8ad2220301010000000100000000000000000000000000000000000000"
    "00000000000000000000000000ffffffff4d04ffff001d0104455468652054696d65732030332f4a616e2f32303039204368616e63"
    "656c6c6f72206f6e206272696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff0100f2052a0100"
    "0000434104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de"
    "5c384df7ba0b8d578a4c702b6bf11d5fac00000000"
)
BLOCK_367891 = "000000000000000012ea0ca9579299ec120e3f57e7c309216884872592b29970"


def test_every_row_is_what_the_node_says(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Two workers read obfuscated files with every kind of block, and all rows equal those of the node."""
    report = backfill(blocks_dir, workers=2)

    assert rows_of(dataset) == expected
    assert (report.result.rejected, report.result.unfinished, report.missing_heights) == ([], [], [])
    assert report.n_stale == 2
    assert report.result.n_without_fees == 0
    assert len(BlockFolder(blocks_dir).numbers["blk"]) > 2
    types = set(pc.unique(pc.list_flatten(expected.transactions["output_types"])).to_pylist())
    assert types == set(OUTPUT_TYPES)


def test_a_second_run_changes_nothing(blocks_dir: Path, dataset: Dataset, backfill: Backfill) -> None:
    """A second run leaves every file as it is, to the byte and the time of writing."""
    backfill(blocks_dir)
    before = {path: path.stat().st_mtime_ns for path in dataset.root.rglob("*.parquet")}

    report = backfill(blocks_dir)

    assert {path: path.stat().st_mtime_ns for path in dataset.root.rglob("*.parquet")} == before
    assert report.result.n_blocks == 0
    assert report.n_present_before == report.n_wanted > 100


def test_a_range_is_filled_and_later_the_rest(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Runs by height, by time and for everything write no row twice."""
    report = backfill(blocks_dir, BlockSelection(first_height=20, last_height=29))
    assert (report.result.n_blocks, report.missing_heights) == (10, [])
    assert rows_of(dataset).blocks["height"].to_pylist() == list(range(20, 30))

    times = expected.blocks["header_time"].to_pylist()
    backfill(blocks_dir, BlockSelection(from_time_s=int(max(times).timestamp())))
    backfill(blocks_dir)

    assert rows_of(dataset) == expected


def test_order_obfuscation_and_number_of_files_do_not_matter(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows, tmp_path: Path
) -> None:
    """One plain file with blocks and undo records in any order gives the same rows."""
    blocks, undo = made_files.read_blocks(blocks_dir), made_files.read_undo(blocks_dir)
    blocks.sort(key=lambda block: block[4:36])  # by parent: as good as any order
    undo.sort(key=lambda each: each[-32:])
    folder = made_files.write_files(tmp_path / "shuffled", [blocks])
    content = b"".join(made_files.frame(each[:-32]) + each[-32:] for each in undo)
    (folder / "rev00000.dat").write_bytes(content)

    backfill(folder)

    assert rows_of(dataset) == expected


def test_plain_files_are_read_like_obfuscated_ones(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Files without a key, as a node with -blocksxor=0 writes them, give the same rows."""
    made_files.make_plain(blocks_dir)

    backfill(blocks_dir)

    assert rows_of(dataset) == expected


def test_a_record_may_end_with_stored_zeros(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Stored zeros end a record whose bytes equal the key; they are not taken for reserved space."""
    made_files.make_plain(blocks_dir)
    folder = BlockFolder(blocks_dir)
    used = made_files.used_bytes(folder, 1, "rev")
    end = folder.read(1, used - KEY_BYTES, KEY_BYTES, "rev")
    folder.close()
    key = np.roll(np.frombuffer(end, np.uint8), used).tobytes()
    made_files.obfuscate(blocks_dir, key)
    assert (blocks_dir / "rev00001.dat").read_bytes()[used - KEY_BYTES : used] == bytes(KEY_BYTES)

    backfill(blocks_dir)
    assert rows_of(dataset) == expected

    made_files.make_plain(blocks_dir)
    again = Dataset.open(dataset.root.with_name("again"), "regtest", create=True)
    backfill(blocks_dir, into=again)
    assert rows_of(again) == expected


def test_without_undo_files_only_what_needs_them_is_unknown(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """What a transaction spends is null, and what follows from it; everything else is there."""
    for path in blocks_dir.glob("rev*.dat"):
        path.unlink()

    report = backfill(blocks_dir)

    found = rows_of(dataset)
    lost = ["fee_sat", "input_value_sat", "effective_feerate_sat_vb", "spent_types", "sigop_cost"]
    assert found.transactions.drop_columns(lost) == expected.transactions.drop_columns(lost)
    spending = found.transactions.filter(pc.invert(found.transactions["is_coinbase"]))
    assert all(spending[name].null_count == len(spending) for name in lost)
    assert found.blocks.drop_columns(["fees_sat"]) == expected.blocks.drop_columns(["fees_sat"])
    with_spends = pc.greater(found.blocks["n_tx"], 1)
    assert report.result.n_without_fees == pc.sum(with_spends).as_py() > 3


def test_a_pruned_node_gives_what_it_has_and_says_what_is_missing(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Without the oldest file, heights come from the coinbases, and the report says so."""
    (blocks_dir / "blk00000.dat").unlink()

    report = backfill(blocks_dir)

    found = rows_of(dataset)
    heights = found.blocks["height"].to_pylist()
    assert report.missing_heights == [(0, heights[0] - 1)]
    assert set(found.blocks["height_source"].to_pylist()) == {"bip34"}
    kept = pc.is_in(expected.transactions["block_hash"], found.blocks["block_hash"])
    assert found.transactions == expected.transactions.filter(kept).combine_chunks()
    assert 0 < len(heights) < len(expected.blocks)


def test_a_broken_block_is_rejected_once_and_the_rest_is_written(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """A block with a flipped bit becomes one reject; a second run adds none, and the rest is written."""
    made_files.make_plain(blocks_dir)
    file = blocks_dir / "blk00000.dat"
    data = bytearray(file.read_bytes())
    victim = expected.blocks.slice(50, 1).to_pylist()[0]
    at = data.index(victim["merkle_root"]) - 36 + victim["size_bytes"] - 5
    data[at] ^= 1
    file.write_bytes(data)

    first = backfill(blocks_dir)
    backfill(blocks_dir)

    kept = pc.not_equal(expected.blocks["block_hash"], pa.scalar(victim["block_hash"], pa.binary(32)))
    assert rows_of(dataset).blocks == expected.blocks.filter(kept).combine_chunks()
    rejects = dataset.read(REJECTS).to_pylist()
    assert len(rejects) == len(first.result.rejected) == 1
    assert rejects[0]["topic"].startswith("blk00000.dat@")
    assert len(rejects[0]["body"]) == victim["size_bytes"]
    assert first.missing_heights == []


@pytest.mark.parametrize("kind", ["inserted", "cut", "long"])
def test_reading_goes_on_behind_what_is_no_record(
    kind: str, blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Foreign bytes, a record cut off and a wrong length do not hide the records behind them."""
    made_files.make_plain(blocks_dir)
    blocks = made_files.read_blocks(blocks_dir)
    frames = [made_files.frame(block) for block in blocks]
    if kind == "inserted":
        frames.insert(40, b"\x07" * 1000)
    elif kind == "cut":
        frames[40] = frames[40][:-30]
    else:
        frames[40] = made_files.REGTEST + (700).to_bytes(4, "little") + frames[40][8:]
    for path in blocks_dir.glob("blk*.dat"):
        path.unlink()
    (blocks_dir / "blk00000.dat").write_bytes(b"".join(frames))

    report = backfill(blocks_dir)

    lost = set() if kind == "inserted" else {sha256d(blocks[40][:80])}
    assert set(rows_of(dataset).blocks["block_hash"].to_pylist()) == (
        set(expected.blocks["block_hash"].to_pylist()) - lost
    )
    assert len(report.result.rejected) == len(dataset.read(REJECTS)) == 1


def test_bytes_without_blocks_take_little_memory(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written piece by piece, and each piece of bytes is there once."""
    made_files.make_plain(blocks_dir)
    names = sorted(path.name for path in blocks_dir.glob("blk*.dat"))
    for name in names:
        path = blocks_dir / name
        path.write_bytes(b"\x07" * 500 + path.read_bytes())
    monkeypatch.setattr(run, "MAX_HELD_BYTES", 900)
    written: list[int] = []

    def add(rejects: Rejects, rejected: Sequence[RejectedBlock]) -> None:
        written.append(sum(len(each.body) for each in rejected))
        as_always(rejects, rejected)

    as_always = Rejects.add
    monkeypatch.setattr(Rejects, "add", add)
    report = backfill(blocks_dir)

    assert max(written) == 1000
    assert sum(written) == 500 * len(names) == 500 * len(report.result.rejected)
    assert sorted(row["topic"] for row in dataset.read(REJECTS).to_pylist()) == [
        f"{name}@0" for name in names
    ]


def test_the_record_that_a_node_is_writing_is_left_for_the_next_run(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Half a block at the end of the newest file is left out, with or without reserved space behind it."""
    made_files.make_plain(blocks_dir)
    newest = max(blocks_dir.glob("blk*.dat"))
    whole = newest.read_bytes()
    folder = BlockFolder(blocks_dir)
    used = whole[: made_files.used_bytes(folder, max(folder.numbers["blk"]))]
    folder.close()
    for half in (used[:-60], used[:-60] + bytes(4096)):
        newest.write_bytes(half)
        report = backfill(blocks_dir)
        assert len(report.result.unfinished) == 1
        assert report.result.rejected == []
        assert len(dataset.read(REJECTS)) == 0
        assert len(rows_of(dataset).blocks) == len(expected.blocks) - 1

    newest.write_bytes(whole)
    backfill(blocks_dir)

    assert set(rows_of(dataset).blocks["block_hash"].to_pylist()) == set(
        expected.blocks["block_hash"].to_pylist()
    )


@pytest.mark.parametrize("n_written", [20, 200], ids=["part of a header", "part of a block"])
def test_a_record_that_a_node_is_writing_into_an_older_file_is_left_too(
    n_written: int, blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """A node that was started from a snapshot adds to an older file too, which has reserved space then."""
    made_files.make_plain(blocks_dir)
    blocks = made_files.read_blocks(blocks_dir)
    for path in blocks_dir.glob("blk*.dat"):
        path.unlink()
    frames = [made_files.frame(block) for block in blocks]
    (blocks_dir / "blk00000.dat").write_bytes(b"".join(frames[:40]) + frames[40][:n_written] + bytes(4096))
    (blocks_dir / "blk00001.dat").write_bytes(b"".join(frames[41:]))

    report = backfill(blocks_dir)

    assert (len(report.result.unfinished), report.result.rejected) == (1, [])
    assert len(dataset.read(REJECTS)) == 0
    assert len(rows_of(dataset).blocks) == len(expected.blocks) - 1


def test_a_file_is_read_while_the_node_writes_it(
    node: RegtestNode, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """The files of a running node are read as they are at that moment."""
    backfill(node.datadir / "regtest" / "blocks")

    assert rows_of(dataset) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no blk"),
        (b"", "not the magic of a known chain"),
        (b"\x01" * 100, "not the magic of a known chain"),
    ],
)
def test_a_folder_without_blocks_is_a_clear_error(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    """An empty folder, an empty file and a file of something else each lead to a clear error."""
    if content is not None:
        (tmp_path / "blk00000.dat").write_bytes(content)

    with pytest.raises(SettingsError, match=message):
        BlockFolder(tmp_path)


def test_obfuscated_files_without_their_key_are_refused(blocks_dir: Path) -> None:
    """The chain being named does not make every file debris: the error names the file that lacks."""
    (blocks_dir / KEY_FILE).unlink()

    with pytest.raises(SettingsError, match=r"not the magic of a known chain; copy xor\.dat"):
        BlockFolder(blocks_dir, "regtest")


def test_damage_at_the_beginning_hides_no_blocks(blocks_dir: Path) -> None:
    """When the chain is named, other bytes before the first record are debris like those between records."""
    made_files.make_plain(blocks_dir)
    first = blocks_dir / "blk00000.dat"
    blocks = made_files.read_blocks(blocks_dir)
    first.write_bytes(b"\x07" * 50 + first.read_bytes())

    debris, *found = BlockFolder(blocks_dir, "regtest").scan(0)

    assert isinstance(debris, Debris)
    assert [each.header for each in found] == [block[:80] for block in blocks[: len(found)]]


@pytest.mark.parametrize("lost", [b"", bytes(5000)], ids=["empty", "zeros"])
def test_a_lost_first_file_hides_no_others(blocks_dir: Path, lost: bytes) -> None:
    """The blocks of later files are found, and the later files tell the chain where it is not named."""
    made_files.make_plain(blocks_dir)
    blocks = made_files.read_blocks(blocks_dir)
    number = max(int(path.stem[3:]) for path in blocks_dir.glob("blk*.dat")) + 1
    shutil.copy(blocks_dir / "blk00000.dat", blocks_dir / f"blk{number:05}.dat")
    (blocks_dir / "blk00000.dat").write_bytes(lost)

    for chain in ("regtest", None):
        opened = BlockFolder(blocks_dir, chain)
        found = [each for each in opened.scan(number) if not isinstance(each, Debris)]

        assert opened.chain == "regtest"
        assert found
        assert {each.header for each in found} <= {block[:80] for block in blocks}
    with pytest.raises(SettingsError, match=r"blk00001\.dat is of chain regtest, not of main"):
        BlockFolder(blocks_dir, "main")


def test_a_custom_signet_keeps_its_own_magic(tmp_path: Path) -> None:
    """Its files are read with the magic that the first one begins with, block files and undo files."""
    magic = bytes.fromhex("a1b2c3d4")
    block = SIGNET_GENESIS
    folder = made_files.write_files(tmp_path / "blocks", [[block], [block]], magic=magic)
    spent = undo_of([[(700, b"\x51")]], height=5)
    (folder / "rev00001.dat").write_bytes(made_files.frame(spent, magic) + bytes(32))

    opened = BlockFolder(folder, "signet")

    assert opened.magic == magic
    assert [each.header for file in (0, 1) for each in opened.scan(file)] == [block[:80]] * 2
    assert [count for count, _ in scan_undo(opened, 1)] == [1]
    with pytest.raises(SettingsError, match="--chain signet for a custom signet"):
        BlockFolder(folder)


@pytest.mark.data
def test_real_blocks_through_a_block_file(
    data_dir: Path, dataset: Dataset, backfill: Backfill, tmp_path: Path
) -> None:
    """Mainnet blocks in one file give the manifest's numbers, their heights, and exact fees."""
    with (data_dir / "mainnet-blocks" / "manifest.csv").open() as lines:
        manifest = {row["hash"]: row for row in csv.DictReader(lines) if row["file"].endswith(".bin")}
    raws = [(data_dir / "mainnet-blocks" / row["file"]).read_bytes() for row in manifest.values()]
    folder = made_files.write_files(tmp_path / "main", [raws], magic=MAGIC["main"])
    undo = real_undo(data_dir, raws)
    (folder / "rev00000.dat").write_bytes(undo)

    report = backfill(folder, chain="main")

    stored = Dataset.open(dataset.root, "main")
    rows = {hash_hex(row["block_hash"]): row for row in stored.read(BLOCKS).to_pylist()}
    assert report.result.rejected == []
    assert len(rows) + report.n_without_height == len(raws)
    assert set(report.without_height) == set(manifest) - set(rows)
    for block_hash, row in rows.items():
        facts = manifest[block_hash]
        assert row["height"] == int(facts["height"])
        assert (row["n_tx"], row["size_bytes"], row["weight_wu"]) == (
            int(facts["n_tx"]),
            int(facts["size"]),
            int(facts["weight"]),
        )
        assert row["coinbase_script"].hex() == facts["coinbase_hex"]
    by_height = {row["height"]: row for row in rows.values()}
    assert by_height[367891]["fees_sat"] == 14_001_930
    assert by_height[300025]["coinbase_value_sat"] - by_height[300025]["subsidy_sat"] == 7_773_345
    assert len(rows) > 10


def real_undo(data_dir: Path, raws: list[bytes]) -> bytes:
    """Return the undo record of block 367891: the outputs that it spent, in the order of its inputs."""
    packed = (data_dir / "floresta" / "block_367891_spent_utxos.zst").read_bytes()
    spent = iter(json.loads(zstandard.ZstdDecompressor().decompressobj().decompress(packed)))
    block = next(block for block in map(decode_block, raws) if hash_hex(block.block_hash) == BLOCK_367891)
    outputs = [
        [
            (each["txout"]["value"], bytes.fromhex(each["txout"]["script_pubkey"]))
            for each in islice(spent, len(transaction.inputs))
        ]
        for transaction in block.transactions[1:]
    ]
    undo = undo_of(outputs, height=367_890)
    return made_files.frame(undo, MAGIC["main"]) + sha256d(block.header.prev_hash + undo)


def test_a_block_that_a_live_collector_stores_meanwhile_is_not_written_again(
    blocks_dir: Path, dataset: Dataset, expected: Rows
) -> None:
    """Blocks that a new file or a journal in use holds since the run began are not written again."""
    folder = BlockFolder(blocks_dir)
    catalogue = read_catalogue(folder, lambda *_: None)
    wanted = BlockSelection(last_height=30).among(catalogue)
    (unit,) = cut_units(catalogue, folder, wanted.tolist(), 1)
    live = expected.blocks.slice(12, 1)
    dataset.write(BLOCKS, live, stem="live")
    with Journal(dataset.root / "journal" / "regtest" / "node") as journal:
        journal.recover(dataset)
        journal.append("blocks", expected.blocks.slice(20, 1).to_pylist())
        journal.flush()

        present = PresentBlocks(dataset)
        present.refresh()
        done = FileWork(blocks_dir, dataset.root, "regtest", 1)(unit)

    assert sum(catalogue.hashes[i].tobytes() in present for i in wanted) == 2
    assert done.n_present == 1
    hashes = dataset.read(BLOCKS)["block_hash"].to_pylist()
    assert len(hashes) == len(set(hashes)) == len(unit)


def test_a_sound_copy_is_taken_where_the_first_is_broken(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """A block that is there twice counts once; when the first copy is damaged, the second is read."""
    made_files.make_plain(blocks_dir)
    file = blocks_dir / "blk00000.dat"
    blocks = made_files.read_blocks(blocks_dir)
    damaged = blocks[30][:-1] + bytes([blocks[30][-1] ^ 1])
    copies = b"".join(map(made_files.frame, (blocks[29], blocks[30])))
    file.write_bytes(file.read_bytes().replace(blocks[30], damaged) + copies)

    report = backfill(blocks_dir)

    found = rows_of(dataset)
    assert found.blocks == expected.blocks
    assert found.transactions == expected.transactions
    assert report.n_repeated == 2
    assert [bad.reason.split()[0] for bad in report.result.rejected] == ["bad_merkle_root"]


def test_files_that_a_node_prunes_meanwhile_are_named(blocks_dir: Path, dataset: Dataset) -> None:
    """A file that disappears between listing and reading is named in the report."""
    folder = BlockFolder(blocks_dir)
    catalogue = read_catalogue(folder, lambda *_: None)
    (unit,) = cut_units(catalogue, folder, BlockSelection(last_height=9).among(catalogue).tolist(), 1)
    (blocks_dir / "blk00000.dat").unlink()

    done = FileWork(blocks_dir, dataset.root, "regtest", 1)(unit)

    assert (done.n_blocks, done.rejected, len(done.unavailable)) == (0, [], 10)
    folder.close()
    assert list(folder.scan(0)) == []
    report = Report(chain="regtest", source="", workers=1, verified_by="cpu", result=done)
    assert "10 blocks pruned or not given by the node: heights 0-9" in report.lines()


def test_heights_are_found_although_the_lowest_file_is_pruned_meanwhile(blocks_dir: Path) -> None:
    """Where the node removes the lowest file after it was listed, the blocks above it tell the heights."""
    (blocks_dir / "blk00000.dat").unlink()
    folder = BlockFolder(blocks_dir)
    heights = read_catalogue(folder, lambda *_: None).heights.tolist()
    n_files = len(folder.numbers["blk"])
    folder.close()

    def prune(n_read: int, _: int) -> None:
        if n_read == n_files:
            folder.close()
            (blocks_dir / folder.name(min(folder.numbers["blk"]))).unlink()

    assert read_catalogue(folder, prune).heights.tolist() == heights
