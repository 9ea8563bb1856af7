"""Define a scenario: its pools, the intervals of its blocks and its transactions.

A scenario is a TOML file. Those in the folder beside this module are loaded by name. Every value is checked
before anything runs, and an error names the file and the key.
"""

import random
import tomllib
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from collector.errors import NoSuchScenario, RegtestError
from collector.regtest.mining import MAX_TAG_BYTES, RESERVED_WEIGHT_WU
from collector.regtest.scripts import payment_script

MIN_TAG_BYTES = 3
SHARE_TOLERANCE = 1e-6

Ratio = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=3600)]
Feerate = Annotated[float, Field(ge=1, le=10_000)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Weight = Annotated[int, Field(gt=RESERVED_WEIGHT_WU, le=3_990_000)]


class Section(BaseModel):
    """Is the base of all sections of a scenario file; refuses unknown keys, and text in place of a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Interval(Section):
    """Describes the time between blocks: at least `minimum_s`, on average `mean_s` seconds.

    The part above the minimum is drawn from an exponential distribution.
    """

    mean_s: Annotated[float, Field(gt=0, le=3600)]
    minimum_s: Seconds = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.minimum_s >= self.mean_s:
            raise ValueError(f"minimum_s {self.minimum_s} must be below mean_s {self.mean_s}")
        return self


class Traffic(Section):
    """Describes a scenario's transactions: their rate, their feerates, and how many are no plain payments.

    A feerate is `feerate_minimum` plus a lognormal part, with the median `feerate_median`. The `*_share`
    count arrivals: a replacement or a CPFP package is one arrival of two transactions, a chain of several.
    """

    rate_per_s: Annotated[float, Field(gt=0, le=10_000)]
    initial: Annotated[int, Field(ge=0, le=100_000)] = 0  # sent before the first block's interval begins
    feerate_minimum_sat_vb: Feerate = 3.0
    feerate_median_sat_vb: Feerate = 12.0
    feerate_sigma: Annotated[float, Field(ge=0, le=3)] = 0.8
    replacement_share: Ratio = 0.0
    replacement_delay_s: Seconds = 1.0
    cpfp_share: Ratio = 0.0
    chain_share: Ratio = 0.0
    planted_low_share: Ratio = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.feerate_minimum_sat_vb >= self.feerate_median_sat_vb:
            raise ValueError(
                f"feerate_minimum_sat_vb {self.feerate_minimum_sat_vb} must be below "
                f"feerate_median_sat_vb {self.feerate_median_sat_vb}"
            )
        special = self.replacement_share + self.cpfp_share + self.chain_share + self.planted_low_share
        if special > 1:
            raise ValueError(f"the shares of special arrivals add up to {special:g}, which is above 1")
        return self


class EmptyAfterFast(Section):
    """Makes a pool mine an empty block with `probability` after a fast one.

    A block is fast if it came less than `within_s` after the one before it.
    """

    within_s: Annotated[float, Field(gt=0, le=3600)]
    probability: Ratio


class Pool(Section):
    """Describes one pool of a scenario: who it is, how much it mines, and what it does with a template.

    `rules` says which rules are written for the pool; empty means a pool that no rule identifies. `refuses`
    names what it never mines: `anchor` is a transaction with a P2A output.
    """

    slug: Slug
    name: Annotated[str, StringConstraints(min_length=1)]
    share: Annotated[float, Field(gt=0, le=1)]
    policy: Literal["feerate", "empty_after_fast", "out_of_band", "first_come"]
    tag: str | None = None
    tag_hex: str | None = None
    payout: Literal["p2wpkh", "p2tr", "p2pkh", "p2sh", "p2wsh"] = "p2wpkh"
    rules: tuple[Literal["tag", "payout"], ...] = Field(default=("tag", "payout"), strict=False)
    block_weight_wu: Weight | None = None
    template_age_s: Seconds = 0.0
    empty_after_fast: EmptyAfterFast | None = None
    refuses: tuple[Literal["anchor"], ...] = Field(default=(), strict=False)

    @property
    def tag_bytes(self) -> bytes:
        """Return the tag: the bytes that the pool writes into its coinbases."""
        return self.tag.encode() if self.tag is not None else bytes.fromhex(self.tag_hex or "")

    @property
    def payout_script(self) -> bytes:
        """Return the output script of the pool's coinbases, which is made from its slug."""
        return payment_script(self.payout, f"payout of {self.slug}".encode())

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tag is None) == (self.tag_hex is None):
            raise ValueError("needs exactly one of tag and tag_hex")
        if not MIN_TAG_BYTES <= len(self.tag_bytes) <= MAX_TAG_BYTES:
            raise ValueError(
                f"the tag has {len(self.tag_bytes)} bytes; give it {MIN_TAG_BYTES} to {MAX_TAG_BYTES}"
            )
        if (self.policy == "empty_after_fast") != (self.empty_after_fast is not None):
            raise ValueError("the section empty_after_fast goes with policy 'empty_after_fast' and no other")
        return self


class Owner(Section):
    """Describes a company that owns several of the pools."""

    slug: Slug
    name: Annotated[str, StringConstraints(min_length=1)]
    pools: Annotated[tuple[Slug, ...], Field(min_length=1, strict=False)]


class Fork(Section):
    """Describes a stale branch of `depth` blocks, all of one pool.

    It loses to block number `at_block` and the blocks after that.
    """

    at_block: Annotated[int, Field(ge=1)]  # the first block is 1
    depth: Annotated[int, Field(ge=1, le=20)]
    pool: Slug
    is_empty: bool = False


