"""Provide a stand-in for the node behind a BlockTracker, which records the requests."""


class NotedRequests:
    """Records the requests of a tracker; the test answers them itself."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def ask_block(self, block_hash: bytes, *, needs_raw: bool) -> None:  # noqa: ARG002 - always answered
        """Record the hash of the block that is asked for."""
        self.asked.append(block_hash)

    def ask_if_behind(self) -> None:
        """Do nothing, because a test answers this without a request."""
