"""Test that a chaos run draws its inputs from a seed: another seed or fault draws other inputs."""

import argparse

import pytest

from tests.functional.chaos.catalogue import FAULTS
from tests.functional.chaos.cli import command, seed_of


def test_no_two_faults_of_a_run_draw_the_same() -> None:
    """The same seed gives a fault the same inputs again; each fault and each seed has inputs of its own."""
    seeds = {(name, seed): fault.own_seed(seed) for name, fault in FAULTS.items() for seed in (1, 2)}
    assert len(set(seeds.values())) == len(seeds)
    assert all(FAULTS[name].own_seed(seed) == own for (name, seed), own in seeds.items())


def test_a_random_seed_is_another_each_time_and_can_be_given_again() -> None:
    """`random` stands for a new seed each time, and the report has the command that repeats the run."""
    drawn = {seed_of("random") for _ in range(5)}
    assert len(drawn) > 1
    assert seed_of("17") == 17
    arguments = argparse.Namespace(seed=drawn.pop(), jobs=1, scale=None, resume=False)
    assert f"SEED={arguments.seed} " in command(arguments)


def test_a_word_that_is_no_seed_is_refused() -> None:
    """A seed that is neither a number nor `random` is refused."""
    with pytest.raises(ValueError, match="invalid literal"):
        seed_of("monday")
