"""Test that one word per publisher is enough to import its files, and that other files are refused."""

import gzip
import json
import sys
from pathlib import Path

import pytest

from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import (
    EXTERNAL_ARRIVALS,
    EXTERNAL_BLOCK_SIZES,
    EXTERNAL_BLOCKS,
    EXTERNAL_POOL_HASHRATE,
    EXTERNAL_POOL_LABELS,
    EXTERNAL_SOURCES,
    hash_hex,
)
from collector.errors import DecodeError, SettingsError
from collector.external.imported_rows import Imported, store_import
from collector.external.kinds import KINDS
from collector.external.names import KIND_NAMES, PROVIDER_NAMES
from collector.external.providers import PROVIDERS, read_files

HASH = f"{7:064x}"
ARRIVAL = f"759483,{HASH},1666250167839\n"
# One block as https://mempool.space/api/v1/blocks tells it, without facts that nobody here reads.
BLOCK = {
    "id": "00000000000000000001ced364d101a671454761ea9f61656049b04dd92f5221",
    "height": 911248,
    "version": 653344768,
    "timestamp": 1755911586,
    "bits": 386018193,
    "nonce": 510877556,
    "difficulty": 129699156960680.9,
    "merkle_root": "c8ae11888cb8a97fe3bed11c5e06cb91e1b7c6ba908d2e5067a03ca1c1c71043",
    "tx_count": 3308,
    "size": 1552870,
    "weight": 3996979,
    "previousblockhash": "00000000000000000001784a63d4d61afded06173f8e2a221faf747424179ad8",
    "stale": False,
    "extras": {
        "reward": 318825116,
        "coinbaseRaw": "0390e70d04a315a9687c204d415241",
        "totalFees": 6325116,
        "totalInputs": 7507,
        "totalOutputs": 10722,
        "segwitTotalTxs": 3051,
        "pool": {"id": 140, "name": "MARA Pool", "slug": "marapool"},
    },
}


def import_files(
    dataset: Dataset, paths: list[Path], provider: str, *, kind: str | None = None
) -> list[Imported]:
    """Read files of one provider, and store their rows when all could be read, as the command does."""
    return [store_import(dataset, file) for file in read_files(paths, provider, kind=kind)]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Create an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "main", create=True)


