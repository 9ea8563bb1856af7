"""Fill the fees of stored blocks that lack them, once undo data or a node can tell them.

The blocks are read again from the files or the node, checked like any other, and written into a dataset of
their own beside the real one. From there every null of their stored rows is filled; no other value changes.
Each partition is replaced as compaction replaces it, so a reader sees the old rows or the new ones, and a
kill at any moment loses only work. Transactions are filled before blocks: a block whose fees are known has
transactions whose fees are known.
"""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.compute as pc

from collector.backfill.store import WorkResult
from collector.compaction.file_merge import merge
from collector.compaction.replacement import Replacements, open_replacements, sealed_files
from collector.dataset.footer import find_unreadable_file
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import SPAN_FOLDER
from collector.dataset.query import contract_rows, query_engine
from collector.dataset.schema import BLOCKS, HEIGHT_SPAN, TRANSACTIONS, Table
from collector.errors import DatasetError

Store = Callable[[Dataset], Iterable[WorkResult]]  # writes blocks with their fees into a dataset


def fill_fees(dataset: Dataset, store: Store) -> int:
    """Fill the missing fees of stored blocks, and return the number of blocks that got fees.

    `store` writes the same blocks with their fees into a temporary dataset, from which the values are taken.
    Raises DatasetError while a compaction is running; what is filled by then stays.
    """
    with (
        open_replacements(dataset) as replacements,
        query_engine(replacements.spill) as connection,
        tempfile.TemporaryDirectory(prefix="fees-", dir=replacements.work) as folder,
    ):
        with_fees = Dataset.open(Path(folder), dataset.chain, create=True)
        for _ in store(with_fees):
            pass
        rows = with_fees.read(BLOCKS).select(["height", "fees_sat"])
        heights = rows.filter(pc.is_valid(rows["fees_sat"]))["height"].to_pylist()
        spans = {height // HEIGHT_SPAN * HEIGHT_SPAN for height in heights}
        filler = _Filler(dataset, with_fees, connection, replacements)
        for table in (TRANSACTIONS, BLOCKS):
            for partition in _partitions(dataset, table, spans):
                filler.fill(table, partition)
    return len(heights)


def _partitions(dataset: Dataset, table: Table, spans: set[int]) -> list[Path]:
    """Return the partition folders of `table` whose first height is in `spans`, sorted."""
    folders = (path for path in (dataset.folder / table.name).glob("*") if path.is_dir())
    return sorted(
        path for path in folders if (match := SPAN_FOLDER.fullmatch(path.name)) and int(match[1]) in spans
    )


@dataclass(frozen=True, slots=True)
class _Filler:
    """Fills the missing values of a dataset's rows from the same rows of another dataset, `with_fees`."""

    dataset: Dataset
    with_fees: Dataset
    connection: duckdb.DuckDBPyConnection
    replacements: Replacements

    def fill(self, table: Table, folder: Path) -> None:
        """Fill nulls in a partition's files from the same rows in the dataset `with_fees`.

        The files that have such rows become one new file. Raises DatasetError when a file cannot be read.
        """
        theirs = contract_rows(table, self.with_fees.paths(table))
        keys = ", ".join(table.grain)
        sources = []
        for path in sealed_files(self.dataset, folder):
            query = f"SELECT count(*) FROM {contract_rows(table, [path])} SEMI JOIN {theirs} USING ({keys})"  # noqa: S608 - names are the contract's
            if self._count(query, path):
                sources.append(path)
        if not sources:
            return
        filled = ", ".join(
            f"coalesce(e.{column.name}, f.{column.name}) AS {column.name}"
            for column in table.columns
            if column.nullable
        )
        rows = f"""(
            SELECT e.* REPLACE ({filled})
            FROM {contract_rows(table, sources)} e LEFT JOIN {theirs} f USING ({keys})
        )"""  # noqa: S608 - names are the contract's
        self.replacements.replace(
            folder, sources, "fees", lambda target: merge(self.connection, table, sources, target, rows=rows)
        )
        self.replacements.remove_retired()

    def _count(self, query: str, path: Path) -> int:
        """Return the number that an SQL query over a file gives; DatasetError if the file cannot be read."""
        try:
            ((n_rows,),) = self.connection.execute(query).fetchall()
        except (duckdb.Error, UnicodeDecodeError) as error:
            raise find_unreadable_file([path]) or DatasetError(
                f"cannot read {path}: {str(error).splitlines()[0]}; nothing was changed here"
            ) from None
        return int(n_rows)
