"""Test that rules are read from a folder of TOML files, refused if ambiguous, and hashed by their content."""

import datetime as dt
import re
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.attribution import rules as pools
from analysis.attribution.rule_files import MAX_HEIGHT
from analysis.attribution.rules import RuleSet, default_rules_dir, load_rules
from analysis.errors import RulesError

GHASH_ADDRESS = "1CjPR7Z5ZSyWk6WtXvSFgkptmpoi4UM9BC"
GHASH_SCRIPT = "76a91480ad90d403581fa3bf46086a91b2d9d4125db6c188ac"
SHORT_TAG_BYTES = 6

# What a source of the repository's rules may be, beside an https link: data/pools/README.md lists them.
NAMED_SOURCE = re.compile(
    r"mining-pools|brk|consensus-decentralization|pools-supplement|paper-labels|labels-610683"
    r"|(signet )?block \d+|https://\S+"
)


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write rule files, given by name without suffix, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


def pool(*rules: str, name: str = "Pool", extra: str = "") -> str:
    """Return the text of a pool file with the given rules."""
    return (
        f'name = "{name}"\n{extra}\nrules = [\n' + "".join(f"    {{ {rule} }},\n" for rule in rules) + "]\n"
    )


def members(*rows: str, kind: str = "owner", entity: str = "group") -> str:
    """Return the text of one entity with the given members."""
    lines = "".join(f"    {{ {row} }},\n" for row in rows)
    return f'[[entities]]\nentity = "{entity}"\nname = "G"\nkind = "{kind}"\nmembers = [\n{lines}]\n'


def maker(*tags: str) -> str:
    """Return the text of makers named Ann, for the file of a pool, with the given tags."""
    return "".join(f'[[makers]]\nname = "Ann"\nsource = "s"\n{tag}\n' for tag in tags)


TAG = 'tag = "/one/", source = "s"'
MAKER = 'tag = "<Ann>"'
# The coinbase script of block 886188, up to the nonces.
DATUM_SCRIPT = bytes.fromhex("03ac850d16") + b"< OCEAN.XYZ >\x0fPenguin\x00"


@pytest.fixture(scope="module")
def repository_rules() -> RuleSet:
    """Load the rules that come with the project."""
    return load_rules(default_rules_dir())


def test_rule_ids_are_made_of_content_and_unique(repository_rules: RuleSet) -> None:
    """An id has pool, method and pattern, so that it survives reordering; no two rules share one."""
    ids = [rule.rule_id for pool in repository_rules.pools for rule in pool.rules]

    assert len(ids) == len(set(ids))
    assert "braiinspool:tag:/slush/" in ids
    assert f"ghashio:payout:{GHASH_ADDRESS}" in ids
    assert "kanopool:tag:0x636b706f6f6c052f4b616e6f" in ids


def test_every_rule_of_the_repository_names_a_known_source(repository_rules: RuleSet) -> None:
    """The source of each rule is a list that data/pools/README.md describes, a block, or a link."""
    readme = (default_rules_dir() / "README.md").read_text(encoding="utf-8")
    sources = {s for p in repository_rules.pools for r in p.rules for s in r.source.split("; ")}
    sources |= {s for e in repository_rules.entities for m in e.members for s in m.source.split("; ")}

    assert [source for source in sources if not NAMED_SOURCE.fullmatch(source)] == []
    assert [s for s in sources if " " not in s and "/" not in s and f"`{s}`" not in readme] == []


def test_short_tags_of_the_repository_are_bounded(repository_rules: RuleSet) -> None:
    """A short tag, which may occur by chance, has at least one height bound."""
    unbounded = [
        rule.rule_id
        for pool in repository_rules.pools
        for rule in pool.rules
        if rule.method == "tag"
        and len(rule.pattern) < SHORT_TAG_BYTES
        and rule.from_height == 0
        and rule.to_height == MAX_HEIGHT
    ]

    assert unbounded == []


