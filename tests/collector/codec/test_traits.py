"""Traits of transactions against the plain way, real blocks and a real node."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gpuhash
from collector.codec.block import decode_block
from collector.codec.scripts import UNKNOWN_TYPE
from collector.codec.traits import TRAITS, transaction_traits
from collector.codec.transaction import decode_transaction
from collector.codec.walk import walk_blocks, walk_transactions
from collector.dataset.schema import OUTPUT_TYPES
from collector.regtest import RegtestNode, find_bitcoind, make_wallet
from collector.regtest.scripts import TAPROOT_CONTROL_BLOCK, CoinKind, p2wsh
from collector.regtest.transaction import (
    RegtestTransaction,
    TxInput,
    TxOutput,
    pay_to_script_hash,
    push,
)
from collector.regtest.wallet import Coin, pay
from tests.collector.codec import made_blocks as made
from tests.collector.codec.plain_traits import plain_traits

KEY = b"\x21\x02" + bytes(32)
CHECKS = b"\xac\xad\x52\xae\x51\xaf\xae"  # one, one, two, one and twenty; the last follows no number
PIECES = [b"\x00\x63", b"\x00", b"\x63", b"\x64", b"\x68", b"\x03ord", b"\x4c\x05hello", b"\x4d\x02", b"\x6a"]
PIECES += [bytes([code]) for code in (0x50, 0x4F, 0x51, 0x52, 0x60, 0xAC, 0xAD, 0xAE, 0xAF, 0x75, 0x87)]
PIECES += [KEY, b"\x00\x14" + bytes(20), b"\x22\x00\x20" + bytes(32), b"\x16\x00\x14" + bytes(20)]
scripts = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
controls = st.sampled_from([TAPROOT_CONTROL_BLOCK, b"\xc0" + bytes(64), b"\xc0" + bytes(63), b"\x51" * 33])
stacks = st.lists(scripts | controls | st.binary(max_size=4), max_size=4).map(tuple)
leaves = st.tuples(scripts, controls) | st.tuples(scripts, controls, st.just(b"\x50annex"))
values = st.integers(0, 700) | st.integers(0, 10**9)
ONE_OF_NO_KEYS = RegtestTransaction(  # OP_1 OP_CHECKMULTISIG as the last item of a witness
    (TxInput(b"\x07" * 32, 0, b"", (b"\x51\xae",)),), (TxOutput(600, b"\x51"),)
)


@st.composite
def transactions(draw: st.DrawFn) -> tuple[RegtestTransaction, list[str]]:
    """Draw a transaction, and the types of the outputs that it spends."""
    inputs = st.builds(TxInput, st.just(b"\x07" * 32), st.integers(0, 3), scripts, stacks | leaves)
    outputs = st.builds(TxOutput, values, made.scripts | scripts)
    drawn = RegtestTransaction(
        tuple(draw(st.lists(inputs, min_size=1, max_size=3))),
        tuple(draw(st.lists(outputs, min_size=1, max_size=4))),
    )
    return drawn, [draw(st.sampled_from(OUTPUT_TYPES)) for _ in drawn.inputs]


def traits_of(raws: Sequence[bytes], spent: Sequence[Sequence[str]] | None = None) -> list[dict[str, object]]:
    """Return the traits that the compiled function finds, as rows have them."""
    data, limits = gpuhash.join(raws)
    layout = walk_transactions(data, limits)
    types = None
    if spent is not None:
        types = np.array([OUTPUT_TYPES.index(name) for names in spent for name in names], np.uint8)
    found = transaction_traits(data, layout, types).of_txs
    rows = [dict(zip(TRAITS.names, row.tolist(), strict=True)) for row in found]
    return [row | {"sigop_cost": None if row["sigop_cost"] < 0 else row["sigop_cost"]} for row in rows]


@settings(max_examples=150, deadline=None)
@given(st.lists(transactions(), min_size=1, max_size=4))
@example([(ONE_OF_NO_KEYS, ["witness_v0_scripthash"])])
def test_traits_are_those_of_the_plain_way(drawn: list[tuple[RegtestTransaction, list[str]]]) -> None:
    """Scripts made of the pieces that matter, whole and cut off, in inputs, outputs and witnesses."""
    raws = [transaction.raw for transaction, _ in drawn]
    types = [spent for _, spent in drawn]
    decoded = [decode_transaction(raw) for raw in raws]

    assert traits_of(raws, types) == [
        plain_traits(one, spent) for one, spent in zip(decoded, types, strict=True)
    ]
    assert traits_of(raws) == [plain_traits(one, in_block=False) for one in decoded]


def test_an_inscription_is_an_envelope() -> None:
    """The form that wallets write: key, check, OP_0 OP_IF, protocol, content type, body, OP_ENDIF."""
    body = b"\x00\x63\x03ord\x01\x01\x0atext/plain\x00\x05hello\x68"
    leaf = KEY + b"\xac" + body
    spend = TxInput(b"\x07" * 32, 0, b"", (bytes(64), leaf, TAPROOT_CONTROL_BLOCK))
    transaction = RegtestTransaction((spend,), (TxOutput(330, b"\x51\x20" + bytes(32)),))

    (row,) = traits_of([transaction.raw], [["witness_v1_taproot"]])

    assert (row["n_envelopes"], row["envelope_bytes"]) == (1, len(body))
    assert row["n_dust_outputs"] == 0  # exactly the threshold of a taproot output
    assert row["sigop_cost"] == 0  # BIP 342 counts them against the witness instead


@pytest.mark.parametrize(
    ("script", "threshold_sat"),
    [
        (b"\x76\xa9\x14" + bytes(20) + b"\x88\xac", 546),
        (b"\xa9\x14" + bytes(20) + b"\x87", 540),
        (b"\x00\x14" + bytes(20), 294),
        (b"\x00\x20" + bytes(32), 330),
        (b"\x51\x20" + bytes(32), 330),
        (b"\x51\x02\x4e\x73", 240),
    ],
)
def test_dust_begins_below_the_nodes_threshold(script: bytes, threshold_sat: int) -> None:
    """An output one satoshi below the threshold of its type is dust, and one at the threshold is not."""
    spend = (TxInput(b"\x07" * 32, 0),)
    made_of = [
        RegtestTransaction(spend, (TxOutput(value, script),)) for value in (threshold_sat - 1, threshold_sat)
    ]

    assert [row["n_dust_outputs"] for row in traits_of([each.raw for each in made_of])] == [1, 0]


def test_traits_of_real_blocks_are_those_of_the_plain_way(data_dir: Path) -> None:
    """Every transaction of the smaller real blocks of mainnet, of testnet, and of other networks."""
    files = sorted((data_dir / "mainnet-blocks").glob("*.bin"), key=lambda path: path.stat().st_size)[:40]
    n_envelopes = n_op_returns = 0
    for file in files:
        raw = file.read_bytes()
        data = np.frombuffer(raw, np.uint8)
        layout = walk_blocks(data, np.array([0, len(raw)]))
        unknown = np.full(len(layout.spends), UNKNOWN_TYPE, np.uint8)
        found = transaction_traits(data, layout, unknown).of_txs
        for transaction, row in zip(decode_block(raw).transactions, found, strict=True):
            expected = plain_traits(transaction)
            expected["sigop_cost"] = -1 if expected["sigop_cost"] is None else expected["sigop_cost"]
            assert dict(zip(TRAITS.names, row.tolist(), strict=True)) == expected
            n_envelopes += expected["n_envelopes"]
            n_op_returns += expected["op_return_bytes"] > 0
    assert n_op_returns > 10


@pytest.mark.bitcoind
def test_sigop_costs_are_those_of_the_nodes_template() -> None:
    """Coins of each kind, whose scripts hold signature operations in a branch that does not run."""
    branch = b"\x00\x63" + KEY + CHECKS + b"\x68\x51"
    few = branch.replace(CHECKS, CHECKS[:-1])  # nodes relay at most 15 in a redeem script
    kinds = [
        CoinKind(name="wsh", script=p2wsh(branch), witness=(branch,)),
        CoinKind(name="sh", script=pay_to_script_hash(few), script_sig=push(few)),
        CoinKind(
            name="sh-wsh",
            script=pay_to_script_hash(p2wsh(branch)),
            script_sig=push(p2wsh(branch)),
            witness=(branch,),
        ),
    ]
    with RegtestNode(find_bitcoind()) as node:
        rpc = node.client()
        wallet = make_wallet(node, 40, seed=3)
        first = pay([wallet.take()], [TxOutput(50_000, kind.script) for kind in kinds], feerate_sat_vb=5)
        rpc.call("sendrawtransaction", first.transaction.raw.hex())
        rpc.call("generatetodescriptor", 1, "raw(51)")
        coins = [
            Coin(txid=first.transaction.txid, vout=1 + index, value_sat=50_000, kind=kind)
            for index, kind in enumerate(kinds)
        ]
        bare = TxOutput(1_000, b"\x76\xa9\x14" + bytes(20) + b"\x88\xac")
        payments = [pay([coin], [bare], feerate_sat_vb=9) for coin in coins]
        payments += [pay([wallet.take() for _ in range(5)], [bare], feerate_sat_vb=7)]
        for payment in payments:
            rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        template = rpc.call("getblocktemplate", {"rules": ["segwit"]})
        stated = {each["txid"]: each["sigops"] for each in template["transactions"]}
        include_mempool = False  # there these coins are spent
        spent = [
            [
                rpc.call("gettxout", coin.txid[::-1].hex(), coin.vout, include_mempool)["scriptPubKey"][
                    "type"
                ]
                for coin in payment.spent
            ]
            for payment in payments
        ]

    ours = traits_of([payment.transaction.raw for payment in payments], spent)

    assert [row["sigop_cost"] for row in ours] == [stated[each.transaction.txid_hex] for each in payments]
    assert len({row["sigop_cost"] for row in ours}) == len(kinds)
