"""Test that a coinbase is attributed by the documented precedence, and that no bytes can break it."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.attribution.match import CANDIDATES, Attribution, attribute, match_candidates
from analysis.attribution.payout_scripts import script_of_address
from analysis.attribution.rules import RuleSet, default_rules_dir, load_rules

HUOBI = script_of_address("1EepjXgvWUoRyNvuLSAxjiqZ1QqKGDANLW")
ANTPOOL = script_of_address("12dRugNcdxK39288NjcDV4GX7rMsKCGn6B")
NOBODY = bytes.fromhex("76a914" + "00" * 20 + "88ac")

BLOCKS = pa.schema(
    [
        pa.field("block_hash", pa.binary(32)),
        pa.field("height", pa.int32()),
        pa.field("coinbase_script", pa.binary()),
        pa.field(
            "coinbase_outputs",
            pa.list_(pa.struct([pa.field("value_sat", pa.int64()), pa.field("script", pa.binary())])),
        ),
    ]
)

Outputs = Sequence[tuple[int, bytes]]


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    """Load the rules that come with the project."""
    return load_rules(default_rules_dir())


@pytest.mark.parametrize(
    ("text", "height", "slug"),
    [
        ("/letsmine.it/", 936_100, "letsmineit"),
        ("Zulu Pool", 790_413, "zulupool"),
        ("Public Pool", 943_466, "publicpool"),
        ("Public Pool", 888_988, None),
        ("Public Pool on Umbrel", 888_989, "publicpool"),
        ("SoloPool.Com", 928_956, "solopoolcom"),
        ("0x783c3f003f172c6Ac5AC700218a357d2D66Ee2a2", 890_245, "miningsquared"),
        ("This block was mined with a carbon negative power source  hz", 690_688, "carbonnegative"),
        (bytes.fromhex("012012090909200909200904"), 777_000, "carbonnegative"),
        (bytes.fromhex("012013090909200909200910"), 886_047, "carbonnegative"),
    ],
)
def test_tags_of_small_and_late_pools_name_them_alone(
    rules: RuleSet, text: str | bytes, height: int, slug: str | None
) -> None:
    """Each tag names its pool without a conflict; plain words do so only from the pool's first block on."""
    result = verdict(rules, text, height=height)

    assert (result.pool, result.conflicts) == (slug, ())


def rules_of(folder: Path, **tags: Sequence[str]) -> RuleSet:
    """Make rules of invented pools: one tag rule for each text."""
    folder.mkdir(exist_ok=True)
    for slug, texts in tags.items():
        entries = "".join(f"    {{ tag = '{text}', source = 's' }},\n" for text in texts)
        (folder / f"{slug}.toml").write_text(f"name = '{slug}'\nrules = [\n{entries}]\n", encoding="utf-8")
    return load_rules(folder)


def verdict(rules: RuleSet, text: str | bytes, outputs: Outputs = (), height: int = 700_000) -> Attribution:
    """Attribute a coinbase script that has the text between binary bytes, as pools write it."""
    tag = text.encode() if isinstance(text, str) else text
    script = b"\x03\x60\xae\x0a\xff\x00" + tag + b"\x00\xfa\xbemm\x80"
    return attribute(rules, height=height, coinbase_script=script, outputs=outputs)


def table(blocks: Sequence[tuple[int, bytes, Outputs]]) -> pa.Table:
    """Make a table of blocks as the analysis passes them to the matcher; the hash is the row number."""
    rows = [
        {
            "block_hash": number.to_bytes(32, "little"),
            "height": height,
            "coinbase_script": script,
            "coinbase_outputs": [{"value_sat": value, "script": output} for value, output in outputs],
        }
        for number, (height, script, outputs) in enumerate(blocks)
    ]
    return pa.Table.from_pylist(rows, schema=BLOCKS)


@pytest.mark.parametrize(
    ("text", "pool"),
    [
        ("/EMCD/", "emcdpool"),
        ("get___emcd", "emcdpool"),
        ("ckpool\x10/solo.ckpool.org/", "solock"),
        ("ckpool\x05/Kano", "kanopool"),
        ("/mined by poopbut/\x0ackpool", "miningkings"),
        ("/ViaBTC/TATMAS Pool/", "tatmaspool"),
        ("/1THash&58COIN/", "1thash"),
        ("/E2M & BTC.TOP/", "wayicn"),
        ("Mined By 175btc.com", "175btc"),
        ("/braiinssolo/", "braiinssolo"),
    ],
)
def test_tag_inside_a_tag_leaves_the_longer_one(rules: RuleSet, text: str, pool: str) -> None:
    """The longer tag names the pool where one tag contains another, or a software's tag stands beside it."""
    assert verdict(rules, text).pool == pool


