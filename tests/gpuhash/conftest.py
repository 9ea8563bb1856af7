"""Fixtures of the gpuhash tests."""

import pytest


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """Return, one after the other, each backend that runs without a GPU."""
    return str(request.param)
