"""Which rows of which marts the sections show, beside the few that `data` reads by name.

All columns of a mart are read, because a table's CSV has them all. A read has at most `MAX_ROWS` rows.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

MAX_ROWS: Final = 20_000


class Read(NamedTuple):
    """Rows of one mart in one order."""

    mart: str
    order: str
    where: str = "true"


def _whole(*marts: tuple[str, str]) -> dict[str, Read]:
    """Read marts as a whole; each is named with its order."""
    return {mart: Read(mart, order) for mart, order in marts}


_OF_THE_NETWORK: Final = "grouped_by = 'network'"
_PER_POOL: Final = "grouped_by = 'pool'"
_OF_POOLS: Final = "grouped_by = 'pool' AND period_kind = 'all'"
_BOTH: Final = "grouped_by IN ('network', 'pool')"
_GROUPED_ANYHOW: Final = "grouped_by != 'network'"
_OVER_ALL: Final = f"{_GROUPED_ANYHOW} AND period_kind = 'all'"
_GROUPED: Final = "grouped_by, owner"

READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "concentration_index": Read(
            "concentration_index",
            "grouped_by, period_kind, first_height",
            "grouped_by = 'pool' OR period_kind = 'all'",
        ),
        "owner_share": Read("owner_share", "grouped_by, is_unknown, position, owner", "period_kind = 'all'"),
        "owner_share_epoch": Read(
            "owner_share",
            "first_height, is_unknown, position, owner",
            "grouped_by = 'pool' AND period_kind = 'epoch'",
        ),
        "share_change": Read("share_change", "period_kind, first_height", "grouped_by = 'pool'"),
        "hashrate": Read("hashrate", "period_kind, first_height", _OF_THE_NETWORK),
        "hashrate_pool": Read("hashrate", "is_unknown, block_count DESC, owner", _OF_POOLS),
        "hashrate_group": Read("hashrate", "grouped_by, is_unknown, block_count DESC, owner", _OVER_ALL),
        "hashrate_growth": Read("hashrate_growth", _GROUPED, _BOTH),
        "hashrate_growth_group": Read("hashrate_growth", _GROUPED, _GROUPED_ANYHOW),
        "hashrate_segment": Read("hashrate_segment", f"{_GROUPED}, segment", _BOTH),
        "revenue": Read("revenue", "period_kind, first_height", _OF_THE_NETWORK),
        "revenue_pool": Read("revenue", "is_unknown, revenue_sat DESC, owner", _OF_POOLS),
        "revenue_group": Read("revenue", "grouped_by, is_unknown, revenue_sat DESC, owner", _OVER_ALL),
        "revenue_growth": Read("revenue_growth", f"{_GROUPED}, metric", _BOTH),
        "revenue_growth_group": Read("revenue_growth", f"{_GROUPED}, metric", _GROUPED_ANYHOW),
        "empty_rate": Read("empty_rate", "period_kind, first_height", _OF_THE_NETWORK),
        "empty_rate_group": Read("empty_rate", "grouped_by, is_unknown, n_blocks DESC, owner", _OVER_ALL),
        "empty_timing": Read("empty_timing", "owner, clock", _PER_POOL),
        "empty_timing_group": Read("empty_timing", "grouped_by, owner, clock"),
        "empty_hazard": Read("empty_hazard", "owner, clock, from_s", _PER_POOL),
        "empty_predecessors": Read("empty_predecessors", "owner", _PER_POOL),
        "empty_predecessors_group": Read("empty_predecessors", _GROUPED),
        "out_of_band_candidates": Read(
            "out_of_band_candidates", "package_feerate_sat_vb / margin_sat_vb, block_hash, txid, node"
        ),
        **_whole(
            ("pool_life", "first_height, pool"),
            ("pool_rename", "first_height, pool, other"),
            ("revenue_threshold", "unit DESC"),
            ("halving_effect", "halving_day, metric"),
            ("empty_classes", "pool"),
            ("empty_evidence", "height, block_hash"),
            ("feerate_age", "pool, feerate_kind, age_s"),
            ("feerate_claims", "claim, feerate_kind, age_s"),
            ("inclusion_factors", "pool, factor"),
            ("fee_capture", "pool"),
            ("template_audit", "pool, from_age_s"),
            ("out_of_band", "pool"),
            ("confirmation_decile", "decile"),
            ("confirmation_delay", "decile, at_s"),
            ("user_day", "node, day"),
            ("stale_rate", "pool"),
            ("stale_branches", "from_height, first_hash"),
            ("reorg_depth", "depth"),
            ("node_propagation", "kind, node"),
            ("attribution_method", "period_kind, first_height, method"),
            ("attribution_conflict", "block_count DESC, pool, other, method, other_method"),
            ("attribution_rule", "decided_count DESC, match_count DESC, rule_id"),
            ("label_summary", "source, kind"),
            ("label_agreement", "source, kind, block_count DESC, label, pool"),
        ),
    }
)
