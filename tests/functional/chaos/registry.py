"""Register the faults by name: what each does, in a sentence, and the function that plays it."""

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
    """Describes one fault; `needs` are arguments of `make_world`, its `n_coins` for a scale of 1.

    `usual_scale` is the scale in `make chaos`; a fault that takes long is played in full only on request.
    """

    name: str
    sentence: str
    play: Play
    needs: dict[str, Any] = field(default_factory=dict)
    usual_scale: float = 1.0

    def own_seed(self, seed: int) -> int:
        """Return this fault's seed in a run with the given seed; no two faults draw the same inputs."""
        return random.Random(f"{seed} {self.name}").getrandbits(31)  # noqa: S311 - repeatable, not secret

    def run(self, folder: Path, *, seed: int, scale: float) -> Verdict:
        """Play the fault in a world of its own and judge the dataset."""
        seed = self.own_seed(seed)
        needs = dict(self.needs)
        warm_up()  # else the first collectors would compile, each for itself, and some be killed over it
        needs["n_coins"] = round(needs["n_coins"] * max(scale, 0.1)) + COINS_AT_LEAST
        with make_world(folder, seed=seed, scale=scale, **needs) as world:
            return self.play(world)


FAULTS: dict[str, Fault] = {}


def fault(name: str, sentence: str, *, usual_scale: float = 1.0, **needs: Any) -> Callable[[Play], Play]:
    """Return a decorator that registers a function as a fault in FAULTS."""

    def enter(play: Play) -> Play:
        FAULTS[name] = Fault(name, sentence, play, needs, usual_scale)
        return play

    return enter
