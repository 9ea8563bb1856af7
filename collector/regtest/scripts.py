"""Make output scripts: those that anyone can spend, which the wallet holds, and those that it pays to.

Each anyone-can-spend output is locked by OP_TRUE, so that a spend needs no signature and is still standard by
the node's policy.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from collector.regtest.transaction import pay_to_script_hash, push

OP_TRUE: Final = b"\x51"

# BIP341's point without a known private key, and the output key that commits to the single leaf OP_TRUE under
# it: lift_x(H) + int(hash_TapTweak(H || hash_TapLeaf(0xc0 || 0x01 || 0x51))) * G, whose y is odd.
NUMS_KEY: Final = bytes.fromhex("50929b74c1a04954b78b4b6035e97a5e078a5a0f28ec96d547bfee9ace803ac0")
TAPROOT_OUTPUT_KEY: Final = bytes.fromhex("f855ca43402fb99cde0e3e634b175642561ff584fe76d1686630d8fd2ea93b36")
TAPROOT_CONTROL_BLOCK: Final = b"\xc1" + NUMS_KEY  # leaf version 0xc0, plus 1 for the odd y


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinKind:
    """Describes a kind of anyone-can-spend output: its script, and what an input that spends it carries."""

    name: str
    script: bytes
    script_sig: bytes = b""
    witness: tuple[bytes, ...] = ()


def p2wsh(witness_script: bytes) -> bytes:
    """Return the output script that pays to the hash of a witness script."""
    return witness_output(0, hashlib.sha256(witness_script).digest())


def witness_output(version: int, program: bytes) -> bytes:
    """Return the output script that pays to a witness program."""
    return bytes([0x50 + version if version else 0]) + push(program)


COIN_KINDS: Final = {
    kind.name: kind
    for kind in (
        CoinKind(name="p2wsh", script=p2wsh(OP_TRUE), witness=(OP_TRUE,)),
        CoinKind(name="p2sh", script=pay_to_script_hash(OP_TRUE), script_sig=push(OP_TRUE)),
        CoinKind(
            name="p2sh-p2wsh",
            script=pay_to_script_hash(p2wsh(OP_TRUE)),
            script_sig=push(p2wsh(OP_TRUE)),
            witness=(OP_TRUE,),
        ),
        CoinKind(
            name="p2tr",
            script=witness_output(1, TAPROOT_OUTPUT_KEY),
            witness=(OP_TRUE, TAPROOT_CONTROL_BLOCK),
        ),
        CoinKind(name="p2a", script=witness_output(1, b"\x4e\x73")),
    )
}

# Bare public keys and bare multisig are not among them: some nodes relay no output script above 34 bytes.
PAYMENT_KINDS: Final = (
    "p2wpkh",
    "p2tr",
    "p2pkh",
    "p2sh",
    "p2wsh",
    "op_return",
    "witness_unknown",
)


def payment_script(kind: str, seed: bytes) -> bytes:
    """Return an output script of `kind`, one of PAYMENT_KINDS; nobody can spend it.

    Its key or hash is made from `seed`.
    """
    digest = hashlib.sha256(seed).digest()
    scripts = {
        "p2wpkh": witness_output(0, digest[:20]),
        "p2tr": witness_output(1, digest),
        "p2pkh": b"\x76\xa9" + push(digest[:20]) + b"\x88\xac",
        "p2sh": b"\xa9" + push(digest[:20]) + b"\x87",
        "p2wsh": witness_output(0, digest),
        "op_return": b"\x6a" + push(digest),
        "witness_unknown": witness_output(2, digest),
    }
    return scripts[kind]
