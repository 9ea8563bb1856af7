"""Measure how long each stage of the work takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class StageTimes:
    """Holds the seconds spent in each stage of the work, by the name of the stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time that the body of the `with` statement takes to the seconds of a stage."""
        begun_s = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begun_s

    def add(self, other: "StageTimes") -> None:
        """Add the seconds of another StageTimes to this one, stage by stage."""
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