class Prices(Section):
    """Describes an invented exchange with daily prices.

    They are a random walk that ends on the day on which the scenario ends.
    """

    source: Slug
    days: Annotated[int, Field(ge=1, le=1_000)]
    first_usd: Annotated[float, Field(gt=0, le=1e9)]
    daily_sigma: Annotated[float, Field(ge=0, le=1)] = 0.0  # of the logarithm, from one day to the next


class Labels(Section):
    """Describes an invented party that names the pool of each block; some names are wrong or missing."""

    source: Slug
    wrong_share: Ratio = 0.0
    missing_share: Ratio = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.wrong_share + self.missing_share > 1:
            raise ValueError(
                f"wrong_share and missing_share add up to {self.wrong_share + self.missing_share:g}, "
                "which is above 1"
            )
        return self


class Scenario(Section):
    """Holds a whole scenario; the same file always plans the same blocks and transactions."""

    name: Slug
    seed: int
    blocks: Annotated[int, Field(ge=1, le=100_000)]
    block_weight_wu: Weight = 3_990_000
    interval: Interval
    traffic: Traffic
    pools: Annotated[tuple[Pool, ...], Field(min_length=1, strict=False)]
    owners: Annotated[tuple[Owner, ...], Field(strict=False)] = ()
    forks: Annotated[tuple[Fork, ...], Field(strict=False)] = ()
    prices: Prices | None = None
    labels: Labels | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        total = sum(pool.share for pool in self.pools)
        if abs(total - 1) > SHARE_TOLERANCE:
            raise ValueError(f"the shares of the pools add up to {total:g}; make it 1")
        for key in ("slug", "name", "tag_bytes"):
            twice = [value for value, n in Counter(getattr(p, key) for p in self.pools).items() if n > 1]
            if twice:
                raise ValueError(f"two pools have the same {key.removesuffix('_bytes')} {twice[0]!r}")
        return self

    @model_validator(mode="after")
    def _check_owners(self) -> Self:
        known = {pool.slug for pool in self.pools if pool.rules}
        for owner in self.owners:
            foreign = sorted(set(owner.pools) - known)
            if foreign:
                raise ValueError(
                    f"owner {owner.slug} lists a pool that does not exist or has no rules: {foreign[0]!r}"
                )
        return self

    @model_validator(mode="after")
    def _check_forks(self) -> Self:
        for fork in self.forks:
            if fork.pool not in {pool.slug for pool in self.pools}:
                raise ValueError(
                    f"the fork at block {fork.at_block} names a pool that does not exist: {fork.pool!r}"
                )
            if fork.at_block + fork.depth > self.blocks:
                raise ValueError(
                    f"the fork at block {fork.at_block} cannot lose: {self.blocks} blocks are "
                    f"too few to outgrow its depth of {fork.depth}"
                )
        if len({fork.at_block for fork in self.forks}) < len(self.forks):
            raise ValueError("two forks have the same at_block")
        return self

    def block_weight_of(self, pool: Pool) -> int:
        """Return the weight limit of a pool's blocks: its own, or else the scenario's."""
        return pool.block_weight_wu or self.block_weight_wu


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBlock:
    """Says which pool finds a block, how many seconds after the one before, and whether it must be empty."""

    pool: Pool
    interval_s: float
    is_empty: bool


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Return a scenario, by the name of one that comes with the package, or by the path of a file.

    Raises RegtestError that names the file, the key and what is wrong with it.
    """
    given = Path(name_or_path)
    is_path = given.suffix == ".toml" or given.is_file()
    path: Path | Traversable = given if is_path else _shipped() / f"{name_or_path}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NoSuchScenario(
            f"no scenario {str(name_or_path)!r}; there are {', '.join(scenario_names())}, "
            "or give the path of a TOML file"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RegtestError(
            f"{path} cannot be read as TOML: {error}; correct the file or its permissions"
        ) from error
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{_key(each['loc'])}: {each['msg'].removeprefix('Value error, ')}" for each in error.errors()
        )
        raise RegtestError(f"{path}: {problems}") from error


def scenario_names() -> list[str]:
    """Return the names of the scenarios that come with the package."""
    names = (each.name for each in _shipped().iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def plan_blocks(scenario: Scenario) -> list[PlannedBlock]:
    """Return the pool, interval and emptiness of every block, drawn from the scenario's seed."""
    draw = random.Random(f"{scenario.seed} blocks")  # noqa: S311 - a scenario wants repeatable chance
    shares = [pool.share for pool in scenario.pools]
    rest_s = scenario.interval.mean_s - scenario.interval.minimum_s
    planned: list[PlannedBlock] = []
    for _ in range(scenario.blocks):
        interval_s = scenario.interval.minimum_s + draw.expovariate(1 / rest_s)
        (pool,) = draw.choices(scenario.pools, shares)
        luck = draw.random()
        habit = pool.empty_after_fast if planned else None
        is_empty = habit is not None and interval_s < habit.within_s and luck < habit.probability
        planned.append(PlannedBlock(pool=pool, interval_s=interval_s, is_empty=is_empty))
    return planned


def _shipped() -> Traversable:
    return files("collector.regtest") / "scenarios"


def _key(steps: tuple[int | str, ...]) -> str:
    """Return where a value is in the file as text, e.g. `pools 2.share`."""
    way = ""
    for step in steps:
        way += f" {step + 1}" if isinstance(step, int) else f".{step}" if way else step
    return way or "scenario"
