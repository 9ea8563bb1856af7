"""Compare the size of sealed rows with that of the same rows as compressed CSV."""

import csv
import gzip
import io
from typing import Any

from collector.dataset.open import Dataset
from collector.dataset.schema import Table


def bytes_per_row(dataset: Dataset, table: Table) -> dict[str, float]:
    """Compare the sealed files of a table with the same rows as CSV, hashes in hex, through gzip."""
    rows = dataset.read(table)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows.column_names)
    for row in rows.to_pylist():
        writer.writerow([plain(value) for value in row.values()])
    parquet = sum(path.stat().st_size for path in dataset.paths(table))
    zipped = len(gzip.compress(text.getvalue().encode(), 6))
    return {
        "parquet": parquet / len(rows),
        "csv_gz": zipped / len(rows),
        "ratio": parquet / zipped,
        "n_rows": len(rows),
    }


def plain(value: Any) -> Any:
    """Return a value in the form that it has in CSV."""
    if isinstance(value, bytes):
        return value[::-1].hex()
    if isinstance(value, list):
        return " ".join(str(plain(each)) for each in value)
    return value
