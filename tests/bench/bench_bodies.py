"""Measure what raw bytes of transactions take in `mempool_bodies`: a row, and a day for each `keep_bodies`.

    python -m tests.bench.bench_bodies BLOCK [BLOCK ...] [--per-s RATE] [--raw-bytes MEAN] [--out FILE]

Each BLOCK is a file with one raw block, as the network carries it. Its transactions without the coinbase
become rows of `mempool_bodies` in a new dataset, which is compacted. So we learn how many bytes of a file a
raw byte takes. RATE transactions of MEAN bytes enter the mempool in a second; the defaults are those of
mainnet in March 2025, where that many were mined. `all` keeps every one. `lost` depends on how many leave
unconfirmed, so it is given for each hundredth of them.
"""

import argparse
import datetime as dt
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from collector.codec.block import parse_block
from collector.codec.transaction import Transaction
from collector.compaction.run import compact
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_BODIES
from collector.mempool.bodies import raw_of

DAY_S: Final = 86_400
FIRST_US: Final = 1_700_000_000_000_000


def main() -> None:
    """Print the figures and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("blocks", nargs="+", type=Path, help="files with one raw block each")
    parser.add_argument("--per-s", type=float, default=3.7, help="transactions that enter in a second")
    parser.add_argument("--out", type=Path, default=Path("bench-bodies.json"))
    parser.add_argument("--raw-bytes", type=float, default=783.0, help="mean size of a transaction")
    options = parser.parse_args()
    facts = measure(options.blocks, options.per_s * options.raw_bytes * DAY_S)
    options.out.write_text(json.dumps(facts, indent=2) + "\n")
    for name, value in facts.items():
        print(f"{name}: {value:,.3f}")


def measure(blocks: Sequence[Path], raw_bytes_per_day: float) -> dict[str, float]:
    """Return the bytes of a transaction and of its row, and the megabytes a day of each choice."""
    bodies = [body for path in blocks for body in parse_block(path.read_bytes()).block.transactions[1:]]
    with tempfile.TemporaryDirectory() as folder:
        n_bytes = stored_bytes(bodies, Path(folder))
    raw_bytes = sum(body.size_bytes for body in bodies)
    all_mb = raw_bytes_per_day * n_bytes / raw_bytes / 1e6
    return {
        "n_tx": len(bodies),
        "raw_bytes_per_tx": raw_bytes / len(bodies),
        "row_bytes_per_tx": n_bytes / len(bodies),
        "stored_per_raw_byte": n_bytes / raw_bytes,
        "all_mb_per_day": all_mb,
        "lost_mb_per_day_per_hundredth": all_mb / 100,
        "none_mb_per_day": 0.0,
    }


def stored_bytes(bodies: Sequence[Transaction], folder: Path) -> int:
    """Write the bodies as rows, compact them, and return the bytes of the files."""
    dataset = Dataset.open(folder / "dataset", "main", create=True)
    rows: list[dict[str, Any]] = [
        {
            "node": "bench",
            "session": "bench",
            "txid": body.txid,
            "kept_at": FIRST_US + 200_000 * number,
            "kept_because": "left",
            "raw": raw_of(body),
        }
        for number, body in enumerate(bodies)
    ]
    dataset.write(MEMPOOL_BODIES, rows, stem="bench")
    list(compact(dataset, today=dt.datetime.now(tz=dt.UTC).date()))
    return sum(path.stat().st_size for path in dataset.paths(MEMPOOL_BODIES))


if __name__ == "__main__":
    main()
