"""Fixtures of the gpuhash tests."""

import pytest


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that can run without a GPU."""
    return str(request.param)
