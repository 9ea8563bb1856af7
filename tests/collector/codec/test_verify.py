"""Test each verdict on a block that deserves it, and on real blocks of several chains."""

import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from collector.codec.block import Block, decode_block
from collector.codec.verify import backend_name, verify_block
from collector.dataset.schema import VERDICTS

REGTEST_BITS = 0x207FFFFF


def sha256d(data: bytes) -> bytes:
    """Return the double SHA-256 of some bytes."""
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def merkle(hashes: list[bytes]) -> bytes:
    """Return the merkle root of hashes, as the protocol documentation computes it."""
    while len(hashes) > 1:
        hashes = hashes + hashes[-1:] * (len(hashes) % 2)
        hashes = [sha256d(left + right) for left, right in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0]


def transaction(prev: bytes, script: bytes, outputs: list[bytes], witness: list[bytes] | None) -> bytes:
    """Write a transaction with one input; witness is its stack."""
    body = b"\1" + prev + bytes([len(script)]) + script + b"\xff" * 4 + bytes([len(outputs)])
    body += b"".join(bytes(8) + bytes([len(output)]) + output for output in outputs)
    if witness is None:
        return bytes(4) + body + bytes(4)
    stack = bytes([len(witness)]) + b"".join(bytes([len(item)]) + item for item in witness)
    return bytes(4) + b"\0\1" + body + stack + bytes(4)


def stripped(raw: bytes) -> bytes:
    """Remove marker, flag and the last stack of one item from what `transaction` wrote."""
    if raw[4]:
        return raw
    items = raw[:-4].rindex(b"\1\x20") if b"\1\x20" in raw else raw[:-4].rindex(b"\1\1")
    return raw[:4] + raw[6:items] + raw[-4:]


def mined(transactions: list[bytes], bits: int = REGTEST_BITS, *, with_work: bool = True) -> Block:
    """Make a block of transactions whose header commits to them, with or without enough work."""
    root = merkle([sha256d(stripped(raw)) for raw in transactions])
    for nonce in range(1000):
        header = struct.pack("<i32s32sIII", 4, bytes(32), root, 1_700_000_000, bits, nonce)
        has_work = int.from_bytes(sha256d(header), "little") >> 248 < 0x7F
        if has_work == with_work:
            return decode_block(header + bytes([len(transactions)]) + b"".join(transactions))
    raise AssertionError("no nonce found")


def coinbase(commitment: bytes | None = None, reserved: list[bytes] | None = None) -> bytes:
    """Write the coinbase of height 5."""
    outputs = [b"\x51"] + ([bytes.fromhex("6a24aa21a9ed") + commitment] if commitment else [])
    return transaction(bytes(32) + b"\xff" * 4, b"\x55\x00", outputs, reserved)


def payment(number: int, witness: list[bytes] | None = None) -> bytes:
    """Write a transaction that spends something outside the block."""
    return transaction(bytes([number]) * 36, b"", [b"\x51"], witness)


def committed(reserved: bytes, payments: list[bytes]) -> list[bytes]:
    """Put a coinbase before payments that commits to their witness data."""
    root = merkle([bytes(32), *(sha256d(raw) for raw in payments)])
    return [coinbase(sha256d(root + reserved), [reserved]), *payments]


PLAIN = [coinbase(), payment(1), payment(2)]
WITNESS = committed(b"\7" * 32, [payment(1, [b"w"]), payment(2)])


@pytest.mark.parametrize("transactions", [[coinbase()], PLAIN, WITNESS, committed(bytes(32), [])])
def test_a_sound_block_is_valid(transactions: list[bytes]) -> None:
    """Blocks with and without witness data are valid, also with a commitment to none."""
    block = mined(transactions)
    assert verify_block(block, "regtest") == "valid"
    assert verify_block(block, "regtest", [sha256d(stripped(raw)) for raw in transactions]) == "valid"


def test_a_hash_above_the_target_is_no_work() -> None:
    """A hash above the header's own target is refused."""
    assert verify_block(mined(PLAIN, with_work=False), "regtest") == "bad_proof_of_work"


@pytest.mark.parametrize("bits", [0, 0x20FFFFFF, 0x21010000, 0x04800001, 0xFF7FFFFF])
def test_an_impossible_target_is_no_work(bits: int) -> None:
    """Zero, negative, overflowing targets and those easier than the chain allows are refused."""
    assert verify_block(mined(PLAIN, bits), "regtest") == "bad_proof_of_work"


def test_a_target_of_an_easier_chain_is_no_work() -> None:
    """A block of regtest has too little work for any other chain."""
    for chain in ("main", "test", "testnet4", "signet"):
        assert verify_block(mined(PLAIN), chain) == "bad_proof_of_work"


