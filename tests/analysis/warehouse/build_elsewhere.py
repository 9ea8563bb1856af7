"""Build some marts with workers of Spark, in ranges and as a whole: DATASET POOLS DATABASE MASTER."""

import sys
from pathlib import Path

from analysis.engine import build
from analysis.warehouse.workers import open_workers

RANGED = ("block_order", "feerate_age_block", "mempool_clusters")
MARTS = (*RANGED, "confirmation_decile", "inclusion_sample")

if __name__ == "__main__":
    dataset, pools, database = map(Path, sys.argv[1:4])
    with open_workers(sys.argv[4]) as workers:
        build(dataset, pools, database, marts=MARTS, memory_gb=1.0, workers=workers)
