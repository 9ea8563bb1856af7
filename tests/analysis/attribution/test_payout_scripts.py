"""Test that an address gives its output script on every network, and any other text an AddressError."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.attribution.payout_scripts import BASE58_ALPHABET, BECH32_ALPHABET, script_of_address
from analysis.errors import AddressError

TAPROOT = "bc1p8k4v4xuz55dv49svzjg43qjxq2whur7ync9tm0xgl5t4wjl9ca9snxgmlt"
P2PKH = "1CjPR7Z5ZSyWk6WtXvSFgkptmpoi4UM9BC"


def test_valid_addresses_of_bitcoin_core_give_their_scripts(data_dir: Path) -> None:
    """Every address of Bitcoin Core's key_io_valid vectors gives its script, also in capitals if allowed."""
    vectors = json.loads((data_dir / "bitcoin-core-vectors" / "data" / "key_io_valid.json").read_text())
    addresses = [(text, script, about) for text, script, about in vectors if not about["isPrivkey"]]

    assert len(addresses) > 40
    for text, script, about in addresses:
        assert script_of_address(text).hex() == script
        if about.get("tryCaseFlip"):
            assert script_of_address(text.swapcase()).hex() == script


def test_invalid_texts_of_bitcoin_core_are_refused(data_dir: Path) -> None:
    """Every text of Bitcoin Core's key_io_invalid vectors raises AddressError."""
    vectors = json.loads((data_dir / "bitcoin-core-vectors" / "data" / "key_io_invalid.json").read_text())

    assert len(vectors) > 50
    for (text,) in vectors:
        with pytest.raises(AddressError):
            script_of_address(text)


@pytest.mark.parametrize("text", ["", "1", "bc1", "bc1q", "é", "0" * 40, "bc1p" + "q" * 100, P2PKH.lower()])
def test_what_is_no_address_is_refused(text: str) -> None:
    """Short, long, non-ASCII and mistyped texts raise AddressError and nothing else."""
    with pytest.raises(AddressError):
        script_of_address(text)


@given(position=st.integers(4, len(TAPROOT) - 1), character=st.sampled_from(BECH32_ALPHABET))
def test_one_wrong_character_of_bech32m_is_found(position: int, character: str) -> None:
    """The Bech32m checksum finds every substitution of one character."""
    mistyped = TAPROOT[:position] + character + TAPROOT[position + 1 :]

    if mistyped != TAPROOT:
        with pytest.raises(AddressError, match=r"checksum|BIP141"):
            script_of_address(mistyped)


@given(position=st.integers(0, len(P2PKH) - 1), character=st.sampled_from(BASE58_ALPHABET))
def test_one_wrong_character_of_base58_is_found(position: int, character: str) -> None:
    """The Base58Check checksum finds each tried substitution; in theory it misses one in 2^32."""
    mistyped = P2PKH[:position] + character + P2PKH[position + 1 :]

    if mistyped != P2PKH:
        with pytest.raises(AddressError):
            script_of_address(mistyped)
