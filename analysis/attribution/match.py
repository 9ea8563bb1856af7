"""Name the pool that mined a block from the raw bytes of its coinbase, and keep every rule that matched.

Every rule whose height bounds include the block is tried, and every match becomes a candidate. Payouts rank
before tags, because anybody can write a tag. Among payouts the larger amount ranks first, then the earlier
output; among tags the longer one, then the earlier position. Without a candidate the pool is unknown.

The bytes of a coinbase are searched and compared, never decoded, so no bytes can raise an error.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from analysis.attribution.rule_files import MIN_TAG_BYTES
from analysis.attribution.rules import RuleSet

BATCH_ROWS = 10_000

CANDIDATES = pa.schema(
    [
        pa.field("block_hash", pa.binary(32), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("pool", pa.string(), nullable=False),
        pa.field("rule_id", pa.string(), nullable=False),
        pa.field("method", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("tag_length_bytes", pa.int32()),
        pa.field("value_sat", pa.int64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Holds one pool rule that matched a coinbase, the pool that it names, and the place where it matched.

    `position` is the byte offset of a tag in the coinbase script, or the index of a paid output.
    `tag_length_bytes` is None for a payout; `value_sat` is the amount of the output, None for a tag.
    """

    pool: str
    rule_id: str
    method: Literal["payout", "tag"]
    position: int
    tag_length_bytes: int | None = None
    value_sat: int | None = None


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Holds the verdict on one coinbase: every rule that matched, the best first, and the rule set's hash."""

    candidates: tuple[Candidate, ...]
    rules_hash: str

    @property
    def pool(self) -> str | None:
        """Return the slug of the pool that the best matching rule names; None where no rule matched."""
        return self.candidates[0].pool if self.candidates else None

    @property
    def rule_id(self) -> str | None:
        """Return the id of the best matching rule, which decides the pool; None where no rule matched."""
        return self.candidates[0].rule_id if self.candidates else None

    @property
    def method(self) -> Literal["payout", "tag"] | None:
        """Return whether the best matching rule matched a payout or a tag; None where no rule matched."""
        return self.candidates[0].method if self.candidates else None

    @property
    def conflicts(self) -> tuple[Candidate, ...]:
        """Return the matching rules that name another pool than the best one does."""
        return tuple(candidate for candidate in self.candidates if candidate.pool != self.pool)


def attribute(
    rules: RuleSet, *, height: int, coinbase_script: bytes, outputs: Sequence[tuple[int, bytes]]
) -> Attribution:
    """Match one coinbase with all pool rules and return all that match, the best first, as an Attribution.

    `outputs` are (value_sat, script) in the order of the transaction. The first candidate decides the pool;
    if no rule matches, there is no candidate and the pool is unknown.
    """
    candidates = _candidates(rules, height, coinbase_script, outputs)
    return Attribution(candidates=tuple(candidates), rules_hash=rules.hash)


def match_candidates(rules: RuleSet, blocks: pa.Table) -> pa.Table:
    """Match the coinbases of many blocks with all pool rules; return a table of the matches.

    It has a row per block and matching rule, in block order. The best match of a block has rank 1. A block
    that no rule matches has no row. `blocks` has the columns block_hash binary, height int32, coinbase_script
    binary and coinbase_outputs list<struct<value_sat int64, script binary>>; the result has those of
    CANDIDATES.
    """
    batches = (
        _match_batch(rules, batch)
        for batch in blocks.select(
            ["block_hash", "height", "coinbase_script", "coinbase_outputs"]
        ).to_batches(max_chunksize=BATCH_ROWS)
    )
    return pa.Table.from_batches(batches, schema=CANDIDATES)


def _match_batch(rules: RuleSet, blocks: pa.RecordBatch) -> pa.RecordBatch:
    """Match the coinbases of one Arrow batch of blocks with all pool rules; return a batch of the matches.

    It has a row per block and matching rule, with the columns of CANDIDATES: the block, the rank (1 is the
    best match), the rule and where it matched.
    """
    columns: dict[str, list[object]] = {name: [] for name in CANDIDATES.names}
    for block_hash, height, coinbase_script, outputs in zip(
        blocks["block_hash"].to_pylist(),
        blocks["height"].to_pylist(),
        blocks["coinbase_script"].to_pylist(),
        _outputs(blocks["coinbase_outputs"]),
        strict=True,
    ):
        for rank, candidate in enumerate(_candidates(rules, height, coinbase_script, outputs), start=1):
            columns["block_hash"].append(block_hash)
            columns["rank"].append(rank)
            for field in fields(candidate):
                columns[field.name].append(getattr(candidate, field.name))
    return pa.RecordBatch.from_pydict(columns, schema=CANDIDATES)


def _outputs(column: pa.Array) -> Iterator[list[tuple[int, bytes]]]:
    """Yield, for each block, the list of its coinbase outputs as (value_sat, script) pairs.

    `column` is the Arrow column of lists. Each of its child columns is converted at once, which is faster
    than block by block.
    """
    flat = column.flatten()
    pairs = zip(flat.field("value_sat").to_pylist(), flat.field("script").to_pylist(), strict=True)
    for n_outputs in pc.list_value_length(column).to_pylist():
        yield [next(pairs) for _ in range(n_outputs or 0)]


def _candidates(
    rules: RuleSet, height: int, coinbase_script: bytes, outputs: Iterable[tuple[int, bytes]]
) -> list[Candidate]:
    """Return every pool rule that matches one coinbase, the best first; each rule appears once.

    Payouts come before tags: payouts by falling amount, tags by falling length, each then by position.
    """
    payouts = [
        Candidate(pool=rule.pool, rule_id=rule.rule_id, method="payout", position=index, value_sat=value_sat)
        for index, (value_sat, script) in enumerate(outputs)
        for rule in rules.payout_rules.get(script, ())
        if rule.from_height <= height <= rule.to_height
    ]
    payouts.sort(key=lambda candidate: (-(candidate.value_sat or 0), candidate.position))
    tags = [
        Candidate(
            pool=rule.pool,
            rule_id=rule.rule_id,
            method="tag",
            position=position,
            tag_length_bytes=len(rule.pattern),
        )
        for position in range(len(coinbase_script))
        for rule in rules.tag_rules.get(coinbase_script[position : position + MIN_TAG_BYTES], ())
        if coinbase_script.startswith(rule.pattern, position) and rule.from_height <= height <= rule.to_height
    ]
    tags.sort(key=lambda candidate: (-(candidate.tag_length_bytes or 0), candidate.position))
    first: dict[str, Candidate] = {}
    for candidate in (*payouts, *tags):
        first.setdefault(candidate.rule_id, candidate)
    return list(first.values())