def written(folder: Path, name: str, content: str) -> Path:
    """Write a file to import; return its path."""
    path = folder / name
    path.write_text(content)
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `pool-collector import`; return the exit status."""
    monkeypatch.setattr(sys, "argv", ["pool-collector", "import", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_each_arrival_file_is_a_source_of_its_own(dataset: Dataset, tmp_path: Path) -> None:
    """Two nodes have two clocks, so each file of arrivals is named after itself; the licence is known."""
    paths = [written(tmp_path, name, ARRIVAL) for name in ("KIT_monitor1.csv", "KIT_monitorB.csv")]

    assert [each.n_new for each in import_files(dataset, paths, "kit")] == [1, 1]

    sources = dataset.read(EXTERNAL_ARRIVALS)["source"].to_pylist()
    assert sources == ["kit.monitor1", "kit.monitorb"]
    assert set(dataset.read(EXTERNAL_SOURCES)["licence"].to_pylist()) == {"CC0-1.0"}


def test_blocks_of_mempool_space_are_read_from_its_answer(dataset: Dataset, tmp_path: Path) -> None:
    """Facts of a block keep their values; stripped size and new coins follow; stale blocks are left out."""
    stale = {**BLOCK, "id": "00" * 32, "stale": True}
    path = written(tmp_path, "blocks.json", json.dumps([BLOCK, stale]))

    import_files(dataset, [path], "mempool-space")

    (row,) = dataset.read(EXTERNAL_BLOCKS).to_pylist()
    assert hash_hex(row["block_hash"]) == BLOCK["id"]
    assert (row["height"], row["n_tx"], row["pool_label"]) == (911248, 3308, "MARA Pool")
    assert row["subsidy_sat"] == 312_500_000
    assert row["weight_wu"] == 3 * row["stripped_bytes"] + row["size_bytes"]
    assert row["header_time"].timestamp() == 1755911586


@pytest.mark.parametrize(
    "change",
    [
        {"id": 5},
        {"extras": []},
        {"bits": None},
        {"timestamp": "soon"},
        {"extras": {"pool": {"name": "\ud800"}}},
        {"extras": {"reward": int("9" * 4300), "totalFees": -1}},
    ],
)
def test_blocks_that_mempool_space_would_not_tell_are_refused(
    change: dict[str, object], tmp_path: Path
) -> None:
    """A block with a missing or impossible fact refuses the file and names the block."""
    path = written(tmp_path, "blocks.json", json.dumps([BLOCK, BLOCK | change]))

    with pytest.raises(DecodeError, match="block 2"):
        read_files([path], "mempool-space")


def test_packed_text_is_unpacked_and_a_torn_file_refused(dataset: Dataset, tmp_path: Path) -> None:
    """A .gz file reads as the text in it; half of one is refused."""
    path = tmp_path / "node.csv.gz"
    path.write_bytes(gzip.compress(ARRIVAL.encode()))

    assert import_files(dataset, [path], "bitcoin-data")[0].n_new == 1
    assert dataset.read(EXTERNAL_ARRIVALS)["source"].to_pylist() == ["bitcoin-data.node"]
    path.write_bytes(gzip.compress(ARRIVAL.encode() * 1000)[:-20])
    with pytest.raises(DecodeError, match="cannot be unpacked"):
        read_files([path], "bitcoin-data")


def test_one_wrong_file_keeps_all_from_being_stored(dataset: Dataset, tmp_path: Path) -> None:
    """A file of another form refuses the whole call, and says what the publisher has."""
    good = written(tmp_path, "good.csv", ARRIVAL)
    bad = written(tmp_path, "bad.csv", "height,pool\n1,a\n")

    with pytest.raises(DecodeError, match=r"bad\.csv is not imported from bitcoin-data.*block-arrival-times"):
        import_files(dataset, [good, bad], "bitcoin-data")

    assert not list(dataset.root.rglob("*.parquet"))
    with pytest.raises(SettingsError, match="no provider 'nobody'; there are blockchair"):
        import_files(dataset, [good], "nobody")
    with pytest.raises(SettingsError, match="blockchair has no prices, only blocks"):
        import_files(dataset, [good], "blockchair", kind="prices")


def test_all_missing_options_are_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a publisher, one error names the kind and the three options, and the way around them."""
    path = written(tmp_path, "x.csv", ARRIVAL)

    assert run(monkeypatch, str(path)) == 2

    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    for word in ("KIND", "--source", "--licence", "--url", "--from"):
        assert word in said


def test_a_call_without_words_names_all_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file, the kind and the options stand in one error."""
    assert run(monkeypatch) == 2

    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    for word in ("FILE", "KIND", "--source", "--licence", "--url", "--from"):
        assert word in said


def test_a_misspelt_kind_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the word, the kind that is meant, and all kinds that there are."""
    assert run(monkeypatch, "lables", str(written(tmp_path, "x.csv", ARRIVAL))) == 2

    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "there is no kind 'lables'; do you mean labels? KIND is one of arrivals, blocks, labels," in said


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("My Node", "--source 'My Node' is no short name"),
        ("observed", "--source 'observed' stands for our own nodes"),
        ("own", "--source 'own' stands for our own nodes"),
    ],
)
def test_a_source_that_is_no_name_is_wrong_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    said: str,
) -> None:
    """A bad --source ends the command with one line and status 2, before anything is made.

    So does a word for our own nodes: results would take the file for what we observed.
    """
    path = written(tmp_path, "x.csv", ARRIVAL)
    options = ["--source", source, "--licence", "none", "--url", "https://example.org"]

    assert run(monkeypatch, "arrivals", str(path), *options, "--dataset", str(tmp_path / "ds")) == 2

    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "ds").exists()


