"""Test header times against published arrivals: one block per difficulty period, whose header is public."""

import base64
import csv
import datetime as dt
import struct
from pathlib import Path

import numpy as np
import pytest

from analysis.attribution.rules import default_rules_dir
from analysis.database import open_database
from analysis.engine import build
from collector.dataset.open import Dataset
from collector.external.imported_rows import Origin, read_import, store_import

pytestmark = pytest.mark.data
HEADER_BYTES = 80
TIME_OFFSET = 68
BLOCKS_PER_PERIOD = 2016
ADDRESS = "https://example.org"


def header_times(data_dir: Path) -> dict[int, int]:
    """Read the header time, in seconds, of the block at each multiple of 2016 from a file of checkpoints."""
    lines = (data_dir / "bitcoinj" / "production.checkpoints.txt").read_text().splitlines()[3:]
    headers = [base64.b64decode(line + "=" * (-len(line) % 4))[-HEADER_BYTES:] for line in lines]
    return {
        number * BLOCKS_PER_PERIOD: struct.unpack_from("<I", header, TIME_OFFSET)[0]
        for number, header in enumerate(headers, start=1)
    }


def test_header_times_are_compared_with_arrivals(data_dir: Path, tmp_path: Path) -> None:
    """The header clock of each list equals the differences at the heights with a public header."""
    dataset = Dataset.open(tmp_path / "dataset", "main", create=True)
    times, lags = header_times(data_dir), {}
    for path in sorted((data_dir / "block-arrival-times").glob("*.csv")):
        with path.open() as file:
            rows = [row for row in csv.reader(file) if int(row[0]) in times]
        (tmp_path / path.name).write_text("".join(",".join(row) + "\n" for row in rows))
        store_import(
            dataset, read_import("arrivals", tmp_path / path.name, Origin(path.stem, "CC0", ADDRESS))
        )
        lags[path.stem] = [times[int(height)] - int(ms) / 1000 for height, _, ms in rows]
    lines = [f"{h},unknown,{dt.datetime.fromtimestamp(s, dt.UTC).isoformat()}" for h, s in times.items()]
    (tmp_path / "headers.csv").write_text("\n".join(["height,label,date", *lines]) + "\n")
    store_import(dataset, read_import("labels", tmp_path / "headers.csv", Origin("headers", "-", ADDRESS)))

    result = build(tmp_path / "dataset", default_rules_dir(), tmp_path / "a.duckdb", marts=["header_clock"])

    assert [check.name for check in result.failed_checks] == []
    with open_database(result.database) as connection:
        rows = connection.execute(
            "SELECT clock, block_count, header_lag_median_s, ahead_count, told_by FROM header_clock"
            " WHERE pool = 'all' ORDER BY clock"
        ).fetchall()
    assert rows == [
        (clock, len(found), np.median(found), sum(lag > 0 for lag in found), ["headers"])
        for clock, found in sorted(lags.items())
    ]
    assert sum(map(len, lags.values())) > 40
    assert all(abs(lag) < 7200 for found in lags.values() for lag in found)  # the rule of consensus
