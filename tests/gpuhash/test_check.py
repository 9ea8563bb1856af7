"""The comparison a user runs on a machine of their own."""

import numpy as np

from gpuhash import check
from gpuhash.cpu import CpuBackend
from gpuhash.packing import Batch, Bytes
from gpuhash.reference import Algorithm


def test_the_cpu_backend_passes() -> None:
    """Every comparison holds, and there is one per algorithm and layout."""
    results = list(check.run(CpuBackend(), message_count=500))

    assert len(results) == 3 * len(Algorithm) + 1
    assert [result for result in results if not result.passed] == []


def test_wrong_digests_are_counted_and_located() -> None:
    """A backend that spoils digest 7 is reported with that number, a search that misses nonces too."""

    class Spoilt(CpuBackend):
        def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
            digests = super().hash_batch(which, batch)
            digests[7:9] ^= np.uint8(1)
            return digests

        def search(self, *_: object) -> list[int]:
            return []

    faults = {
        result.name: result.fault for result in check.run(Spoilt(), message_count=50) if not result.passed
    }

    assert faults["cpu sha256d: 50 of 64 bytes"] == "2 digests differ, the first is number 7"
    assert faults["cpu sha256d: padding edges"].startswith("backend cpu gives wrong sha256d")
    assert "other nonces" in faults["cpu: header search"]