def test_a_header_that_commits_to_other_transactions_is_noticed() -> None:
    """Transactions under the header of another block have another merkle root."""
    header = mined([coinbase(), payment(3)])
    forged = replace(mined(PLAIN), header=header.header, block_hash=header.block_hash)
    assert verify_block(forged, "regtest") == "bad_merkle_root"


def test_a_repeated_leaf_is_a_mutation() -> None:
    """CVE-2012-2459: repeating the last of an odd number of transactions keeps the root, and is noticed."""
    original, forged = mined(PLAIN), mined([*PLAIN, PLAIN[-1]])
    assert original.header.merkle_root == forged.header.merkle_root
    assert verify_block(forged, "regtest") == "mutated"


@pytest.mark.parametrize(
    "transactions",
    [
        [coinbase(), payment(1, [b"w"])],  # witness data that nothing commits to
        [WITNESS[0], payment(1, [b"x"]), payment(2)],  # other witness data
        [coinbase(b"\3" * 32, [bytes(32)]), payment(1)],  # a commitment to nothing known
        [coinbase(b"\3" * 32), payment(1)],  # no reserved value
        [stripped(WITNESS[0]), *WITNESS[1:]],
    ],
)
def test_a_commitment_that_does_not_hold_is_noticed(transactions: list[bytes]) -> None:
    """A missing, a wrong and an unprovable commitment lead to the same verdict."""
    assert verify_block(mined(transactions), "regtest") == "bad_witness_commitment"


def test_the_reserved_value_is_one_item_of_32_bytes() -> None:
    """BIP 141: another stack cannot prove the commitment, whatever it commits to."""
    block = mined(WITNESS)
    for stack in ((), (b"\7" * 31,), (b"\7" * 32, b"\7" * 32)):
        assert verify_block(replace(block, coinbase_witness=stack), "regtest") == "bad_witness_commitment"


def test_commitments_mean_nothing_before_their_time() -> None:
    """Below the height at which the chain adopted BIP 141, there must be no witness data, and that is all."""
    old = mined([coinbase(b"\3" * 32), payment(1)])
    assert verify_block(old, "regtest", height=-1) == "valid"
    assert verify_block(mined(WITNESS), "regtest", height=-1) == "bad_witness_commitment"


def test_txids_that_the_node_does_not_name_are_noticed() -> None:
    """A wrong txid, another order and a missing txid are each noticed."""
    block = mined(PLAIN)
    txids = [one.txid for one in block.transactions]
    for wrong in (txids[::-1], txids[:-1], [*txids[:-1], bytes(32)]):
        assert verify_block(block, "regtest", wrong) == "bad_txid"


def test_the_first_failure_is_the_verdict() -> None:
    """A block that fails everything is named after its work, the cheapest to check."""
    block = mined([coinbase(), payment(1, [b"w"])], with_work=False)
    assert VERDICTS[1] == "bad_proof_of_work"
    assert verify_block(block, "regtest", [bytes(32)]) == VERDICTS[1]


def test_the_hashing_backend_is_named() -> None:
    """What `blocks.verified_by` holds is a backend that gpuhash knows."""
    assert backend_name() in {"reference", "cpu", "cuda"}


@pytest.mark.data
def test_real_mainnet_blocks_are_valid_on_mainnet_only(data_dir: Path) -> None:
    """Work, roots and commitments of 2009 to 2021 hold; a flipped bit in any body does not."""
    files = sorted(data_dir.glob("mainnet-blocks/*.bin"))
    assert files
    for file in files:
        raw = file.read_bytes()
        block = decode_block(raw)
        assert verify_block(block, "main") == "valid", file.name
        coinbase_value_at = raw.index(block.coinbase.outputs[0].script, 80) - 9
        changed = bytearray(raw)
        changed[coinbase_value_at] ^= 1
        assert verify_block(decode_block(bytes(changed)), "main") == "bad_merkle_root", file.name


@pytest.mark.data
def test_blocks_of_other_networks_are_told_apart(data_dir: Path) -> None:
    """Testnet blocks are valid there; they and altcoin blocks since 2014 lack the work of mainnet."""
    altcoins = ("00000000000000d16ed3139e", "00000000000000360f1e38ab")
    testnet4 = "000000000000000c1a1fad82"
    files = sorted(data_dir.glob("other-net-blocks/*.bin"))
    assert files
    for file in files:
        block = decode_block(file.read_bytes())
        if block.header.time_s > 1_388_534_400:
            assert verify_block(block, "main") == "bad_proof_of_work", file.name
        if not file.name.startswith(altcoins):
            chain = "testnet4" if file.name.startswith(testnet4) else "test"
            assert verify_block(block, chain) == "valid", file.name
