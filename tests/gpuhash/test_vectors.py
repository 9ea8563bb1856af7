"""Published known answers: NIST CAVP for SHA-256 and SHA3-256, the Keccak team's for Keccak-256."""

import re
from pathlib import Path

import numpy as np
import pytest
import zstandard

import gpuhash
from gpuhash.chain import header_faults, split_headers

pytestmark = pytest.mark.data

FILES = [
    ("sha256", "nist-cavp/SHA256ShortMsg.rsp", 65),
    ("sha256", "nist-cavp/SHA256LongMsg.rsp", 64),
    ("sha3-256", "nist-cavp/SHA3_256ShortMsg.rsp", 137),
    ("sha3-256", "nist-cavp/SHA3_256LongMsg.rsp", 100),
    ("sha3-256", "keccak-kat/ShortMsgKAT_SHA3-256.txt", 256),
    ("keccak256", "keccak-kat/ShortMsgKAT_256.txt", 256),
    ("keccak256", "keccak-kat/LongMsgKAT_256.txt", 20),
]


def known_answers(path: Path) -> list[tuple[bytes, str]]:
    """Read the messages of whole bytes and their digests from a file of either format."""
    found = []
    for length, message, digest in re.findall(
        r"^Len = (\d+)\s+Msg = (\w+)\s+(?:MD|Squeezed) = (\w+)", path.read_text(), re.MULTILINE
    ):
        if int(length) % 8 == 0:
            found.append((bytes.fromhex(message)[: int(length) // 8], digest.lower()))
    return found


@pytest.mark.parametrize(("algorithm", "file", "at_least"), FILES)
def test_known_answers(data_dir: Path, backend: str, algorithm: str, file: str, at_least: int) -> None:
    """All messages of a file, hashed as one batch of mixed lengths, have the published digests."""
    answers = known_answers(data_dir / file)

    digests = gpuhash.hash_batch(
        algorithm, gpuhash.join([message for message, _ in answers]), backend=backend
    )

    assert len(answers) >= at_least
    assert [row.tobytes().hex() for row in digests] == [digest for _, digest in answers]


def test_real_headers_carry_their_work_and_form_a_chain(data_dir: Path, backend: str) -> None:
    """The first 10,237 headers of mainnet; one flipped bit breaks its work and the next link."""
    packed = (data_dir / "floresta/mainnet_headers_0_10236.zst").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
        headers = split_headers(np.frombuffer(bytearray(stream.read()), np.uint8))

    assert len(headers) == 10_237
    assert header_faults(headers, backend=backend) == []
    headers[5000, 40] ^= 1
    assert [fault.index for fault in header_faults(headers, backend=backend)] == [5000, 5001]


def test_monte_carlo_chain(data_dir: Path, backend: str) -> None:
    """The SHA-256 Monte Carlo test of CAVP: 1,000 dependent hashes for each of its first checkpoints."""
    text = (data_dir / "nist-cavp/SHA256Monte.rsp").read_text()
    seed = bytes.fromhex(re.findall(r"^Seed = (\w+)", text, re.MULTILINE)[0])
    expected = re.findall(r"^MD = (\w+)", text, re.MULTILINE)[:3]

    for checkpoint in expected:
        window = [seed] * 3
        for _ in range(1000):
            message = gpuhash.join([b"".join(window)])
            window = [*window[1:], gpuhash.sha256_batch(message, backend=backend)[0].tobytes()]
        seed = window[-1]
        assert seed.hex() == checkpoint