def test_contained_tags_are_all_found_and_the_longest_wins(tmp_path: Path) -> None:
    """EMC in /EMCD/ and ckpool in /solo.ckpool.org/ are candidates, after the longer tag."""
    rules = rules_of(
        tmp_path, eclipse=["EMC"], emcd=["/EMCD/"], ckpool=["ckpool"], solo=["/solo.ckpool.org/"]
    )

    assert [c.pool for c in verdict(rules, "/EMCD/").candidates] == ["emcd", "eclipse"]
    solo = verdict(rules, "ckpool /solo.ckpool.org/")
    assert (solo.pool, [c.pool for c in solo.conflicts]) == ("solo", ["ckpool"])


def test_partly_overlapping_tags_are_both_found(tmp_path: Path) -> None:
    """Two tags that share a slash are two candidates; of tags of equal length the earlier one wins."""
    rules = rules_of(tmp_path, late=["/bb/"], early=["/aa/"])

    assert [(c.pool, c.position) for c in verdict(rules, "/aa/bb/").candidates] == [("early", 6), ("late", 9)]
    assert verdict(rules, "/bb/aa/").pool == "late"


@pytest.mark.parametrize("text", ["七彩神仙鱼", "🐟", "/八宝池 8baochi.com/", "🐵🚀"])
def test_tags_beyond_ascii_match_as_utf8_bytes(rules: RuleSet, text: str) -> None:
    """Chinese and emoji tags match as UTF-8 bytes, without decoding the coinbase."""
    pool = {"七": "f2pool", "🐟": "f2pool", "/": "8baochi", "🐵": "mononaut"}[text[0]]

    assert verdict(rules, text).pool == pool
    assert verdict(rules, text.encode()[:-1]).pool is None


@pytest.mark.parametrize(
    ("text", "pool"),
    [
        ("binance/818", "binancepool"),
        ("/Binance/", "binancepool"),
        (" Mined by Secpool ", "secpool"),
        ("Mined by SecPool", "secpool"),
        ("Mined By AntPool", "antpool"),
        ("BINANCE", None),
        ("/SLUSH/", None),
    ],
)
def test_capitals_matter_and_known_spellings_are_rules(rules: RuleSet, text: str, pool: str | None) -> None:
    """Tags match with their exact capitals only; a pool that changed its capitals has a rule per spelling."""
    assert verdict(rules, text).pool == pool


@pytest.mark.parametrize("name", ["leehoo4444", "SpiderPool", "Foundry USA Pool", "/slush/", "f2pool"])
def test_name_a_miner_writes_does_not_take_the_block(rules: RuleSet, name: str) -> None:
    """A pool name that a miner wrote behind /ViaBTC/Mined by does not win; it is at most a conflict."""
    result = verdict(rules, f"/ViaBTC/Mined by {name}/")

    assert result.pool == "viabtc"
    assert {candidate.pool for candidate in result.conflicts} <= {
        "spiderpool",
        "foundryusa",
        "braiinspool",
        "f2pool",
    }


def test_payout_beats_tag_and_the_tag_is_kept(rules: RuleSet) -> None:
    """Block 683919 has EMCD's tag and pays Huobi: the pool is Huobi, with EMCD as the conflict."""
    result = verdict(rules, "/one_more_mcd/", [(625_000_000, HUOBI), (0, b"\x6a")], height=683_919)

    assert (result.pool, result.method) == ("huobipool", "payout")
    assert result.rule_id == "huobipool:payout:1EepjXgvWUoRyNvuLSAxjiqZ1QqKGDANLW"
    assert [(c.pool, c.method, c.tag_length_bytes) for c in result.conflicts] == [("emcdpool", "tag", 14)]
    assert result.rules_hash == rules.hash


def test_larger_payout_wins_then_the_earlier(rules: RuleSet) -> None:
    """A coinbase that pays two pools belongs to the better paid one; a script paid twice is one candidate."""
    larger = verdict(rules, "", [(1, ANTPOOL), (5, NOBODY), (3, HUOBI), (2, ANTPOOL)])
    equal = verdict(rules, "", [(5, NOBODY), (3, ANTPOOL), (3, HUOBI)])

    assert [(c.pool, c.position, c.value_sat) for c in larger.candidates] == [
        ("huobipool", 2, 3),
        ("antpool", 3, 2),
    ]
    assert [(c.pool, c.position) for c in equal.candidates] == [("antpool", 1), ("huobipool", 2)]


