"""What only a GPU can show: the kernels as its compiler built them, through CuPy as it is.

`make gpu` runs these, and the same comparisons without pytest. They are skipped where there is no device.
"""

import numpy as np
import pytest

import gpuhash
from gpuhash import check
from gpuhash.cuda_device import devices
from gpuhash.errors import BackendUnavailableError

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _device() -> None:
    try:
        devices()
    except BackendUnavailableError as missing:
        pytest.skip(str(missing))


def test_every_variant_on_every_device() -> None:
    """All kernels in all variants give the digests of the reference, streamed and device-resident."""
    faults = [result for result in check.run_cuda(message_count=20_000) if not result.passed]

    assert faults == []


def test_a_million_messages_on_gpu_and_cpu() -> None:
    """Two independent implementations agree on a million random messages per algorithm."""
    messages = check.random_messages(1_000_000, seed=7)

    for algorithm in ("sha256d", "sha256", "keccak256", "sha3-256"):
        on_gpu = gpuhash.hash_batch(algorithm, messages, backend="cuda")
        assert np.array_equal(on_gpu, gpuhash.hash_batch(algorithm, messages, backend="cpu"))


def test_the_genesis_block_is_found_in_the_whole_range() -> None:
    """A search over all 2^32 nonces finds the genesis block's nonce, and returns it once."""
    header = bytes.fromhex(
        "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e"
        "67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
    )

    assert gpuhash.search_header(header, 0xFFFF << 208, backend="cuda").count(2083236893) == 1