def test_columns_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A block table with names of its own needs hash and height; other facts may lack."""
    path = written(tmp_path, "mine.csv", f"block_id,h,txs\n{HASH},5,2\n{HASH[::-1]},6,1\n")
    root = tmp_path / "ds"
    options = ["--source", "me", "--licence", "none", "--url", "https://example.org", "--dataset", str(root)]

    mapped = "hash=block_id,height=h,n_tx=txs"
    assert run(monkeypatch, "blocks", str(path), "--columns", mapped, *options) == 0

    rows = Dataset.open(root, "main").read(EXTERNAL_BLOCKS).to_pylist()
    assert [(row["height"], row["n_tx"], row["bits"]) for row in rows] == [(5, 2, None), (6, 1, None)]
    assert run(monkeypatch, "blocks", str(path), "--columns", "tip=h", *options) == 2
    assert "blocks have no column 'tip'" in capsys.readouterr().err
    assert run(monkeypatch, "blocks", str(path), "--columns", "height", *options) == 2
    assert "is not OURS=THEIRS" in capsys.readouterr().err
    assert run(monkeypatch, "blocks", str(path), "--columns", "hash=block_id,height=no", *options) == 1
    assert "has no column no; its first line names block_id, h, txs" in capsys.readouterr().err


def test_every_form_names_its_terms_and_address() -> None:
    """Each form of each provider says what it holds, under which licence and at which address."""
    for provider in PROVIDERS.values():
        assert provider.forms
        for form in provider.forms:
            assert form.about
            assert form.licence
            assert form.url.startswith("https://")


@pytest.mark.data
def test_real_files_need_one_word(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A week of Blockchair and the authors' files are imported by --from alone, several in one call."""
    root = tmp_path / "ds"
    week = sorted(map(str, (data_dir / "blockchair-2025-03").glob("*.tsv")))
    names = ("miningpool.csv", "bitcoin_price.csv", "blocksize_viabtc.xlsx", "hash_rate.csv")
    paper = [str(data_dir / "paper" / name) for name in names]

    assert run(monkeypatch, *week, "--from", "blockchair", "--dataset", str(root)) == 0
    assert run(monkeypatch, *paper, "--from", "paper", "--dataset", str(root)) == 0

    assert "blocksize_viabtc.xlsx: external_block_sizes: 12,024 rows" in capsys.readouterr().out
    dataset = Dataset.open(root, "main")
    assert len(dataset.read(EXTERNAL_BLOCKS)) == 1012
    assert len(dataset.read(EXTERNAL_POOL_LABELS)) == 146_148
    sizes = dataset.read(EXTERNAL_BLOCK_SIZES).to_pylist()
    assert (sizes[0]["height"], sizes[0]["size_bytes"], sizes[0]["n_tx"]) == (414_875, 989_094, 301)
    rates = {
        (row["label"], row["day_at"].date().isoformat()): row["hashrate_hashes_per_s"]
        for row in dataset.read(EXTERNAL_POOL_HASHRATE).to_pylist()
    }
    assert rates["F2Pool", "2016-02-25"] == 3.68e17
    assert ("ALL", "2016-02-25") not in rates


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--from", "nobody"), "no publisher 'nobody' is known; --from takes"),
        (("--from", "blockchair", "--columns", "height=h"), "exclude each other"),
    ],
)
def test_wrong_usage_of_words_for_publishers_has_the_status_of_wrong_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    said: str,
) -> None:
    """A publisher that nobody knows, or two answers to one question, give status 2 and no dataset."""
    root = tmp_path / "ds"

    assert run(monkeypatch, "some.tsv", *more, "--dataset", str(root)) == 2

    # The message stands in a box, whose lines are as long as the terminal is wide.
    assert said in " ".join(capsys.readouterr().err.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())
    assert not root.exists()


def test_the_help_names_every_kind_and_every_publisher() -> None:
    """The words of the help, which load no reader, are those of the readers."""
    assert (tuple(KINDS), tuple(PROVIDERS)) == (KIND_NAMES, PROVIDER_NAMES)
