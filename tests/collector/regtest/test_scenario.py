"""Test scenario files: their rules, the errors of wrong ones, and the scenarios of the package."""

import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from collector.errors import RegtestError
from collector.regtest import Scenario, load_scenario, scenario_names
from collector.regtest.mining import coinbase_script
from collector.regtest.scenario import plan_blocks
from collector.regtest.scripts import COIN_KINDS
from collector.regtest.traffic import draw_stories, plan_traffic
from collector.regtest.wallet import Coin, Wallet

SMOKE = (files("collector.regtest") / "scenarios" / "smoke.toml").read_text(encoding="utf-8")


def coins(count: int) -> Wallet:
    """Make a wallet of coins that no chain knows."""
    kind = COIN_KINDS["p2wsh"]
    return Wallet(
        Coin(txid=number.to_bytes(32, "big"), vout=0, value_sat=250_000, kind=kind) for number in range(count)
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("blocks = 12", "blocks = 12\nblox = 1", r"blox: Extra inputs are not permitted"),
        ("blocks = 12", 'blocks = "12"', r"blocks: Input should be a valid integer"),
        ("seed = 3", "", r"seed: Field required"),
        ("minimum_s = 0.05", "minimum_s = 9.0", r"interval: minimum_s 9\.0 must be below mean_s"),
        ("chain_share = 0.06", "chain_share = 0.9", r"traffic: .*add up to 1\.16, which is above 1"),
        ("initial = 200", "initial = 200\nfeerate_minimum_sat_vb = 99.0", r"traffic: .*must be below"),
        ("share = 0.3", "share = 0.4", r"scenario: the shares of the pools add up to"),
        ('policy = "feerate"', 'policy = "greedy"', r"pools 1\.policy: Input should be 'feerate'"),
        ('tag = "/tin whistle/"', "", r"pools 1: needs exactly one of tag and tag_hex"),
        ('tag = "/tin whistle/"', 'tag = "/"', r"pools 1: .*the tag has 1 bytes; give it 3 to"),
        ('tag = "/tin whistle/"', f'tag = "{"x" * 99}"', r"pools 1: .*the tag has 99 bytes"),
        ('tag = "/tin whistle/"', 'tag_hex = "xyz"', r"pools 1"),
        ('slug = "queue"', 'slug = "The Queue"', r"pools 4\.slug: String should match pattern"),
        ('slug = "queue"', 'slug = "tin-whistle"', r"two pools have the same slug 'tin-whistle'"),
        ('name = "The Queue"', 'name = "Tin Whistle"', r"two pools have the same name 'Tin Whistle'"),
        ('tag = "/queue/"', 'tag = "/tin whistle/"', r"two pools have the same tag b'/tin whistle/'"),
        (
            "within_s = 0.3, probability = 0.9",
            "within_s = 0.3",
            r"pools 2\.empty_after_fast\.probability: Field",
        ),
        ('policy = "first_come"', 'policy = "empty_after_fast"', r"pools 4: .*goes with policy"),
        ("missing_share = 0.25", "missing_share = 0.8", r"labels: .*add up to 1\.05, which is above 1"),
        (
            'pool = "queue"',
            'pool = "quay"',
            r"scenario: .*fork at block 5 names a pool that does not exist: 'quay'",
        ),
        ("at_block = 5", "at_block = 11", r"scenario: .*12 blocks are too few to outgrow its depth of 2"),
        (
            "[prices]",
            '[[forks]]\nat_block = 5\ndepth = 1\npool = "queue"\n[prices]',
            r"scenario: .*two forks have the same at_block",
        ),
        (
            "[prices]",
            '[[owners]]\nslug = "hill"\nname = "Hill"\npools = ["queue", "quay"]\n[prices]',
            r"scenario: .*owner hill lists a pool that does not exist or has no rules: 'quay'",
        ),
        ("[interval]", "[interval", r"cannot be read as TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """Each kind of mistake in a file is one error that says where it stands."""
    assert old in SMOKE
    path = tmp_path / "mine.toml"
    path.write_text(SMOKE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(RegtestError, match=rf"(?s){path}.*{problem}"):
        load_scenario(path)


def test_an_unknown_name_lists_the_names_there_are() -> None:
    """An unknown scenario name is an error that lists the names of the shipped ones."""
    with pytest.raises(RegtestError, match=r"no scenario 'nope'; there are demo, smoke"):
        load_scenario("nope")


def test_a_file_outside_the_package_is_loaded_by_its_path(tmp_path: Path) -> None:
    """A scenario file anywhere is loaded by its path."""
    path = tmp_path / "mine.toml"
    path.write_text(SMOKE, encoding="utf-8")
    assert load_scenario(path) == load_scenario("smoke")


@pytest.mark.parametrize("name", scenario_names())
def test_a_shipped_scenario_is_named_after_its_file_and_its_tags_fit(name: str) -> None:
    """Each loads, and its longest coinbase is one that consensus allows."""
    scenario = load_scenario(name)
    assert scenario.name == name
    for pool in scenario.pools:
        assert len(coinbase_script(2**31, pool.tag_bytes, 2**63)) <= 100


def test_the_same_seed_plans_the_same_blocks_and_transactions(smoke: Scenario) -> None:
    """A scenario is repeatable to the byte; another seed gives another one."""

    def plan(scenario: Scenario) -> tuple[object, list[bytes]]:
        stories = draw_stories(scenario, 5.0)
        wallet = coins(sum(story.n_coins for story in stories))
        planned = plan_traffic(scenario, stories, wallet)
        assert len(wallet) == 0
        return plan_blocks(scenario), [each.payment.transaction.raw for each in planned]

    assert plan(smoke) == plan(smoke)
    assert plan(smoke) != plan(smoke.model_copy(update={"seed": smoke.seed + 1}))


def test_children_and_replacements_are_due_after_what_they_rest_on(smoke: Scenario) -> None:
    """Each parent is due before its child, and each original before its replacement."""
    stories = draw_stories(smoke, 60.0)
    seen: set[str] = set()
    planned = plan_traffic(smoke, stories, coins(sum(story.n_coins for story in stories)))
    for each in planned:
        assert each.parents <= seen
        assert each.replaces is None or each.replaces in seen
        seen.add(each.txid)
    assert {each.kind for each in planned} == {
        "payment",
        "replaced",
        "rbf",
        "chain",
        "cpfp_parent",
        "cpfp_child",
        "planted_low",
    }


def test_traffic_has_the_rate_and_the_feerates_asked_for(smoke: Scenario) -> None:
    """Over 200 s the rate is met within 5 %, and the median of plain payments within 10 %."""
    stories = draw_stories(smoke, 200.0)
    n_after_start = sum(due_s >= 0 for story in stories for due_s in story.due_s)
    assert n_after_start / 200 == pytest.approx(smoke.traffic.rate_per_s, rel=0.05)
    payments = sorted(story.feerates_sat_vb[0] for story in stories if story.kind == "payment")
    assert payments[len(payments) // 2] == pytest.approx(smoke.traffic.feerate_median_sat_vb, rel=0.1)
    assert payments[0] >= smoke.traffic.feerate_minimum_sat_vb


def test_only_blocks_that_follow_fast_are_planned_empty(smoke: Scenario) -> None:
    """With probability 1 all the pool's fast blocks are empty, and no others; the first is never."""
    pools = [
        pool.model_copy(
            update={"empty_after_fast": pool.empty_after_fast.model_copy(update={"probability": 1.0})}
        )
        if pool.empty_after_fast
        else pool
        for pool in smoke.pools
    ]
    planned = plan_blocks(smoke.model_copy(update={"pools": tuple(pools), "blocks": 400}))
    for number, block in enumerate(planned):
        habit = block.pool.empty_after_fast
        expected = number > 0 and habit is not None and block.interval_s < habit.within_s
        assert block.is_empty == expected
    assert sum(block.is_empty for block in planned) > 20


def test_the_demo_is_as_large_and_as_short_as_promised() -> None:
    """Five pools, one without rules and two with hostile tags; enough of everything in two minutes."""
    demo = load_scenario("demo")
    planned = plan_blocks(demo)
    duration_s = sum(block.interval_s for block in planned)
    n_tx = sum(len(story.due_s) for story in draw_stories(demo, duration_s))
    assert len(planned) >= 60
    assert n_tx >= 6_000
    assert duration_s < 120
    assert 8 <= sum(block.is_empty for block in planned) <= 12
    assert len(Counter(block.pool.slug for block in planned)) == len(demo.pools) == 5
    assert [pool.slug for pool in demo.pools if not pool.rules] == ["night-ferry"]
    hostile = b"".join(pool.tag_bytes for pool in demo.pools)
    for part in (b"<script>", b"<img", b"\x1b[", b"'", b'"', b"\x00", b"\xff"):
        assert part in hostile


def test_tags_may_hold_any_bytes(tmp_path: Path) -> None:
    """Escapes of TOML and hex both arrive as the bytes meant."""
    text = SMOKE.replace('tag = "/tin whistle/"', 'tag_hex = "00ff1b5b33316d"')
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    pools = load_scenario(path).pools
    assert pools[0].tag_bytes == b"\x00\xff\x1b[31m"
    assert pools[2].tag_bytes == b"/backdoor \x00 <b>\x1b[31m'\"/"
    assert tomllib.loads(text)["pools"][2]["tag"].encode() == pools[2].tag_bytes
