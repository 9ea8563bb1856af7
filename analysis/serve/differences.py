"""List the transactions in which one block and our node's template differ, each with its reason.

The mart template_audit_block counts them. Its own query runs here for one block, up to the point where it
counts, so list and count cannot disagree.
"""

from functools import cache
from typing import Final

from analysis.catalog import load_catalog
from analysis.errors import CatalogError
from analysis.serve.results import Reader, Row

MART: Final = "template_audit_block"
FINAL_SELECT: Final = "\nselect\n    judged.block_hash"
# The query sees only this block: its cuts, its transactions.
ONE_BLOCK: Final = """with recursive

mempool_cuts as (
    from main.mempool_cuts where block_hash = $block_hash
),

stg_transactions as (
    from main.stg_transactions where height = $height and block_hash = $block_hash
),
"""
LISTED: Final = """
, template_choice as (
    from chosen order by from_age_s, node limit 1
),

differing as (
    select 'missing' as kind, verdict as reason, txid
    from judged_promises
    where choice_no = (select choice_no from template_choice) and verdict != 'matched'
    union all
    select 'extra' as kind, verdict as reason, txid
    from judged_extra
    where choice_no = (select choice_no from template_choice)
),

stays as (
    select
        txid,
        arg_max(entered_at, entered_at) as entered_at,
        arg_max(fee_sat, entered_at) as fee_sat,
        arg_max(vsize_vb, entered_at) as vsize_vb
    from mempool_residence
    where
        txid in (select txid from differing)
        and node = (select node from template_choice)
        and entered_at <= (select connected_at from template_choice)
    group by txid
)

select
    differing.kind,
    differing.reason,
    differing.txid,
    stays.entered_at,
    seconds_between(stays.entered_at, template_choice.connected_at) as waited_s,
    coalesce(stays.fee_sat, stg_transactions.fee_sat) as fee_sat,
    coalesce(stays.vsize_vb, stg_transactions.vsize_vb) as vsize_vb,
    coalesce(stays.fee_sat, stg_transactions.fee_sat) / coalesce(stays.vsize_vb, stg_transactions.vsize_vb)
        as feerate_sat_vb,
    template_choice.node,
    template_choice.taken_at,
    template_choice.age_s
from differing
cross join template_choice
left join stays using (txid)
left join stg_transactions using (txid)
order by differing.kind desc, differing.reason desc, feerate_sat_vb desc, differing.txid
limit 300
"""


def differences(reader: Reader, block_hash: bytes, height: int) -> list[Row] | None:
    """Return the transactions that a block lacks or has beyond the youngest template before it.

    Each row has `kind` (missing or extra), `reason` as in template_audit_block, and what is known of the
    transaction. At most 300 rows; empty without a template, None if the dataset is gone.
    """
    if not reader.rows(f"SELECT 1 AS one FROM {MART} WHERE block_hash = ? LIMIT 1", block_hash):  # noqa: S608 - our name
        return []
    for name, parameter in load_catalog().by_name[MART].parameters.items():
        reader.cursor.execute(f"SET VARIABLE {name} = ?", [parameter.value])
    return reader.raw_rows(_query(), block_hash=block_hash, height=height)


@cache
def _query() -> str:
    """Return the SQL that lists a block's differences, made from the mart's query up to where it counts."""
    sql = load_catalog().by_name[MART].sql
    counted, found, _ = sql.rpartition(FINAL_SELECT)
    if not found or "with recursive\n" not in counted:
        raise CatalogError(f"{MART} has another form; analysis/serve/differences.py must follow it")
    return counted.rstrip().replace("with recursive\n", ONE_BLOCK, 1) + LISTED
