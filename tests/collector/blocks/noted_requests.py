"""A stand-in for the node behind a BlockTracker: it notes what is asked for."""


class NotedRequests:
    """The requests of a tracker, which a test answers itself."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def ask_block(self, block_hash: bytes, *, needs_raw: bool) -> None:  # noqa: ARG002 - always answered
        """Note the block that is asked for."""
        self.asked.append(block_hash)

    def ask_if_behind(self) -> None:
        """Do nothing: a test answers this unasked."""
