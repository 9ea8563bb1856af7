"""The database in which tests build many small worlds."""

from collections.abc import Iterator

import pytest

from tests.analysis.shared_build import SharedBuild, shared_build


@pytest.fixture(scope="session")
def shared() -> Iterator[SharedBuild]:
    """Open a database in memory with the pool rules of the cases."""
    with shared_build() as opened:
        yield opened