def test_labels_of_third_parties_are_known_names(repository_rules: RuleSet, data_dir: Path) -> None:
    """Labels of the paper are names or aliases of pools here, those of the label file are slugs."""
    paper = set(pd.read_csv(data_dir / "paper" / "miningpool.csv")["miningpool"])
    labels = pq.read_table(data_dir / "pool-labels-610683-699999.parquet")["pool_slug"]
    slugs = {pool.slug for pool in repository_rules.pools}

    assert {label for label in paper if label.casefold() not in repository_rules.slug_of_name} == {
        "unknown",
        "failed",
    }
    assert set(labels.unique().to_pylist()) - slugs == {"unknown"}


def test_aliases_of_one_pool_lead_to_one_slug(repository_rules: RuleSet) -> None:
    """Names of one pool that public lists keep apart lead to one slug."""
    slug_of = repository_rules.slug_of_name

    assert slug_of["slushpool"] == slug_of["braiins pool"] == "braiinspool"
    assert slug_of["bw.com"] == slug_of["bwpool"] == "bwpool"
    assert slug_of["canoe"] == slug_of["canoepool"] == "canoepool"
    assert slug_of["easy2mine"] == slug_of["wayi.cn"] == "wayicn"


@pytest.mark.parametrize(
    ("label", "slug"),
    [
        ("oceanxyz", "ocean"),
        ("Huobi", "huobipool"),
        ("OKEX", "okexpool"),
        ("SigmaPool", "sigmapoolcom"),
        ("Solo CKPool", "solock"),
        ("Slush", "braiinspool"),
        ("Kano CKPool", "kanopool"),
        ("BitClub Network", "bitclub"),
        ("btcpool(unidentified)", "btcpool-unidentified"),
        ("carbonnegative(unidentified)", "carbonnegative"),
        ("LetsMine.it", "letsmineit"),
        ("Zulu Pool", "zulupool"),
        ("Clean Incentive", "cleanincentive"),
        ("Titan (Lumerin)", "titan"),
        ("tricky'sbtcpool", "trickysbtcpool"),
    ],
)
def test_names_in_label_lists_lead_to_the_pool(repository_rules: RuleSet, label: str, slug: str) -> None:
    """A name that a list of labels to 2026 uses is a name or an alias of the pool."""
    assert repository_rules.slug_of_name[label.casefold()] == slug


def test_entities_are_dated(repository_rules: RuleSet) -> None:
    """BTC.com changes owners at the ends of 2020-11 and 2021-03, and has one owner at a time."""
    rows = repository_rules.entities_table().to_pylist()

    assert [
        (row["entity"], row["from_date"], row["to_date"])
        for row in sorted(rows, key=lambda row: str(row["from_date"]), reverse=True)
        if row["slug"] == "btccom" and row["kind"] == "owner"
    ] == [
        ("bitmain", None, dt.date(2020, 11, 30)),
        ("bit-mining", dt.date(2021, 4, 1), None),
        ("bitdeer-group", dt.date(2020, 12, 1), dt.date(2021, 3, 31)),
    ]


def test_tables_have_one_row_per_pool_and_membership(tmp_path: Path) -> None:
    """pools_table and entities_table have the columns that the marts join, with nulls for open dates."""
    write(tmp_path, {"one": pool(TAG, name="One", extra='link = "https://one.example"')})
    write(tmp_path, {"two": pool('tag = "/two/", source = "s"', name="Two")})
    write(tmp_path, {"entities": members('pool = "two", from_date = 2020-01-02, source = "t"')})
    rules = load_rules(tmp_path)

    assert rules.pools_table().to_pylist() == [
        {"slug": "one", "name": "One", "link": "https://one.example"},
        {"slug": "two", "name": "Two", "link": None},
    ]
    assert rules.entities_table().to_pylist() == [
        {
            "entity": "group",
            "name": "G",
            "slug": "two",
            "from_date": dt.date(2020, 1, 2),
            "to_date": None,
            "kind": "owner",
            "source": "t",
        }
    ]