@pytest.mark.parametrize(("height", "pool"), [(521_727, None), (521_728, "tigerpool"), (530_131, None)])
def test_rule_holds_only_within_its_heights(rules: RuleSet, height: int, pool: str | None) -> None:
    """The word tiger names a pool between the heights of its rule, and no pool outside."""
    assert verdict(rules, "tiger", height=height).pool == pool


def test_unknown_stays_unknown(rules: RuleSet) -> None:
    """Without a match there is no pool, no rule and no method, and the table has no row."""
    result = verdict(rules, "ckpool\x03xmi", [(1, NOBODY)])

    assert (result.pool, result.rule_id, result.method, result.candidates) == (None, None, None, ())
    assert match_candidates(rules, table([(1, b"ckpool", [])])).num_rows == 0


def test_table_has_the_candidates_of_each_block_in_order_of_rank(rules: RuleSet) -> None:
    """The table has one row per candidate, ranked within its block, with the columns of CANDIDATES."""
    blocks = table(
        [(683_919, b"/one_more_mcd/", [(7, HUOBI)]), (1, b"", []), (700_000, b"/slush/", [(7, NOBODY)])]
    )
    result = match_candidates(rules, blocks)

    assert result.schema == CANDIDATES
    assert [
        (row["block_hash"][0], row["rank"], row["pool"], row["position"]) for row in result.to_pylist()
    ] == [
        (0, 1, "huobipool", 0),
        (0, 2, "emcdpool", 0),
        (2, 1, "braiinspool", 0),
    ]
    assert result["value_sat"].to_pylist() == [7, None, None]
    assert result["tag_length_bytes"].to_pylist() == [None, 14, 7]


def test_no_blocks_give_no_rows(rules: RuleSet) -> None:
    """A table of no blocks gives a table of no candidates."""
    assert match_candidates(rules, BLOCKS.empty_table()).schema == CANDIDATES


SCRIPT = st.one_of(
    st.binary(max_size=100),
    st.lists(
        st.sampled_from(
            [
                b"/slush/",
                b"EMC ",
                b"tiger",
                b"/ViaBTC/",
                b"binance",
                "🐟".encode(),
                b"\x00",
                b"<b>",
                b"\x1b[2J",
            ]
        ),
        max_size=6,
    ).map(b"".join),
)
OUTPUTS = st.lists(
    st.tuples(
        st.integers(0, 21 * 10**14), st.one_of(st.sampled_from([HUOBI, ANTPOOL]), st.binary(max_size=40))
    ),
    max_size=4,
)
COINBASES = st.lists(st.tuples(st.integers(0, 2**31 - 1), SCRIPT, OUTPUTS), max_size=6)


@given(blocks=COINBASES)
def test_hostile_bytes_never_raise_and_both_ways_agree(
    rules: RuleSet, blocks: list[tuple[int, bytes, Outputs]]
) -> None:
    """For any script and outputs, `attribute` and `match_candidates` find the same candidates."""
    whole = match_candidates(rules, table([(1, b"/slush/", [(9, HUOBI)]), *blocks]).slice(1))
    expected = [
        (number + 1, rank, candidate.rule_id)
        for number, (height, script, outputs) in enumerate(blocks)
        for rank, candidate in enumerate(
            attribute(rules, height=height, coinbase_script=script, outputs=outputs).candidates, start=1
        )
    ]

    assert [
        (int.from_bytes(r["block_hash"], "little"), r["rank"], r["rule_id"]) for r in whole.to_pylist()
    ] == expected


@given(data=st.data(), blocks=COINBASES)
def test_order_of_rules_and_files_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, blocks: list[tuple[int, bytes, Outputs]]
) -> None:
    """The same rules in another order, and in files of other names, give the same pool names."""
    tags = ["/slush/", "EMC ", "tiger", "/ViaBTC/", "binance", "slu"]
    shuffled = data.draw(st.permutations(tags))
    results = []
    for order in (tags, shuffled):
        # Pool k always has tags k and k + 3; the order of this turn names its file and sorts its rules.
        folder = tmp_path_factory.mktemp("rules")
        owners = {f"p{order.index(tags[k])}": [t for t in order if tags.index(t) % 3 == k] for k in range(3)}
        rules = rules_of(folder, **owners)
        found = match_candidates(rules, table(blocks)).to_pylist()
        results.append([(row["block_hash"], row["rank"], row["rule_id"].split(":", 1)[1]) for row in found])

    assert results[0] == results[1]
