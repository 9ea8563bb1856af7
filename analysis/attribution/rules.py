"""Load the pool rules and entities of a folder of TOML files, and refuse rules that contradict each other.

data/pools/README.md explains the files. Every problem is a RulesError that names the file and the rule. Two
folders with the same rules and entities give the same hash; the order of files and tables, comments, notes,
links and sources do not change it.
"""

import datetime as dt
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from analysis.attribution.payout_scripts import script_of_address
from analysis.attribution.rule_files import (
    MIN_TAG_BYTES,
    SLUG_PATTERN,
    EntitiesFile,
    PoolFile,
    StrictModel,
    WrittenMaker,
    WrittenRule,
)
from analysis.errors import AddressError, RulesError

ENTITIES_FILE = "entities.toml"
RESERVED_SLUGS = ("unknown", "all")  # marts use these names for blocks of no pool and of all pools

POOLS = pa.schema(
    [
        pa.field("slug", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("link", pa.string()),
    ]
)
NAMES = pa.schema(
    [pa.field("name", pa.string(), nullable=False), pa.field("slug", pa.string(), nullable=False)]
)
ENTITIES = pa.schema(
    [
        pa.field("entity", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("slug", pa.string(), nullable=False),
        pa.field("from_date", pa.date32()),
        pa.field("to_date", pa.date32()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
    ]
)

MAKERS = pa.schema(
    [
        pa.field("pool", pa.string(), nullable=False),
        pa.field("maker", pa.string(), nullable=False),
        pa.field("tag", pa.binary(), nullable=False),
        pa.field("from_height", pa.int64(), nullable=False),
        pa.field("to_height", pa.int64(), nullable=False),
    ]
)

FileModel = TypeVar("FileModel", bound=StrictModel)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Holds one pattern that names a pool for blocks of heights from_height..to_height, both included.

    `method` is `tag` or `payout`: the bytes of a tag are searched for in the coinbase script; those of a
    payout are compared with whole output scripts.
    """

    rule_id: str
    pool: str
    method: Literal["tag", "payout"]
    pattern: bytes
    from_height: int
    to_height: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Holds a tag in a pool's coinbase that names who made the block template.

    The tag is valid from `from_height` to `to_height`, both included.
    """

    pool: str
    maker: str
    tag: bytes
    from_height: int
    to_height: int


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Holds one pool and its rules: `slug` is the name of its file, `name` is for people.

    `aliases` are the names that lists of other people use for the pool.
    """

    slug: str
    name: str
    aliases: tuple[str, ...]
    link: str
    rules: tuple[Rule, ...]
    makers: tuple[Maker, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Says that a pool (its slug) belongs to an entity from from_date to to_date, both included.

    None as a date means that there is no limit on that side.
    """

    slug: str
    from_date: dt.date | None
    to_date: dt.date | None
    source: str


@dataclass(frozen=True, kw_only=True)
class Entity:
    """Holds a group of pools and its kind: one owner, one block template, or another name of one pool."""

    entity: str
    name: str
    kind: Literal["owner", "proxy", "name"]
    members: tuple[Membership, ...]


@dataclass(frozen=True)
class RuleSet:
    """Holds all pools and entities of one folder of rules, sorted; makes tables and indexes of them."""

    pools: tuple[Pool, ...]
    entities: tuple[Entity, ...]

    @cached_property
    def hash(self) -> str:
        """Return the SHA-256, in hex, of all in these rules that can change a result.

        That is rules, makers, names, aliases and memberships; links, notes and sources do not count.
        """
        pools = [
            [p.slug, p.name, sorted(p.aliases), sorted(_decisive_part(r) for r in p.rules)]
            for p in self.pools
        ]
        members = [
            [e.entity, e.name, e.kind, m.slug, str(m.from_date), str(m.to_date)]
            for e in self.entities
            for m in e.members
        ]
        makers = sorted([m.pool, m.maker, m.tag.hex(), m.from_height, m.to_height] for m in self._makers())
        canonical = json.dumps([sorted(pools), sorted(members), makers], separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def tag_rules(self) -> dict[bytes, list[Rule]]:
        """Return all tag rules in lists, by the first MIN_TAG_BYTES bytes of their tag; no tag is shorter."""
        by_head: dict[bytes, list[Rule]] = {}
        for rule in self._rules("tag"):
            by_head.setdefault(rule.pattern[:MIN_TAG_BYTES], []).append(rule)
        return by_head

    @cached_property
    def payout_rules(self) -> dict[bytes, list[Rule]]:
        """Return the payout rules of each output script, by the script.

        The height bounds of the rules of one script never overlap.
        """
        by_script: dict[bytes, list[Rule]] = {}
        for rule in self._rules("payout"):
            by_script.setdefault(rule.pattern, []).append(rule)
        return by_script

    def _rules(self, method: str) -> Iterator[Rule]:
        return (rule for pool in self.pools for rule in pool.rules if rule.method == method)

    @cached_property
    def slug_of_name(self) -> dict[str, str]:
        """Return the slug of each pool by its name and each alias, case folded.

        It serves to read the labels that others publish.
        """
        return {name.casefold(): p.slug for p in self.pools for name in (p.name, *p.aliases)}

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables that marts read of these rules, by name."""
        return {
            "pools": self.pools_table(),
            "pool_names": self.names_table(),
            "entities": self.entities_table(),
            "pool_makers": self.makers_table(),
        }

    def pools_table(self) -> pa.Table:
        """Return a table with one row per pool: slug, name, link."""
        rows = [{"slug": p.slug, "name": p.name, "link": p.link or None} for p in self.pools]
        return pa.Table.from_pylist(rows, schema=POOLS)

    def names_table(self) -> pa.Table:
        """Return a table of each lower-case name, alias and slug of a pool beside the pool's slug.

        A text that is a name of one pool and the slug of another means the pool of that name.
        """
        slug_of = {p.slug: p.slug for p in self.pools}
        slug_of |= {name.lower(): p.slug for p in self.pools for name in (p.name, *p.aliases)}
        return pa.table({"name": list(slug_of), "slug": list(slug_of.values())}, schema=NAMES)

    def makers_table(self) -> pa.Table:
        """Return a table with one row per tag that names a maker of templates, with the columns of MAKERS."""
        return pa.Table.from_pylist([vars(maker) for maker in self._makers()], schema=MAKERS)

    def _makers(self) -> Iterator[Maker]:
        return (maker for pool in self.pools for maker in pool.makers)

    def entities_table(self) -> pa.Table:
        """Return an Arrow table with a row per member pool: entity, name, kind, slug, dates, source."""
        rows = [
            {"entity": e.entity, "name": e.name, "kind": e.kind} | vars(m)
            for e in self.entities
            for m in e.members
        ]
        return pa.Table.from_pylist(rows, schema=ENTITIES)


def default_rules_dir() -> Path:
    """Return the folder of this project's pool rules: that of the checkout, else of the installed package.

    Raises RulesError where neither folder exists.
    """
    package = Path(__file__).resolve().parents[1]
    checkout, installed = package.parent / "data" / "pools", package / "pools"
    for folder in (checkout, installed):
        if folder.is_dir():
            return folder
    raise RulesError(f"no pool rules in {checkout} or {installed}; name a folder of rules yourself")


def load_rules(path: Path) -> RuleSet:
    """Read the TOML files of a folder of pool rules, and return them as one RuleSet.

    Each <slug>.toml is a pool; entities.toml, if present, groups pools. Raises RulesError for a folder
    without rules, for a malformed file, and for rules that contradict each other.
    """
    files = sorted(path.glob("*.toml"))
    pools = tuple(_load_pool(file) for file in files if file.name != ENTITIES_FILE)
    if not pools:
        raise RulesError(f"{path} has no pool rules; name a folder with one <slug>.toml per pool")
    _refuse_shared_names(pools)
    _refuse_overlaps(
        ((rule.method, rule.pattern), rule.from_height, rule.to_height, f"{rule.pool}.toml {rule.rule_id!r}")
        for pool in pools
        for rule in pool.rules
    )
    _refuse_overlaps(
        ((maker.pool, maker.tag), maker.from_height, maker.to_height, f"{maker.pool}.toml {maker.maker!r}")
        for pool in pools
        for maker in pool.makers
    )
    entities_file = path / ENTITIES_FILE
    entities = _load_entities(entities_file, {p.slug for p in pools}) if entities_file.exists() else ()
    return RuleSet(pools=pools, entities=entities)


def _parse(file: Path, shape: type[FileModel]) -> FileModel:
    """Read a TOML file and return it as an object of the class `shape`, which checks it.

    Raise RulesError if the file cannot be read or does not fit.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RulesError(f"{file} cannot be read as TOML: {error}; correct it or its rights") from error
    try:
        return shape.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_describe(problem, content) for problem in error.errors())
        raise RulesError(
            f"{file}: {problems}; correct the entry (data/pools/README.md has the schema)"
        ) from error


def _describe(problem: Any, content: Any) -> str:
    """Return the text of one pydantic error in a TOML file: the keys that lead to it, its table, the fault.

    Items of a list are counted from 1.
    """
    way = " ".join(str(step + 1 if isinstance(step, int) else step) for step in problem["loc"])
    entry = ""
    for step in problem["loc"]:
        if isinstance(content, dict) and step not in content:
            break
        content = content[step]
        entry = f" {content}" if isinstance(content, dict) else entry
    return f"{way}{entry}: {problem['msg'].removeprefix('Value error, ')}"


def _load_pool(file: Path) -> Pool:
    """Read the TOML file of one pool and return the Pool, its rules sorted by id.

    Raises RulesError for a bad file.
    """
    slug = file.stem
    if slug in RESERVED_SLUGS or not re.fullmatch(SLUG_PATTERN, slug):
        raise RulesError(
            f"{file}: {slug!r} cannot be a slug; use a-z, 0-9 and single hyphens, not 'unknown' or 'all'"
        )
    entry = _parse(file, PoolFile)
    rules: list[Rule] = []
    for number, rule in sorted(enumerate(entry.rules, start=1), key=lambda pair: pair[1].from_height):
        try:
            rules.append(_rule(slug, rule, {earlier.rule_id for earlier in rules}))
        except AddressError as error:
            raise RulesError(f"{file}: rules {number}: {error}") from error
    rules.sort(key=lambda rule: rule.rule_id)
    return Pool(
        slug=slug,
        name=entry.name,
        aliases=tuple(entry.aliases),
        link=entry.link,
        rules=tuple(rules),
        makers=tuple(_maker(slug, maker) for maker in entry.makers),
    )


def _maker(slug: str, entry: WrittenMaker) -> Maker:
    """Convert a maker of block templates, as read from a pool's TOML file, to a Maker."""
    return Maker(
        pool=slug,
        maker=entry.name,
        tag=entry.tag_bytes,
        from_height=entry.from_height,
        to_height=entry.to_height,
    )


def _rule(slug: str, entry: WrittenRule, taken_ids: set[str]) -> Rule:
    """Convert a pool rule, as read from a TOML file, to a Rule.

    Its id is made of pool, method and pattern; @from_height is added if an earlier rule has the same id.
    """
    method: Literal["tag", "payout"]
    tag = entry.tag_bytes
    if tag is not None:
        method, pattern, written = "tag", tag, entry.tag or f"0x{entry.tag_hex}"
    elif entry.address is not None:
        method, pattern, written = "payout", script_of_address(entry.address), entry.address
    else:
        method, pattern, written = "payout", bytes.fromhex(entry.script_hex or ""), f"0x{entry.script_hex}"
    rule_id = f"{slug}:{method}:{written}"
    return Rule(
        rule_id=f"{rule_id}@{entry.from_height}" if rule_id in taken_ids else rule_id,
        pool=slug,
        method=method,
        pattern=pattern,
        from_height=entry.from_height,
        to_height=entry.to_height,
        source=entry.source,
    )


def _load_entities(file: Path, slugs: set[str]) -> tuple[Entity, ...]:
    """Read entities.toml and return its entities (groups of pools), sorted by their id.

    Raises RulesError for unknown pools, an id that is a slug or reserved, or overlapping memberships.
    """
    entities = []
    for entry in _parse(file, EntitiesFile).entities:
        if entry.entity in RESERVED_SLUGS:
            raise RulesError(
                f"{file}: {entry.entity!r} stands for blocks of no owner, or all; name the entity otherwise"
            )
        if entry.kind != "name" and entry.entity in slugs:
            raise RulesError(
                f"{file}: {entry.entity!r} is also the slug of a pool, and blocks of both would be added up; "
                "give the entity another id"
            )
        for member in entry.members:
            if member.pool not in slugs:
                raise RulesError(
                    f"{file}: {entry.entity!r} names pool {member.pool!r}, which has no {member.pool}.toml"
                )
        members = tuple(
            Membership(slug=m.pool, from_date=m.from_date, to_date=m.to_date, source=m.source)
            for m in sorted(entry.members, key=lambda m: (m.pool, m.from_date or dt.date.min))
        )
        entities.append(Entity(entity=entry.entity, name=entry.name, kind=entry.kind, members=members))
    _refuse_overlaps(
        (
            (e.kind, m.slug, e.entity if e.kind == "name" else ""),
            m.from_date or dt.date.min,
            m.to_date or dt.date.max,
            f"{file} {e.entity!r} ({e.kind}) of {m.slug!r}",
        )
        for e in entities
        for m in e.members
    )
    return tuple(sorted(entities, key=lambda entity: entity.entity))


def _refuse_shared_names(pools: Iterable[Pool]) -> None:
    """Raise RulesError where two pools have the same name or alias, whatever the case of its letters."""
    slug_of_name: dict[str, str] = {}
    for pool in pools:
        for name in (pool.name, *pool.aliases):
            other = slug_of_name.setdefault(name.casefold(), pool.slug)
            if other != pool.slug:
                raise RulesError(
                    f"{other}.toml and {pool.slug}.toml both have the name {name!r}; rename or merge them"
                )


def _refuse_overlaps(spans: Iterable[tuple[tuple[Any, ...], Any, Any, str]]) -> None:
    """Raise RulesError where two spans (of heights or dates) with the same key overlap.

    A span is its key, its first and last value, both included, and a text that names it in the error.
    """
    for (key, _, last, label), (next_key, first, _, next_label) in itertools.pairwise(
        sorted(spans, key=lambda span: span[:3])
    ):
        if key == next_key and first <= last:
            raise RulesError(
                f"{label} and {next_label} both apply from {first} on; "
                "remove one, or bound them so that they do not overlap"
            )


def _decisive_part(rule: Rule) -> list[Any]:
    """Return what can change a result in a pool rule: method, pattern in hex, and both height bounds."""
    return [rule.method, rule.pattern.hex(), rule.from_height, rule.to_height]
