"""Test that attribution agrees with real blocks and with other people's labels, or list the difference."""

import csv
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from bitcoin.core import CBlock, CTransaction

from analysis.attribution.match import Attribution, attribute
from analysis.attribution.rules import RuleSet, default_rules_dir, load_rules
from analysis.database import connect
from tests.bench.score_labels import DIFFERENCES, score

MIN_NAMED_RATIO = 0.989

# Pool of every block of the manifest that names one; the early blocks were mined before pools had tags.
MANIFEST_POOLS = {
    "227836": "braiinspool",
    "277647": "btcguild",
    "300025": "f2pool",
    "333961": "f2pool",
    "361582": "megabigpower",
    "363703": "antpool",
    "367891": "f2pool",
    "370661": "braiinspool",
    "383616": "ghashio",
    "437303": "viabtc",
    "481815": "bitclub",
    "481829": "bixin",
    "482683": "antpool",
    "514485": "braiinspool",
    "514492": "antpool",
    "574200": "btccom",
    "670718": "btccom",
}

# Pools that we name where the provider says Unknown, with the text in each such coinbase.
EXPLAINED = {
    "btccom": rb"btccom",
    "carbonnegative": rb"\x01 \x13\t\t\t \t\t \t\x10",
    "luxor": rb"(Mined|Powered) by Luxor Tech",
    "marapool": rb"\| MARA Made in USA ",
    "miningdutch": rb"/Mining-Dutch/",
    "nicehash": rb"/NiceHash/",
    "ocean": rb"< OCEAN\.XYZ >",
    "secpool": rb"Mined by Sec[Pp]ool",
    "ultimuspool": rb"/ultimus/",
    "whitepool": rb"WhitePool",
}

# Texts of coinbases that neither names: the software ckpool with the miner's xmi, and two unlisted texts.
UNKNOWN_TO_ALL = rb"\nckpool\x03xmi$|p2p-spb\.xyz$|://e92fceb1-"


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    """Load the rules that come with the project."""
    return load_rules(default_rules_dir())


def verdict(rules: RuleSet, coinbase: CTransaction, height: int) -> Attribution:
    """Attribute a coinbase transaction that python-bitcoinlib has parsed."""
    outputs = [(output.nValue, bytes(output.scriptPubKey)) for output in coinbase.vout]
    return attribute(rules, height=height, coinbase_script=bytes(coinbase.vin[0].scriptSig), outputs=outputs)


