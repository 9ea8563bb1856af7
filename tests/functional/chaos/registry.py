"""The faults by name: what each does, in a sentence, and the function that plays it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.codec.rows import warm_up
from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.world import World, make_world

COINS_AT_LEAST = 1_500
Play = Callable[[World], Verdict]


class NotHereError(Exception):
    """This machine cannot play the fault; the message says what is missing."""


@dataclass(frozen=True)
class Fault:
    """One fault; `needs` are arguments of make_world; coins for a scale of 1.

    `usual_scale` is what `make chaos` plays: a fault that takes long is in full only when asked to be.
    """

    name: str
    sentence: str
    play: Play
    needs: dict[str, Any] = field(default_factory=dict)
    usual_scale: float = 1.0

    def own_seed(self, seed: int) -> int:
        """Return the seed of this fault in a run: no two faults of a run draw the same inputs."""
        return random.Random(f"{seed} {self.name}").getrandbits(31)  # noqa: S311 - repeatable, not secret

    def run(self, folder: Path, *, seed: int, scale: float) -> Verdict:
        """Play it in a world of its own and judge the dataset."""
        seed = self.own_seed(seed)
        needs = dict(self.needs)
        warm_up()  # else the first collectors would compile, each for itself, and some be killed over it
        needs["n_coins"] = round(needs["n_coins"] * max(scale, 0.1)) + COINS_AT_LEAST
        with make_world(folder, seed=seed, scale=scale, **needs) as world:
            return self.play(world)


FAULTS: dict[str, Fault] = {}


def fault(name: str, sentence: str, *, usual_scale: float = 1.0, **needs: Any) -> Callable[[Play], Play]:
    """Enter a function into FAULTS under a name."""

    def enter(play: Play) -> Play:
        FAULTS[name] = Fault(name, sentence, play, needs, usual_scale)
        return play

    return enter
