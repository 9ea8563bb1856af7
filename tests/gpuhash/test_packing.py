"""What the batch functions accept and what they refuse."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuhash


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_flat_bytes_with_offsets_are_hashed_message_by_message(messages: list[bytes]) -> None:
    """Messages of any lengths, none at all included, each give their own digest."""
    digests = gpuhash.sha256_batch(gpuhash.join(messages), backend="reference")

    assert [row.tobytes() for row in digests] == [hashlib.sha256(message).digest() for message in messages]
    assert digests.shape == (len(messages), 32)
    assert digests.dtype == np.uint8


def test_offsets_may_start_inside_the_bytes() -> None:
    """Offsets select; bytes before the first and after the last are not hashed."""
    flat = np.frombuffer(b"..abc..", np.uint8)

    digest = gpuhash.sha256_batch((flat, np.array([2, 5])), backend="reference")

    assert digest[0].tobytes() == hashlib.sha256(b"abc").digest()


def test_a_strided_matrix_is_hashed_by_its_rows() -> None:
    """Every second column of a matrix is a matrix, though not contiguous."""
    matrix = np.arange(600, dtype=np.uint16).astype(np.uint8).reshape(10, 60)[:, ::2]

    digests = gpuhash.sha256_batch(matrix, backend="reference")

    assert [row.tobytes() for row in digests] == [hashlib.sha256(row.tobytes()).digest() for row in matrix]


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        (np.zeros((2, 3), np.int8), "dtype int8"),
        (np.zeros((2, 3), np.float64), "dtype float64"),
        (np.zeros(3, np.uint8), r"shape \(3,\)"),
        (np.zeros((1, 2, 3), np.uint8), r"shape \(1, 2, 3\)"),
        ([b"abc"], "is a list"),
        ((np.zeros(3, np.uint8),), "tuple of 1"),
        ((np.zeros(3, np.int8), np.array([0, 3])), "dtype int8"),
        ((np.zeros(3, np.uint8), np.array([0.0, 3.0])), "dtype float64"),
        ((np.zeros(3, np.uint8), np.array([[0, 3]])), r"shape \(1, 2\)"),
        ((np.zeros(3, np.uint8), np.array([], np.int64)), r"shape \(0,\)"),
        ((np.zeros(3, np.uint8), np.array([0, 4])), "from 0 to 4 over 3 bytes"),
        ((np.zeros(3, np.uint8), np.array([-1, 3])), "from -1 to 3"),
        ((np.zeros(3, np.uint8), [[0], [1, 2]]), "no row of integers"),
        ((np.zeros(3, np.uint8), np.array([0, 1 << 63], np.uint64)), "offset 9223372036854775808 is beyond"),
        ((np.zeros(3, np.uint8), np.array([0, 2, 1, 3])), "offset 2 is 1, less than the 2 before"),
    ],
)
def test_input_that_does_not_fit_is_refused(messages: object, complaint: str) -> None:
    """The error names what was seen; nothing is hashed."""
    with pytest.raises(gpuhash.InvalidInputError, match=complaint):
        gpuhash.sha256d_batch(messages)  # type: ignore[arg-type]


@pytest.mark.parametrize("messages", ["abc", ["abc"], [1], [memoryview(np.zeros(3, np.int32))]])
def test_joining_what_is_not_bytes_is_refused(messages: object) -> None:
    """Text, numbers, and a view whose elements are larger than a byte would give wrong digests."""
    with pytest.raises(gpuhash.InvalidInputError, match="bytes"):
        gpuhash.join(messages)  # type: ignore[arg-type]


def test_headers_need_80_bytes() -> None:
    """A header of another size is refused."""
    with pytest.raises(gpuhash.InvalidInputError, match="rows of 79 bytes; 80"):
        gpuhash.sha256d_headers(np.zeros((2, 79), np.uint8))


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    """The error for a wrong algorithm or backend lists those that exist."""
    with pytest.raises(gpuhash.UnknownAlgorithmError, match=r"md5.*sha256d, sha256, keccak256, sha3-256"):
        gpuhash.hash_batch("md5", np.zeros((1, 1), np.uint8))
    with pytest.raises(gpuhash.UnknownAlgorithmError, match=r"tpu.*auto"):
        gpuhash.sha256_batch(np.zeros((1, 1), np.uint8), backend="tpu")
