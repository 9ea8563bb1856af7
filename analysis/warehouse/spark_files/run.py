"""Make every mart of a dataset on Spark with the SQL files beside this script.

usage: run.py DATASET OUT [POOLS]    (or: spark-submit run.py …)
"""

import sys
from pathlib import Path

from analysis.attribution.rules import default_rules_dir
from analysis.errors import AnalysisError
from analysis.warehouse.run import run
from analysis.warehouse.session import open_session


def main(dataset: Path, out: Path, pools: Path | None = None) -> None:
    """Make all marts of `dataset` as Parquet below `out`, on the session of spark-submit or a new one."""
    marts = run(open_session(), Path(__file__).parent, dataset, rules=pools or default_rules_dir(), out=out)
    print(f"{len(marts)} marts in {out / 'marts'}")  # noqa: T201 - what the script is asked for


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:  # noqa: PLR2004 - two or three arguments
        sys.exit(__doc__)
    try:
        main(*map(Path, sys.argv[1:]))
    except AnalysisError as error:
        sys.exit(f"run.py: {error}")
