"""Test that headers are held to the rules of their chain: real ones pass, and forged ones are found."""

import base64
import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import zstandard

from gpuhash.chain import HeaderFault, Position, header_faults, split_headers
from gpuhash.chain_rules import CHAINS, PERIOD, ChainRules, bits_from_target, retargeted, rules_of
from gpuhash.errors import InvalidInputError
from gpuhash.search import target_from_bits
from tests.gpuhash.header_chains import BEGIN_S, EASIEST, hash_of, mine_chain, mined, rules

Headers = npt.NDArray[np.uint8]
MERKLE = "3ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a"
MERKLE_TESTNET4 = "7aa0a7ae1e223414cb807e40cd57e667b718e42aaf9306db9102fe28912b7b4e"


def faults_of(headers: Headers, chain: ChainRules, first_height: int = 0) -> list[HeaderFault]:
    """Return the faults by the rules of an invented chain, whose first block is the first header."""
    genesis = hash_of(headers[0].tobytes())[::-1].hex()
    at = Position(rules=replace(chain, genesis_hash=genesis), first_height=first_height)
    return header_faults(headers, at=at, backend="reference")


def reasons(faults: Iterable[HeaderFault]) -> list[tuple[int, str]]:
    """Return position and first words of each fault."""
    return [(fault.index, fault.reason) for fault in faults]


