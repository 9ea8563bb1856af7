"""Read two forms of file that the authors of arXiv:1902.07549 publish: block sizes, and hashrate by pool."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector.dataset.spreadsheet import read_sheet
from collector.errors import DecodeError
from collector.external.kinds import Values, row_of
from collector.external.readers import check_size
from collector.log import counted

SIZE_COLUMNS: Final = {"height": "A", "label": "B", "size_bytes": "C", "n_tx": "D"}
MAX_BYTES: Final = 1 << 26
# After the empty column come sums over pools, and columns that repeat a pool.
LAST_COLUMN: Final = ""


def read_block_sizes(path: Path, chain: str = "main") -> Iterator[Values]:
    """Yield a row (height, label, size in bytes, number of transactions) per block of a pool's spreadsheet.

    Raises DecodeError if the file is no such spreadsheet.
    """
    del chain  # the paper is about the main chain alone
    check_size(path, MAX_BYTES)
    try:
        for number, cells in enumerate(read_sheet(path), start=1):
            texts = {ours: cells.get(letter, "") for ours, letter in SIZE_COLUMNS.items()}
            yield row_of(f"{path}, row {number}", texts, "sizes")
    except ValueError as error:
        raise DecodeError(f"{path} cannot be read as a spreadsheet: {error}; fetch it anew") from None


def read_hashrates(path: Path, chain: str = "main") -> Iterator[Values]:
    """Yield a row per pool and day with its hashrate, from a table with a line per day and a column per pool.

    An empty cell is a pool without a block on that day. Raises DecodeError for another kind of file.
    """
    del chain  # the paper is about the main chain alone
    check_size(path, MAX_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        header = next(rows, [])
        pools = header[1 : header.index(LAST_COLUMN)] if LAST_COLUMN in header else header[1:]
        for values in rows:
            where = f"{path}:{rows.line_num}"
            if len(values) != len(header):
                raise DecodeError(f"{where} has {counted(len(values), 'field')}, the header {len(header)}")
            day = values[0].removesuffix(" UTC")
            for pool, value in zip(pools, values[1:], strict=False):
                if value:
                    texts = {"day_at": day, "label": pool, "hashrate_hashes_per_s": value}
                    yield row_of(where, texts, "hashrate")