def read_manifest(data_dir: Path) -> list[dict[str, str]]:
    """Read the rows of the manifest of real blocks; one of its columns holds a whole coinbase."""
    csv.field_size_limit(sys.maxsize)
    with (data_dir / "mainnet-blocks" / "manifest.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.data
def test_every_vector_gives_its_pool_by_its_methods(rules: RuleSet, data_dir: Path) -> None:
    """Each pool-identification vector gives its pool and its set of methods (address, tag, none)."""
    vectors = json.loads(
        (data_dir / "pool-identification-vectors" / "vectors.json").read_text(encoding="utf-8")
    )
    method_of = {"IdentificationMethod::Address": "payout", "IdentificationMethod::Tag": "tag"}

    assert len(vectors) == 7
    for vector in vectors:
        raw = bytes.fromhex(vector["hex"])
        is_block = vector["kind"] == "block"
        coinbase = CBlock.deserialize(raw).vtx[0] if is_block else CTransaction.deserialize(raw)
        height = re.search(r"(?:height|[Bb]lock) (\d+)", " ".join(vector["comments"]))
        assert height, vector["test"]
        result = verdict(rules, coinbase, int(height[1]))

        names = [rules.slug_of_name[name.casefold()] for name in vector["expected_names"]]
        assert ([result.pool] if result.pool else []) == names, vector["test"]
        assert {c.method for c in result.candidates} == {method_of[m] for m in vector["expected_methods"]}
        assert (result.pool is None) == vector["expects_none"]
        assert result.conflicts == ()


@pytest.mark.data
def test_real_blocks_give_their_pools(rules: RuleSet, data_dir: Path) -> None:
    """Coinbases of the manifest give the pools listed above; blocks from before pools had tags give none."""
    rows = read_manifest(data_dir)
    found = {}
    for row in rows:
        values, scripts = json.loads(row["coinbase_out_values"]), json.loads(row["coinbase_out_spk"])
        result = attribute(
            rules,
            height=int(row["height"] or 0),
            coinbase_script=bytes.fromhex(row["coinbase_hex"]),
            outputs=[(value, bytes.fromhex(script)) for value, script in zip(values, scripts, strict=True)],
        )
        assert result.conflicts == (), row["height"]
        if result.pool:
            found[row["height"]] = result.pool

    assert len(rows) > 600
    assert found == MANIFEST_POOLS


@pytest.mark.data
def test_blocks_read_from_raw_bytes_agree_with_the_labels_of_the_paper(
    rules: RuleSet, data_dir: Path
) -> None:
    """The blocks between 400000 and 546235 that we have in full get the pool that the authors published."""
    labels = pd.read_csv(data_dir / "paper" / "miningpool.csv").set_index("blockid")["miningpool"]
    compared = []
    for file in sorted((data_dir / "mainnet-blocks").glob("[45]*-*.bin")):
        height = int(file.name.split("-")[0])
        if height not in labels.index:
            continue
        block = CBlock.deserialize(file.read_bytes())
        compared.append(height)
        assert verdict(rules, block.vtx[0], height).pool == rules.slug_of_name[labels[height].casefold()]

    assert compared == [437303, 481815, 481829, 482683, 514485, 514492]


@pytest.mark.data
def test_a_week_of_coinbases_is_named_and_every_difference_explained(rules: RuleSet, data_dir: Path) -> None:
    """Rules name at least 98.9 % of 1,012 blocks of March 2025, and never contradict the provider."""
    files = sorted((data_dir / "blockchair-2025-03").glob("*.tsv"))
    blocks = pd.concat([pd.read_csv(file, sep="\t") for file in files])
    agreement: Counter[tuple[str, str]] = Counter()
    unexplained = []
    for height, coinbase_hex, guess in zip(
        blocks["id"], blocks["coinbase_data_hex"], blocks["guessed_miner"], strict=True
    ):
        script = bytes.fromhex(coinbase_hex)
        result = attribute(rules, height=height, coinbase_script=script, outputs=[])
        agreement[guess, result.pool or "unknown"] += 1
        if guess == "Unknown":
            reason = EXPLAINED.get(result.pool, b"$^") if result.pool else UNKNOWN_TO_ALL
            is_explained = re.search(reason, script) is not None
        else:
            is_explained = result.pool == rules.slug_of_name[guess.casefold()]
        if not is_explained or result.conflicts:
            unexplained.append((height, guess, result))

    print(f"\n{'third party':20} {'here':14} blocks")
    for (guess, pool), count in sorted(agreement.items()):
        print(f"{guess:20} {pool:14} {count:6}")
    named = sum(count for (_, pool), count in agreement.items() if pool != "unknown")
    assert unexplained == []
    assert {pool for guess, pool in agreement if guess == "Unknown"} == {*EXPLAINED, "unknown"}
    assert len(blocks) == 1012
    assert named / len(blocks) >= MIN_NAMED_RATIO


@pytest.mark.data
def test_the_hold_out_is_scored_against_every_list(data_dir: Path, tmp_path: Path) -> None:
    """A list that names two blocks, one of them wrongly, agrees once and disagrees once."""
    labels = tmp_path / "labels.csv"
    labels.write_text("height,label\n885785,OCEAN\n885788,OCEAN\n")
    blocks = sorted((data_dir / "blockchair-2025-03").glob("*.tsv"))

    with connect(score(blocks, [labels], tmp_path), read_only=True) as connection:
        query = (
            "SELECT source, agree_count, disagree_count, only_here_count, neither_count FROM label_summary"
        )
        counts = {source: tuple(rest) for source, *rest in connection.sql(query).fetchall()}
        differences = connection.sql(DIFFERENCES).fetchall()

    assert counts == {"blockchair": (835, 0, 170, 7), "labels-1": (1, 1, 0, 0)}
    assert [row[:4] for row in differences] == [("labels-1", 885788, "OCEAN", "secpool")]
