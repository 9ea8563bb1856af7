"""Name the pool that mined a block from the raw bytes of its coinbase, and keep every rule that matched.

Every rule whose height bounds hold the block is evaluated, and every match becomes a candidate. Payouts rank
before tags, because anybody can write a tag. Among payouts the larger amount ranks first, then the earlier
output; among tags the longer one, then the earlier position. Without a candidate the pool is unknown.

The bytes of a coinbase are searched and compared, never decoded, so none of them can raise an error.
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
    """A rule that matched a coinbase, and where.

    position: byte offset of the tag in the coinbase script, or index of the output.
    tag_length_bytes: None for a payout. value_sat: amount of the output; None for a tag.
    """

    pool: str
    rule_id: str
    method: Literal["payout", "tag"]
    position: int
    tag_length_bytes: int | None = None
    value_sat: int | None = None


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The pool of one coinbase: all candidates in order of rank, and the hash of the rules that gave them."""

    candidates: tuple[Candidate, ...]
    rules_hash: str

    @property
    def pool(self) -> str | None:
        """Slug of the pool of the first candidate; None where no rule matched."""
        return self.candidates[0].pool if self.candidates else None

    @property
    def rule_id(self) -> str | None:
        """Id of the rule of the first candidate, which decides; None where no rule matched."""
        return self.candidates[0].rule_id if self.candidates else None

    @property
    def method(self) -> Literal["payout", "tag"] | None:
        """Whether the deciding rule matched a payout or a tag; None where no rule matched."""
        return self.candidates[0].method if self.candidates else None

    @property
    def conflicts(self) -> tuple[Candidate, ...]:
        """The candidates that name another pool than the first one does."""
        return tuple(candidate for candidate in self.candidates if candidate.pool != self.pool)


def attribute(
    rules: RuleSet, *, height: int, coinbase_script: bytes, outputs: Sequence[tuple[int, bytes]]
) -> Attribution:
    """Find the pool of one coinbase; outputs are (value_sat, script) in the order of the transaction."""
    candidates = _candidates(rules, height, coinbase_script, outputs)
    return Attribution(candidates=tuple(candidates), rules_hash=rules.hash)


def match_candidates(rules: RuleSet, blocks: pa.Table) -> pa.Table:
    """Match many blocks: give a table with a row per candidate, rank 1 first; an unknown block has no row.

    blocks: block_hash binary, height int32, coinbase_script binary,
    coinbase_outputs list<struct<value_sat int64, script binary>>. Result: CANDIDATES, in the order
    of blocks.
    """
    batches = (
        _match_batch(rules, batch)
        for batch in blocks.select(
            ["block_hash", "height", "coinbase_script", "coinbase_outputs"]
        ).to_batches(max_chunksize=BATCH_ROWS)
    )
    return pa.Table.from_batches(batches, schema=CANDIDATES)


def _match_batch(rules: RuleSet, blocks: pa.RecordBatch) -> pa.RecordBatch:
    """Match one batch of blocks; the result has the columns of CANDIDATES."""
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
    """Give the outputs of each block as (value_sat, script) pairs; reading whole columns at once is fast."""
    flat = column.flatten()
    pairs = zip(flat.field("value_sat").to_pylist(), flat.field("script").to_pylist(), strict=True)
    for n_outputs in pc.list_value_length(column).to_pylist():
        yield [next(pairs) for _ in range(n_outputs or 0)]


def _candidates(
    rules: RuleSet, height: int, coinbase_script: bytes, outputs: Iterable[tuple[int, bytes]]
) -> list[Candidate]:
    """Find every rule that matches one coinbase, in order of rank; each rule appears once."""
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
