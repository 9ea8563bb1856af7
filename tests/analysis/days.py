"""A planted world whose days can be added to a dataset one at a time, in any order."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

BY_HEIGHT = ("blocks", "transactions")
ALWAYS = ("nodes", "coverage", "external_prices")


class PlantedDays:
    """Holds a planted world in `whole`, with the pool rules in `pools`; `days` are its dates, in order."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.whole = write_world(simulate(size), folder / "planted")
        self.pools = folder / "planted" / "pools"
        arrivals = list(self.whole.rglob("block_arrivals/date=*"))
        self.days = sorted(path.name.removeprefix("date=") for path in arrivals)

    def add(self, dataset: Path, days: Iterable[str]) -> None:
        """Add the rows of these days to a dataset, which is made where it is missing."""
        for path in self.whole.iterdir():
            if path.is_file():
                dataset.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, dataset / path.name)
        for day in days:
            for path in self.whole.rglob("*.parquet"):
                place = path.relative_to(self.whole)
                table = place.parts[1]
                if table in BY_HEIGHT:
                    self._add_blocks(path, dataset / place.with_name(f"{day}.parquet"), day)
                elif table in ALWAYS or f"date={day}" in place.parts:
                    (dataset / place).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, dataset / place)

    def _add_blocks(self, source: Path, target: Path, day: str) -> None:
        """Write the rows of one file that belong to blocks which arrived on a day."""
        files = self.whole.rglob(f"block_arrivals/date={day}/*.parquet")
        arrived = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
        rows = pq.read_table(source, partitioning=None)
        blocks = pc.unique(arrived["block_hash"])
        ours = rows.filter(pc.is_in(rows["block_hash"], value_set=blocks))
        if not len(ours):  # a long world has several files of a partition
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        before = [pq.read_table(target, partitioning=None)] if target.exists() else []
        pq.write_table(pa.concat_tables([*before, ours]), target)