def slow_then_fast(height: int) -> int:
    """Return gaps of 10 minutes in the first period, of 2 in the second, and of 40 in the third."""
    return (600, 120, 2400)[height // PERIOD % 3]


@pytest.fixture(scope="module")
def retargeting() -> Headers:
    """Return headers of three periods and a bit: work gets harder by 4 (the bound), then easier by 4."""
    return mine_chain(rules(), 3 * PERIOD + 5, slow_then_fast)


@pytest.mark.parametrize(
    ("chain", "merkle", "time_s", "nonce"),
    [
        ("main", MERKLE, 1231006505, 2083236893),
        ("testnet", MERKLE, 1296688602, 414098458),
        ("test", MERKLE, 1296688602, 414098458),
        ("testnet4", bytes.fromhex(MERKLE_TESTNET4)[::-1].hex(), 1714777860, 393743547),
        ("signet", MERKLE, 1598918400, 52613770),
        ("regtest", MERKLE, 1296688602, 2),
    ],
)
def test_the_first_block_of_each_chain_is_its_own(chain: str, merkle: str, time_s: int, nonce: int) -> None:
    """The headers that Bitcoin Core's chainparams.cpp builds pass on their chain and fail on the others."""
    bits = rules_of(chain).limit_bits
    fields = b"".join(number.to_bytes(4, "little") for number in (time_s, bits, nonce))
    header = (1).to_bytes(4, "little") + bytes(32) + bytes.fromhex(merkle) + fields
    matrix = np.frombuffer(bytearray(header), np.uint8).reshape(1, 80)

    for other in CHAINS.values():
        faults = header_faults(matrix, at=Position(rules=other), backend="reference")
        assert (faults == []) == (other is rules_of(chain))


def test_an_unknown_chain_is_an_error() -> None:
    """The error lists the chains."""
    with pytest.raises(InvalidInputError, match="no chain 'moon'; there are main, testnet"):
        rules_of("moon")


@pytest.mark.parametrize(
    ("first_s", "last_s", "bits", "expected"),
    [
        (1261130161, 1262152739, 0x1D00FFFF, 0x1D00D86A),
        (1231006505, 1233061996, 0x1D00FFFF, 0x1D00FFFF),
        (1279008237, 1279297671, 0x1C05A3F4, 0x1C0168FD),
        (1263163443, 1269211443, 0x1C387F6F, 0x1D00E1FD),
    ],
)
def test_retargets_are_those_of_bitcoin_core(first_s: int, last_s: int, bits: int, expected: int) -> None:
    """The four cases of pow_tests.cpp: a real one, at the limit, bounded below, bounded above."""
    assert retargeted(CHAINS["main"], bits, last_s - first_s) == expected


def test_a_chain_that_retargets_passes_and_its_targets_do_change(retargeting: Headers) -> None:
    """Targets of an invented chain go down by 4 and up again; from any height the rest passes too."""
    bits = retargeting[:, 72:76].copy().view("<u4")[:, 0]

    assert faults_of(retargeting, rules()) == []
    targets = [target_from_bits(int(each)) for each in bits[::PERIOD]]
    ratios = [after / before for before, after in itertools.pairwise(targets)]
    assert ratios == pytest.approx([2015 / 2016, 1 / 4, 4 * 2015 / 2016], rel=1e-4)
    for first in (1, 700, PERIOD, PERIOD + 1, 3 * PERIOD):
        assert (
            header_faults(
                retargeting[first:], at=Position(rules=rules(), first_height=first), backend="reference"
            )
            == []
        )


def test_a_wrong_retarget_is_found_at_its_height() -> None:
    """A chain that keeps its easy target where it must be harder is at fault at the retarget."""
    kept = dict.fromkeys(range(2 * PERIOD, 2 * PERIOD + 3), EASIEST)
    headers = mine_chain(rules(), 2 * PERIOD + 3, slow_then_fast, forged=kept)

    (fault,) = faults_of(headers, rules())

    assert fault.index == 2 * PERIOD
    assert fault.reason == "target 0x207fffff is stated, 0x201ffbef is required by the retarget"


def test_a_target_that_changes_within_a_period_is_found() -> None:
    """A harder target in the middle of a period is a fault, and so is the way back."""
    headers = mine_chain(rules(), 30, lambda _height: 600, forged={20: 0x203FFFFF, 21: EASIEST})

    assert reasons(faults_of(headers, rules())) == [
        (20, "target 0x203fffff is stated, 0x207fffff is required"),
        (21, "target 0x207fffff is stated, 0x203fffff is required"),
    ]


def test_a_target_beyond_the_limit_is_found() -> None:
    """A hash that meets its own target is no work if the target is easier than the chain allows."""
    headers = mine_chain(rules(), 3, lambda _height: 600)
    at = Position(rules=CHAINS["main"], first_height=5)

    found = header_faults(headers, linked=False, at=at, backend="reference")

    assert [fault.index for fault in found] == [0, 1, 2]
    assert found[0].reason == "target 0x207fffff is easier than the limit of main, 0x1d00ffff"
    assert header_faults(headers, linked=False, backend="reference") == []


def test_a_broken_link_and_missing_work_are_found(retargeting: Headers) -> None:
    """A header taken out breaks one link; a changed nonce breaks its work and the next link."""
    cut = np.delete(retargeting[:50], 20, axis=0)
    assert reasons(faults_of(cut, rules())) == [(20, "does not name the hash of the header before it")]
    hard = retargeting[2 * PERIOD : 2 * PERIOD + 20].copy()
    hard[10, 76:80] = 255
    found = faults_of(hard, rules(), first_height=2 * PERIOD)
    assert [fault.index for fault in found] == [10, 11]
    assert "is above its target" in found[0].reason


def test_a_time_before_the_median_is_found() -> None:
    """The 12th header may be older than the 11th, but not as old as the median of 11."""

    def gap_s(height: int) -> int:
        return {11: -6 * 600, 12: 8 * 600, 13: -3 * 600}.get(height, 600)

    headers = mine_chain(rules(), 15, gap_s)

    (fault,) = faults_of(headers, rules())
    assert fault.index == 11
    assert fault.reason.endswith(f"is not after the median of the 11 headers before, {BEGIN_S + 5 * 600}")


def test_the_first_headers_of_a_chain_have_a_median_too() -> None:
    """Before the 5th there are four: the later one of the middle two counts, as in Bitcoin Core.

    In a list that begins later, headers that are not given would decide.
    """
    headers = mine_chain(rules(), 8, lambda height: {4: -600}.get(height, 600))  # as old as the third

    (fault,) = faults_of(headers, rules())
    assert (fault.index, fault.reason.split(", ")[-1]) == (4, str(BEGIN_S + 2 * 600))
    assert "median of the 4 headers before" in fault.reason
    assert faults_of(headers, rules(), first_height=PERIOD + 1) == []
    assert faults_of(mine_chain(rules(), 8, lambda height: {4: -599}.get(height, 600)), rules()) == []


def test_the_20_minute_rule_of_test_networks() -> None:
    """After 20 minutes the easiest target is required, then the last hard one again; at no other time."""
    chain = rules(easy_after_20_minutes=True)
    late = {PERIOD + 50, PERIOD + 51, PERIOD + 100}

    def gap_s(height: int) -> int:
        return 1201 if height in late else 120

    headers = mine_chain(chain, PERIOD + 120, gap_s)
    bits = headers[:, 72:76].copy().view("<u4")[:, 0]

    assert set(np.flatnonzero(bits[PERIOD:] == EASIEST) + PERIOD) == late
    assert faults_of(headers, chain) == []
    assert [fault.index for fault in faults_of(headers, rules())][:2] == [PERIOD + 50, PERIOD + 52]
    forged = mine_chain(chain, PERIOD + 60, gap_s, forged={PERIOD + 40: EASIEST})
    assert [fault.index for fault in faults_of(forged, chain)] == [PERIOD + 40]


def test_bip_94_starts_from_the_first_target_of_the_period() -> None:
    """On testnet4 an easy last header does not make the retarget easy, and time may not jump back."""
    old = rules(easy_after_20_minutes=True)
    new = rules(easy_after_20_minutes=True, starts_from_first_of_period=True)

    def gap_s(height: int) -> int:
        return 1201 if height == 2 * PERIOD - 1 else 300

    headers = mine_chain(new, 2 * PERIOD + 2, gap_s)
    assert faults_of(headers, new) == []
    assert [fault.index for fault in faults_of(headers, old)] == [2 * PERIOD]

    def jump_s(height: int) -> int:
        return {PERIOD: -601}.get(height, 300)

    jumping = mine_chain(new, PERIOD + 2, jump_s)
    (fault,) = faults_of(jumping, new)
    assert (fault.index, "more than 600 s before" in fault.reason) == (PERIOD, True)
    assert faults_of(jumping, old) == []


def test_hostile_targets_are_faults_not_crashes() -> None:
    """Impossible targets before a retarget are faults of their own headers."""
    headers = np.zeros((PERIOD + 1, 80), np.uint8)
    headers[:, 72:76] = 255

    found = faults_of(headers, rules())

    assert {fault.index for fault in found} == set(range(PERIOD + 1))
    assert header_faults(headers[:0], at=Position(rules=rules()), backend="reference") == []


@pytest.mark.data
def test_real_headers_follow_the_rules_of_main(data_dir: Path) -> None:
    """10,237 real headers pass; one exchanged, one removed or one of lower work is found where it is."""
    packed = (data_dir / "floresta" / "mainnet_headers_0_10236.zst").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
        headers = split_headers(np.frombuffer(bytearray(stream.read()), np.uint8))
    at = Position(rules=CHAINS["main"])

    assert header_faults(headers, at=at, backend="reference") == []
    assert header_faults(headers, at=Position(rules=CHAINS["testnet"]), backend="reference")[0].index == 0
    forged = headers.copy()
    easy = mined(hash_of(headers[4999].tobytes()), 1_240_000_000, EASIEST)
    forged[5000] = np.frombuffer(easy, np.uint8)
    found = header_faults(forged, at=at, backend="reference")
    assert {fault.index for fault in found} == {5000, 5001}
    assert any("easier than the limit of main" in fault.reason for fault in found)
    shorter = np.delete(headers[:5000], 3000, axis=0)
    assert [fault.index for fault in header_faults(shorter, at=at, backend="reference")] == [3000]


@pytest.mark.data
def test_real_targets_at_436_retargets_are_in_compact_form(data_dir: Path) -> None:
    """Checkpoints at each retarget to height 878,976 meet their targets, which are within the limit."""
    lines = (data_dir / "bitcoinj" / "production.checkpoints.txt").read_text().split()
    blobs = [base64.b64decode(line + "=" * (-len(line) % 4)) for line in lines if len(line) > 100]
    headers = np.array([list(blob[-80:]) for blob in blobs], np.uint8)
    at = Position(rules=CHAINS["main"], first_height=PERIOD)

    assert len(headers) == 436
    assert header_faults(headers, linked=False, at=at, backend="reference") == []
    for blob in blobs:
        bits = int.from_bytes(blob[-8:-4], "little")
        assert bits_from_target(target_from_bits(bits)) == bits
    assert hashlib.sha256(hashlib.sha256(blobs[0][-80:]).digest()).digest()[-4:] == bytes(4)
