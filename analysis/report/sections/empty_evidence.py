"""Makes the table of every empty block: what waited, and when our node had a template, as the block came."""

from analysis.report.data import Marts
from analysis.report.model import Table
from analysis.report.tables import MartColumn, RowHead, column, mart_table, text_column
from analysis.report.text import NOTHING, count, duration


def evidence_table(marts: Marts) -> Table:
    """Return the table of empty blocks, which starts folded; of many rows it has only the first ones."""
    return mart_table(
        "empty-evidence-table",
        "Every empty block",
        RowHead("Height", lambda row: count(row["height"])),
        [
            MartColumn("Pool", lambda row: marts.name(row["pool"]), kind="text"),
            MartColumn(
                "Parent's",
                lambda row: marts.name(row["parent_pool"]) if row["parent_pool"] else NOTHING,
                kind="text",
            ),
            text_column("evidence", "Evidence"),
            column("interval_s", "Interval", duration),
            column("header_interval_s", "By header", duration),
            column("n_mempool", "Waiting"),
            column("template_ready_s", "Our template", duration),
        ],
        marts.rows("empty_evidence"),
        mart="empty_evidence",
        n_records=marts.totals["empty_evidence"],
        note=(
            "Our template: the time from the parent's arrival until a node of ours had a template "
            "with transactions on it."
        ),
        is_folded=True,
    )
