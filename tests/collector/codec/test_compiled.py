"""Machine code, and where it is kept."""

import numba.core.caching
import pytest

from collector.codec.compiled import compiled


def test_without_a_folder_for_machine_code_it_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for a user without a home, as in many containers, under code that others own."""
    monkeypatch.setattr(numba.core.caching.CompileResultCacheImpl, "_locator_classes", [])

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(21) == 42
