"""A planted world whose days can be added to a dataset one at a time, in any order."""

import os
import shutil
from collections.abc import Iterable, Mapping
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
        """Add the rows of these days to a dataset on the same disk, which is made where it is missing.

        Most files are links to those of `whole`, as a year needs much space: none may be changed in place.
        """
        added = list(days)
        for path in self.whole.iterdir():
            if path.is_file():
                dataset.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, dataset / path.name)
        arrived = {day: self._arrived(day) for day in added}
        for path in self.whole.rglob("*.parquet"):
            place = path.relative_to(self.whole)
            table = place.parts[1]
            if table in BY_HEIGHT:
                self._add_blocks(path, dataset / place.parent, arrived)
            elif table in ALWAYS or any(f"date={day}" in place.parts for day in added):
                (dataset / place).parent.mkdir(parents=True, exist_ok=True)
                (dataset / place).unlink(missing_ok=True)
                os.link(path, dataset / place)

    def _arrived(self, day: str) -> pa.Table:
        """Return the arrivals of blocks on a day."""
        files = self.whole.rglob(f"block_arrivals/date={day}/*.parquet")
        return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])

    def _add_blocks(self, source: Path, folder: Path, arrived: Mapping[str, pa.Table]) -> None:
        """Write the rows of one file that belong to blocks which arrived on some days, a file per day."""
        rows = pq.read_table(source, partitioning=None)
        reach = pc.min_max(rows["height"])
        for day, arrivals in arrived.items():
            inside = pc.and_(
                pc.greater_equal(arrivals["height"], reach["min"]),
                pc.less_equal(arrivals["height"], reach["max"]),
            )
            blocks = pc.unique(arrivals.filter(inside)["block_hash"])
            ours = rows.filter(pc.is_in(rows["block_hash"], value_set=blocks)) if len(blocks) else []
            if not len(ours):  # a long world has several files of a partition
                continue
            target = folder / f"{day}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            before = [pq.read_table(target, partitioning=None)] if target.exists() else []
            pq.write_table(pa.concat_tables([*before, ours]), target)
