"""Test that undo data is read as Bitcoin Core writes it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.codec.feerates import UNKNOWN
from collector.codec.format import MAX_MONEY_SAT
from collector.codec.scripts import UNKNOWN_TYPE
from collector.codec.undo import decompress_amount, read_script_type, spent_outputs, varint
from collector.codec.walk import walk_blocks
from collector.dataset.schema import OUTPUT_TYPES
from tests.collector.codec import made_blocks as made
from tests.collector.codec.made_undo import compress_amount, compress_script, undo_of, write_varint
from tests.collector.codec.plain_scripts import plain_output_type


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, (1 << 62) - 1), st.binary(max_size=3))
def test_a_varint_is_read_as_it_was_written(value: int, rest: bytes) -> None:
    """A varint gives its number and the position behind it; one that is cut off is refused."""
    written = write_varint(value)
    data = np.frombuffer(written + rest + b"\x00", np.uint8)

    assert varint(data, 0, len(written) + len(rest)) == (value, len(written))
    assert varint(data, 0, len(written) - 1)[1] == -1


# The examples in Bitcoin Core's src/serialize.h, and the pairs of its src/test/compress_tests.cpp.
CORE_VARINTS = {
    0: "00",
    1: "01",
    127: "7f",
    128: "8000",
    255: "807f",
    256: "8100",
    16_383: "fe7f",
    16_384: "ff00",
    16_511: "ff7f",
    65_535: "82fe7f",
    1 << 32: "8efefeff00",
}
CORE_AMOUNTS = {0: 0, 1: 1, 10**6: 0x7, 10**8: 0x9, 50 * 10**8: 0x32, 21 * 10**14: 0x1406F40}


def test_varints_and_amounts_are_those_of_the_node() -> None:
    """The node's own examples are read and written as it does."""
    for value, written in CORE_VARINTS.items():
        data = np.frombuffer(bytes.fromhex(written), np.uint8)
        assert varint(data, 0, len(data)) == (value, len(data))
        assert write_varint(value).hex() == written
    for value_sat, compressed in CORE_AMOUNTS.items():
        assert decompress_amount(compressed) == value_sat
        assert compress_amount(value_sat) == compressed


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, MAX_MONEY_SAT) | st.integers(0, 21_000_000).map(lambda coins: coins * 10**8))
def test_an_amount_survives_compression(value_sat: int) -> None:
    """Every possible amount is the same after compression and back."""
    assert decompress_amount(compress_amount(value_sat)) == value_sat


@settings(deadline=None)  # the first call compiles
@given(st.integers(compress_amount(MAX_MONEY_SAT) + 1, (1 << 62) - 1))
def test_no_amount_is_more_than_there_can_be(compressed: int) -> None:
    """Random bytes give no amount, or one of at most 21 million coins."""
    assert decompress_amount(compressed) <= MAX_MONEY_SAT


@settings(deadline=None)  # the first call compiles
@given(made.mutated_scripts() | st.binary(max_size=300))
def test_a_compressed_script_keeps_its_type(script: bytes) -> None:
    """Each of the seven compressed forms gives type and end of the script; a cut one gives neither."""
    written = compress_script(script)
    data = np.frombuffer(written + b"\x00", np.uint8)

    number, end = read_script_type(data, 0, len(written))
    assert (OUTPUT_TYPES[number], end) == (plain_output_type(script), len(written))
    assert read_script_type(data, 0, len(written) - 1)[1] == -1


@settings(max_examples=60, deadline=None)
@given(made.blocks(), st.data())
def test_values_are_those_that_were_spent(raw: bytes, data: st.DataObject) -> None:
    """Undo data of a block give each transaction the sum of what it spends, the coinbase nothing."""
    block = np.frombuffer(raw, np.uint8)
    layout = walk_blocks(block, np.array([0, len(raw)]))
    spent = [
        [(data.draw(made.amounts), data.draw(made.scripts)) for _ in range(n)]
        for n in layout.txs["n_inputs"][1:]
    ]
    undo = np.frombuffer(undo_of(spent, height=data.draw(st.integers(0, 10**6))), np.uint8)

    found = spent_outputs(undo, np.array([0, len(undo)]), layout.blocks, layout.txs)

    assert found.values_sat.tolist() == [UNKNOWN, *(sum(value for value, _ in each) for each in spent)]
    types = [OUTPUT_TYPES.index(plain_output_type(script)) for each in spent for _, script in each]
    assert found.types.tolist() == [UNKNOWN_TYPE, *types]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_undo_data_that_do_not_fit_give_no_values(data: st.DataObject) -> None:
    """Undo data that is cut off, too long or of another block gives no values and raises no error."""
    spends = [made.TxInput(bytes([i]) * 32, 0) for i in range(3)]
    body = [made.RegtestTransaction((spend,), (made.TxOutput(5, b"\x51"),)) for spend in spends]
    raw = made.solved_block(body, height=9)
    layout = walk_blocks(np.frombuffer(raw, np.uint8), np.array([0, len(raw)]))
    whole = undo_of([[(7, b"\x51")]] * 3, height=5)
    cut = data.draw(st.integers(0, len(whole) - 1))
    bad = data.draw(st.sampled_from([whole[:cut], whole + b"\x00", undo_of([[(7, b"\x51")]] * 2, height=5)]))
    undo = np.frombuffer(bad + b"\x00", np.uint8)

    values, types = spent_outputs(undo, np.array([0, len(bad)]), layout.blocks, layout.txs)

    assert set(values.tolist()) == {UNKNOWN}
    assert set(types.tolist()) == {UNKNOWN_TYPE}
