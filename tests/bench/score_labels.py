"""Score our pool rules against labels that others published, over blocks whose coinbases are at hand.

    python -m tests.bench.score_labels BLOCKS [BLOCKS ...] [--labels FILE ...]

BLOCKS are Blockchair's daily files of blocks (TSV); their guesses are the first set of labels. FILE is a list
of height and label (CSV or Parquet), as `pool-collector import labels` reads it. The rules see the bytes of
the coinbase script alone. The first table is the mart label_summary; the second has each block that one side
names otherwise than the other, with the end of its coinbase as text, which is the evidence.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from analysis.attribution.rules import default_rules_dir
from analysis.database import connect
from analysis.engine import build
from collector.dataset.open import Dataset
from collector.external.imported_rows import Origin, read_import, store_import

SUMMARY: Final = """
    SELECT source, block_count AS blocks, agree_count AS agree, disagree_count AS disagree,
        only_here_count AS only_here, only_there_count AS only_there, neither_count AS neither,
        unmapped_count AS unmapped, round(agree_low_ratio, 4) AS agree_low
    FROM label_summary ORDER BY source
"""
DIFFERENCES: Final = """
    SELECT l.source, l.height, l.label, coalesce(p.pool, 'unknown') AS ours,
        printable(f.coinbase_script[-24:]) AS coinbase_ends
    FROM stg_external_pool_labels l
    JOIN block_facts f USING (height) JOIN block_pool p USING (block_hash)
    JOIN label_agreement a
        ON a.source = l.source AND a.kind = 'labels' AND a.label = l.label AND a.pool = p.pool
    WHERE a.verdict IN ('disagree', 'only_here', 'only_there', 'unmapped') AND f.coinbase_script IS NOT NULL
    ORDER BY l.source, l.height
"""
NOWHERE: Final = "https://example.org/local-file"


def score(blocks: Sequence[Path], labels: Sequence[Path], folder: Path) -> Path:
    """Import the files into a dataset below `folder`, build what compares them, and return the database."""
    dataset = Dataset.open(folder / "dataset", "main", create=True)
    given = [("blocks", path, "blockchair") for path in blocks]
    given += [("labels", path, f"labels-{number}") for number, path in enumerate(labels, 1)]
    for kind, path, source in given:
        store_import(dataset, read_import(kind, path, Origin(source, "not asked", NOWHERE)))
    return build(
        dataset.root, default_rules_dir(), folder / "labels.duckdb", marts=("label_summary",)
    ).database


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("blocks", nargs="+", type=Path, help="Blockchair's files of blocks")
    parser.add_argument("--labels", nargs="*", type=Path, default=[], help="lists of height and label")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        connect(score(options.blocks, options.labels, Path(folder)), read_only=True) as connection,
    ):
        for query in (SUMMARY, DIFFERENCES):
            show(connection.sql(query))


def show(rows: duckdb.DuckDBPyRelation) -> None:
    """Print rows as a table in Markdown."""
    print(f"| {' | '.join(rows.columns)} |\n|{' --- |' * len(rows.columns)}")
    for row in rows.fetchall():
        print(f"| {' | '.join(map(str, row))} |")
    print()


if __name__ == "__main__":
    main()
