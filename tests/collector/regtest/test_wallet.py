"""Test that a real node accepts every kind of transaction of the wallet, at the feerate asked for."""

from typing import Any

import pytest
from bitcoin.core import CMutableTxIn, CMutableTxOut, COutPoint, CTransaction
from bitcoin.core.script import CScript
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.errors import RegtestError, RpcError
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.scripts import COIN_KINDS, PAYMENT_KINDS, payment_script
from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput, compact_size, height_push
from collector.regtest.wallet import Coin, Payment, Wallet, pay

TYPE_NAMES = {
    "p2wpkh": "witness_v0_keyhash",
    "p2tr": "witness_v1_taproot",
    "p2pkh": "pubkeyhash",
    "p2sh": "scripthash",
    "p2wsh": "witness_v0_scripthash",
    "op_return": "nulldata",
    "witness_unknown": "witness_unknown",
}


SOMEBODY = TxOutput(5_000, payment_script("p2wpkh", b"somebody"))


def send(node: RegtestNode, payment: Payment) -> str:
    """Send a payment; the node must name it by the txid we computed."""
    txid: str = node.client().call("sendrawtransaction", payment.transaction.raw.hex())
    assert txid == payment.transaction.txid_hex
    return txid


@pytest.mark.bitcoind
def test_every_kind_of_coin_can_be_spent_into_every_kind_of_change(node: RegtestNode) -> None:
    """Each of the kinds is spent by a standard transaction, and its change is spent again."""
    wallet = make_wallet(node, 200, seed=1)
    coins = [wallet.take() for _ in range(len(wallet))]
    for kind in COIN_KINDS:
        ours = [coin for coin in coins if coin.kind.name == kind]
        for coin, change_kind in zip(ours[: len(COIN_KINDS)], COIN_KINDS, strict=True):
            first = pay([coin], [SOMEBODY], feerate_sat_vb=4, change_kind=change_kind)
            send(node, first)
            send(node, pay([first.change], [SOMEBODY], feerate_sat_vb=4))


@pytest.mark.bitcoind
def test_every_kind_of_payment_is_what_the_node_calls_it(node: RegtestNode) -> None:
    """All kinds are relayed, and decoded as the type meant; sizes and ids equal the node's."""
    wallet = make_wallet(node, len(PAYMENT_KINDS), seed=1)
    rpc = node.client()
    for kind in PAYMENT_KINDS:
        output = TxOutput(0 if kind == "op_return" else 5_000, payment_script(kind, b"somebody"))
        payment = pay([wallet.take()], [output], feerate_sat_vb=4)
        send(node, payment)
        seen = rpc.call("decoderawtransaction", payment.transaction.raw.hex())
        assert seen["vout"][1]["scriptPubKey"]["type"] == TYPE_NAMES[kind]
        assert (seen["weight"], seen["vsize"]) == (
            payment.transaction.weight_wu,
            payment.transaction.vsize_vb,
        )
        assert seen["hash"] == payment.transaction.wtxid[::-1].hex()


@pytest.mark.bitcoind
@pytest.mark.parametrize("feerate_sat_vb", [1.0, 7.3, 250.0])
def test_the_fee_is_the_feerate_asked_for_rounded_up(node: RegtestNode, feerate_sat_vb: float) -> None:
    """The node counts the fee and size we computed; the fee is less than 1 satoshi above the feerate."""
    wallet = make_wallet(node, 3, seed=1)
    payment = pay([wallet.take(), wallet.take()], [], feerate_sat_vb=feerate_sat_vb)
    entry: dict[str, Any] = node.client().call("getmempoolentry", send(node, payment))
    assert entry["fees"]["base"] * 100_000_000 == payment.fee_sat
    assert 0 <= payment.fee_sat - feerate_sat_vb * entry["vsize"] < 1


@pytest.mark.bitcoind
def test_a_replacement_takes_the_place_of_its_original(node: RegtestNode) -> None:
    """A higher fee on the same coin evicts the first transaction; a lower one is refused."""
    coin = make_wallet(node, 1, seed=1).take()
    original = pay([coin], [], feerate_sat_vb=3, replaceable=True)
    replacement = pay([coin], [], feerate_sat_vb=6, replaceable=True)
    first = send(node, original)
    rpc = node.client()
    assert rpc.call("getmempoolentry", first)["bip125-replaceable"]
    second = send(node, replacement)
    assert rpc.call("getrawmempool") == [second]
    with pytest.raises(RpcError, match="insufficient fee"):
        rpc.call("sendrawtransaction", original.transaction.raw.hex())


@pytest.mark.bitcoind
def test_a_child_pays_for_its_parent(node: RegtestNode) -> None:
    """The node counts parent and child as one package with the sum of their fees."""
    parent = pay([make_wallet(node, 1, seed=1).take()], [], feerate_sat_vb=1)
    child = pay([parent.change], [], feerate_sat_vb=40)
    send(node, parent)
    entry = node.client().call("getmempoolentry", send(node, child))
    assert entry["ancestorcount"] == 2
    assert entry["fees"]["ancestor"] * 100_000_000 == parent.fee_sat + child.fee_sat


def test_a_wallet_without_enough_says_so() -> None:
    """An empty wallet and a coin too small for its outputs are errors with the amounts."""
    with pytest.raises(RegtestError, match="no coin left"):
        Wallet([]).take()
    coin = Coin(txid=bytes(32), vout=0, value_sat=5_000, kind=COIN_KINDS["p2wsh"])
    with pytest.raises(RegtestError, match="5000 sat leave"):
        pay([coin], [TxOutput(4_000, b"")], feerate_sat_vb=10)


scripts = st.binary(max_size=300)
inputs = st.builds(
    TxInput,
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**32 - 1),
    scripts,
    st.lists(scripts, max_size=4).map(tuple),
    st.integers(0, 2**32 - 1),
)
outputs = st.builds(TxOutput, st.integers(0, 21 * 10**14), scripts)


@settings(deadline=None)
@given(st.lists(inputs, min_size=1, max_size=4), st.lists(outputs, max_size=4), st.integers(0, 2**32 - 1))
def test_serialisation_is_what_another_library_reads(
    ins: list[TxInput], outs: list[TxOutput], locktime: int
) -> None:
    """python-bitcoinlib reads back the same fields and hashes to the same id."""
    if not outs and not any(each.witness for each in ins):
        outs = [TxOutput(0, b"")]
    transaction = RegtestTransaction(tuple(ins), tuple(outs), locktime=locktime)
    read = CTransaction.deserialize(transaction.raw)
    assert read.GetTxid() == transaction.txid
    assert read.nLockTime == locktime
    assert [(CMutableTxIn.from_txin(each).prevout, each.nSequence) for each in read.vin] == [
        (COutPoint(each.txid, each.vout), each.sequence) for each in ins
    ]
    assert [CMutableTxOut.from_txout(each).nValue for each in read.vout] == [each.value_sat for each in outs]
    if any(each.witness for each in ins):
        assert [tuple(each.scriptWitness.stack) for each in read.wit.vtxinwit] == [
            each.witness for each in ins
        ]


@settings(deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_the_height_push_is_the_minimal_script_number(height: int) -> None:
    """BIP34's push is what a script library encodes, for heights of every length."""
    assert height_push(height) == bytes(CScript([height]))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (252, "fc"), (253, "fdfd00"), (65536, "fe00000100"), (2**32, "ff0000000001000000")],
)
def test_counts_take_one_three_five_or_nine_bytes(value: int, encoded: str) -> None:
    """Counts just below and above each limit of CompactSize take the right number of bytes."""
    assert compact_size(value).hex() == encoded
