"""Run the fuzz targets for a bounded number of inputs: arbitrary bytes, and seeds with a few changes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from bitcoin.core import CTransaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.codec.block import decode_block
from collector.codec.transaction import decode_transaction
from collector.mempool.sync import parse_event
from tests.fuzz import __main__ as command
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True), st.sampled_from(["set", "insert", "cut"]), st.binary(max_size=9)
    ),
    max_size=4,
)
BOUNDED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def edited(seed: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    """Return a seed after some edits; each edit has a relative position, a kind of change and new bytes."""
    out = bytearray(seed)
    for where, kind, content in edits:
        at = int(where * len(out))
        if kind == "set":
            out[at : at + len(content)] = content
        elif kind == "insert":
            out[at:at] = content
        else:
            del out[at : at + len(content)]
    return bytes(out)


NAMES = sorted(TARGETS.keys() - {"sealed"})  # which writes files, and so has a test of fewer examples


@pytest.mark.parametrize("name", NAMES)
@BOUNDED
@given(data=st.binary(max_size=600))
def test_arbitrary_bytes_break_nothing(name: str, data: bytes) -> None:
    """No target fails on arbitrary bytes."""
    TARGETS[name](data)


@pytest.mark.parametrize("name", NAMES)
@BOUNDED
@given(data=st.data(), edits=EDITS)
def test_changed_seeds_break_nothing(
    name: str, data: st.DataObject, edits: list[tuple[float, str, bytes]]
) -> None:
    """No target fails on a valid input with a few changes."""
    TARGETS[name](edited(data.draw(st.sampled_from(seeds(None)[name])), edits))


@settings(BOUNDED, max_examples=20)
@given(data=st.sampled_from(seeds(None)["sealed"]), edits=EDITS)
def test_changed_seeds_are_sealed(data: bytes, edits: list[tuple[float, str, bytes]]) -> None:
    """Every received message comes out in a Parquet file, as rows or as a reject, also if it is damaged."""
    TARGETS["sealed"](edited(data, edits))


# What a target's bytes are read with, and what it compares; a refusal ends a target without an error.
READERS: dict[str, list[Callable[[bytes], object]]] = {
    "transaction": [decode_transaction, CTransaction.deserialize],
    "block": [decode_block],
    "event": [lambda data: parse_event(data, 7, 9)],
}


@pytest.mark.parametrize("name", READERS)
def test_no_seed_is_refused(name: str) -> None:
    """A target that refuses everything would fail on nothing; the seeds are read by both sides of it."""
    for seed in seeds(None)[name]:
        assert all(read(seed) for read in READERS[name])


def test_no_real_bytes_are_refused(data_dir: Path) -> None:
    """Real blocks and transactions are read by both sides of their targets."""
    for name, readers in READERS.items():
        for example in seeds(data_dir)[name]:
            assert all(read(example) for read in readers)


def test_real_bytes_are_read(data_dir: Path) -> None:
    """No target fails on real blocks, or on the valid transactions of Bitcoin Core's test vectors."""
    for name, examples in seeds(data_dir).items():
        for example in examples:
            TARGETS[name](example)


def test_make_fuzz_runs_every_target() -> None:
    """The command names every target, also the one that goes through the journal and a sealed file."""
    assert set(command.NAMES) == TARGETS.keys()
