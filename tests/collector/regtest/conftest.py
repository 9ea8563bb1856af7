"""Find a bitcoind for the tests of this folder, and start nodes of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.regtest import (
    Bitcoind,
    RegtestNode,
    Scenario,
    Truth,
    find_bitcoind,
    load_scenario,
    run_scenario,
)


@pytest.fixture(scope="session")
def bitcoind() -> Bitcoind:
    """Find the bitcoind of this machine; fetch one into the cache where there is none."""
    return find_bitcoind()


@pytest.fixture
def node(bitcoind: Bitcoind) -> Iterator[RegtestNode]:
    """Start a fresh node that is stopped after the test."""
    with RegtestNode(bitcoind) as running:
        yield running


@pytest.fixture(scope="session")
def smoke() -> Scenario:
    """Load the shortest of our scenarios."""
    return load_scenario("smoke")


@pytest.fixture(scope="session")
def played(
    bitcoind: Bitcoind, smoke: Scenario, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RegtestNode, Truth, Path]]:
    """Play the smoke scenario; return its node, its truth and the folder it wrote."""
    out = tmp_path_factory.mktemp("smoke")
    with RegtestNode(bitcoind) as running:
        yield running, run_scenario(smoke, running, out), out