def test_two_windows_of_one_pattern_have_two_ids(tmp_path: Path) -> None:
    """A pattern with two separate height ranges gives two rules; the later id ends with its from_height."""
    late = 'tag = "/one/", from_height = 20, source = "s"'
    early = 'tag = "/one/", to_height = 9, source = "s"'
    rules = load_rules(write(tmp_path, {"one": pool(late, early)}))

    assert {rule.rule_id: rule.from_height for rule in rules.pools[0].rules} == {
        "one:tag:/one/": 0,
        "one:tag:/one/@20": 20,
    }


def test_one_tag_may_pass_from_pool_to_pool(tmp_path: Path) -> None:
    """Two pools may have one tag if their height ranges do not overlap."""
    rules = load_rules(
        write(
            tmp_path,
            {
                "old": pool('tag = "/one/", to_height = 9, source = "s"', name="Old"),
                "new": pool('tag = "/one/", from_height = 10, source = "s"', name="New"),
            },
        )
    )

    assert [(p.slug, p.rules[0].from_height) for p in rules.pools] == [("new", 10), ("old", 0)]


TWO = {"one": pool(TAG), "two": pool('tag = "/two/", source = "s"', name="Two")}
OWNED = 'pool = "one", source = "s"'


BAD_RULES = [
    ({}, r"no pool rules; name a folder"),
    ({"one": "name = 1\nrules = ["}, r"one\.toml cannot be read as TOML: .*"),
    ({"one": pool()}, r"one\.toml: rules: .*at least 1"),
    ({"one": pool(TAG).replace("name", "nome")}, r"one\.toml: name: .*required.*; nome: .*not permitted"),
    ({"one": pool(TAG + ", colour = 1")}, r"one\.toml: rules 1 colour .*/one/.*not permitted"),
    ({"one": pool('tag = "/one/"')}, r"one\.toml: rules 1 source .*/one/.*required"),
    ({"one": pool('tag = "", source = "s"')}, r"one\.toml: rules 1 .*under 3 bytes"),
    ({"one": pool('tag = "ab", source = "s"')}, r"one\.toml: rules 1 .*under 3 bytes"),
    ({"one": pool('tag_hex = "abc", source = "s"')}, r"one\.toml: rules 1 tag_hex"),
    ({"one": pool('source = "s"')}, r"one\.toml: rules 1 .*exactly one of tag"),
    ({"one": pool(TAG + ', tag_hex = "616263"')}, r"one\.toml: rules 1 .*exactly one of tag"),
    (
        {"one": pool(TAG, 'address = "1Bad", source = "s"')},
        r"one\.toml: rules 2: '1Bad' fails its Base58",
    ),
    (
        {"one": pool(TAG + ", from_height = -1")},
        r"one\.toml: rules 1 from_height .*greater than or equal",
    ),
    ({"one": pool(TAG + ', from_height = "1"')}, r"one\.toml: rules 1 from_height .*integer"),
    ({"one": pool(TAG + ", from_height = 9, to_height = 8")}, r"rules 1 .*9 is above to_height 8; swap"),
    ({"one": pool(TAG, extra='link = "javascript:alert(1)"')}, r"one\.toml: link"),
    ({"One": pool(TAG)}, r"One\.toml: 'One' cannot be a slug"),
    ({"unknown": pool(TAG)}, r"unknown\.toml: 'unknown' cannot be a slug"),
    (
        {"one": pool(TAG), "two": pool(TAG, name="Two")},
        r"one\.toml 'one:tag:/one/' and two\.toml 'two:tag",
    ),
    (
        {"one": pool(TAG), "two": pool('tag_hex = "2f6f6e652f", source = "s"', name="Two")},
        r"both apply from 0",
    ),
    ({"one": pool(TAG) + maker('tag = "ab"')}, r"one\.toml: makers 1 .*under 3 bytes"),
    ({"one": pool(TAG) + maker("")}, r"one\.toml: makers 1 .*exactly one of tag, tag_hex"),
    ({"one": pool(TAG) + maker(MAKER, MAKER)}, r"one\.toml 'Ann' and one\.toml 'Ann' both apply from 0"),
    ({"one": pool(TAG, TAG)}, r"one\.toml 'one:tag:/one/' and one\.toml .*both apply from 0"),
    (
        {"one": pool(TAG + ", to_height = 9", TAG + ", from_height = 9")},
        r"both apply from 9 on; remove one, or bound them",
    ),
    (
        {
            "one": pool(f'address = "{GHASH_ADDRESS}", source = "s"'),
            "two": pool(f'script_hex = "{GHASH_SCRIPT}", source = "s"', name="Two"),
        },
        r"one\.toml 'one:payout:1Cj.*' and two\.toml 'two:payout:0x76",
    ),
    (
        {**TWO, "two": pool('tag = "/two/", source = "s"')},
        r"one\.toml and two\.toml both have the name 'Pool'",
    ),
    (
        {**TWO, "entities": members('pool = "three", source = "s"')},
        r"entities\.toml: 'group' names pool 'three'",
    ),
    ({**TWO, "entities": members(OWNED, kind="friend")}, r"entities\.toml: entities 1 kind"),
    (
        {**TWO, "entities": members(OWNED + ", from_date = 2021-01-01, to_date = 2020-01-01")},
        r"entities\.toml: entities 1 members 1 .*2021-01-01 is after to_date 2020-01-01; swap",
    ),
    ({**TWO, "entities": members(OWNED, OWNED)}, r"'group' \(owner\) of 'one' and .*both apply from 0001"),
    (
        {**TWO, "entities": members(OWNED) + members(OWNED, entity="other")},
        r"'group' \(owner\) of 'one' and .*'other' \(owner\) of 'one' both apply",
    ),
]


