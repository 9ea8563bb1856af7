"""What a node is warned of before it is watched."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from collector.preflight import warn_of_unwise


def notifiers(**limits: int) -> list[dict[str, Any]]:
    """Return what `getzmqnotifications` says of topics with these high-water marks."""
    return [
        {"type": f"pub{topic}", "address": "tcp://127.0.0.1:1", "hwm": hwm} for topic, hwm in limits.items()
    ]


def test_the_settings_of_the_readme_are_not_warned_of() -> None:
    """Limits as in the README, or none at all (0), leave nothing to say."""
    with capture_logs() as said:
        warn_of_unwise("alpha", {}, notifiers(sequence=100_000, rawtx=100_000, rawblock=1000))
        warn_of_unwise("alpha", {}, notifiers(sequence=0, rawtx=0, rawblock=0))
    assert said == []


@pytest.mark.parametrize("topic", ["sequence", "rawtx"])
def test_a_small_queue_is_named_with_the_setting_that_mends_it(topic: str) -> None:
    """The default of 1,000 drops messages at a block of some thousand transactions."""
    with capture_logs() as said:
        warn_of_unwise("alpha", {}, notifiers(**{"sequence": 10_000, "rawtx": 10_000, topic: 1000}))
    (warning,) = said
    assert warning["event"] == "zmq.small_queue"
    assert warning["advice"] == f"set zmqpub{topic}hwm=100000 in bitcoin.conf"


def test_a_pruned_node_is_named_with_the_height_it_begins_at() -> None:
    """Blocks below that height cannot be fetched."""
    with capture_logs() as said:
        warn_of_unwise("alpha", {"pruned": True, "pruneheight": 700}, notifiers())
    assert [(warning["event"], warning["from_height"]) for warning in said] == [("node.pruned", 700)]
