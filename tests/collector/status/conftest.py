"""Start a metrics server for the tests of `status`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.monitor.health import Health
from collector.monitor.http import MonitorServer
from collector.monitor.metrics import Metrics


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Metrics]]:
    """Serve metrics on a free port and return them with the address."""
    metrics = Metrics()
    listener = MonitorServer("127.0.0.1:0", metrics, Health(metrics, {"n": tmp_path}))
    yield f"127.0.0.1:{listener.port}", metrics
    listener.close()