@pytest.mark.parametrize(("files", "message"), BAD_RULES)
def test_bad_rules_are_refused_with_file_and_entry(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    """A malformed or ambiguous rule raises one RulesError that says where it is and what to do."""
    with pytest.raises(RulesError, match=re.compile(message, re.DOTALL)):
        load_rules(write(tmp_path, files))


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """A file that is not UTF-8 raises RulesError with its name."""
    (tmp_path / "one.toml").write_bytes(b'name = "\xff"')

    with pytest.raises(RulesError, match=r"one\.toml cannot be read as TOML"):
        load_rules(tmp_path)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    """A missing folder raises the error of a folder without rules."""
    with pytest.raises(RulesError, match="name a folder"):
        load_rules(tmp_path / "nowhere")


ONE = pool(TAG, 'tag = "/uno/", to_height = 9, source = "s"', name="One")
SAME_DECISIONS = (
    pool('tag = "/uno/", to_height = 9, source = "s"', TAG, name="One"),
    "# a comment\n\n" + ONE.replace("    {", "{"),
    ONE.replace('source = "s"', 'source = "elsewhere", note = "n"'),
    pool(TAG, 'tag = "/uno/", to_height = 9, source = "s"', name="One", extra='link = "https://x.example"'),
    ONE.replace('tag = "/uno/"', 'tag_hex = "2f756e6f2f"'),
)
OTHER_DECISIONS = (
    ONE.replace("/uno/", "/una/"),
    ONE.replace("to_height = 9", "to_height = 8"),
    ONE.replace("to_height = 9", "from_height = 9"),
    ONE.replace('"One"', '"Eins"'),
    pool(TAG, 'tag = "/uno/", to_height = 9, source = "s"', name="One", extra='aliases = ["Uno"]'),
)


@pytest.mark.parametrize("text", SAME_DECISIONS)
def test_hash_ignores_what_decides_nothing(tmp_path: Path, text: str) -> None:
    """Order, white space, comments, notes, links and sources do not change the hash."""
    assert (
        load_rules(write(tmp_path / "a", {"one": ONE})).hash
        == load_rules(write(tmp_path / "b", {"one": text})).hash
    )


@pytest.mark.parametrize("text", OTHER_DECISIONS)
def test_hash_changes_with_what_decides(tmp_path: Path, text: str) -> None:
    """A changed pattern, height bound, pool name or alias changes the hash."""
    assert (
        load_rules(write(tmp_path / "a", {"one": ONE})).hash
        != load_rules(write(tmp_path / "b", {"one": text})).hash
    )


def test_makers_are_found_by_exact_bytes(repository_rules: RuleSet) -> None:
    """The tag of one maker, and of no other, stands in a real coinbase of DATUM."""
    found = [
        row["maker"] for row in repository_rules.makers_table().to_pylist() if row["tag"] in DATUM_SCRIPT
    ]

    assert found == ["Penguin"]


def test_hash_changes_with_makers(tmp_path: Path) -> None:
    """A changed maker changes the hash, because it changes the mart sub_pool."""
    alone = load_rules(write(tmp_path, {"one": ONE})).hash

    assert load_rules(write(tmp_path, {"one": ONE + maker(MAKER)})).hash != alone


def test_hash_changes_with_entities(tmp_path: Path) -> None:
    """A changed membership changes the hash, because it changes every figure by owner."""
    alone = load_rules(write(tmp_path, {"one": ONE})).hash

    assert load_rules(write(tmp_path, {"entities": members(OWNED)})).hash != alone


@pytest.mark.parametrize("entity", ["unknown", "all"])
def test_a_group_may_not_be_called_like_what_has_no_owner(tmp_path: Path, entity: str) -> None:
    """An owner called 'unknown' would be added up with the blocks that no rule names."""
    write(tmp_path, {"one": ONE, "entities": members(OWNED, entity=entity)})

    with pytest.raises(RulesError, match=rf"entities\.toml: '{entity}' stands for blocks of no owner"):
        load_rules(tmp_path)


def test_a_group_may_not_be_called_like_a_pool(tmp_path: Path) -> None:
    """An owner or proxy may not have the slug of a pool; a former name may.

    Blocks of an owner and a pool with one slug would be added up.
    """
    write(tmp_path, {"one": ONE, "entities": members(OWNED, kind="name", entity="one")})
    assert load_rules(tmp_path).entities[0].entity == "one"

    with pytest.raises(RulesError, match=r"entities\.toml: 'one' is also the slug of a pool"):
        load_rules(write(tmp_path, {"entities": members(OWNED, kind="proxy", entity="one")}))


def test_labels_are_read_through_names_aliases_and_slugs(tmp_path: Path) -> None:
    """names_table has names, aliases and slugs in lower case; a name goes before another pool's slug."""
    write(tmp_path, {"one": pool(TAG, name="Two"), "two": pool('tag = "/two/", source = "s"', name="Zwei")})

    rows = load_rules(tmp_path).names_table().to_pylist()

    assert {row["name"]: row["slug"] for row in rows} == {"one": "one", "two": "one", "zwei": "two"}
    assert len(rows) == 3


@given(order=st.permutations(range(6)))
def test_order_of_entries_is_irrelevant(order: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rules in any order give equal rule sets."""
    rules = [f'tag = "/tag{number}/", source = "s"' for number in range(6)]
    in_order = load_rules(write(tmp_path_factory.mktemp("a"), {"one": pool(*rules)}))
    shuffled = load_rules(write(tmp_path_factory.mktemp("b"), {"one": pool(*(rules[i] for i in order))}))

    assert in_order == shuffled
    assert in_order.hash == shuffled.hash


def test_rules_are_found_where_a_wheel_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a checkout, the rules are found in the package; without both, an error says so."""
    package = tmp_path / "site-packages" / "analysis"
    monkeypatch.setattr(pools, "__file__", str(package / "attribution" / "rules.py"))

    with pytest.raises(RulesError, match="name a folder of rules yourself"):
        default_rules_dir()
    installed = package / "pools"
    installed.mkdir(parents=True)
    assert default_rules_dir() == installed
