"""Everything the collector raises on purpose.

CollectorError
├── SettingsError       a setting is missing, unknown or contradictory
├── NodeError           the node cannot serve us as it is
│   ├── NodeUnavailable     it may answer later; callers retry on this and on nothing else
│   ├── NodeRefused         it does not accept our credentials, or we not its certificate
│   ├── WrongChain          it is on another chain than the settings or the dataset say
│   ├── MissingTopic        it does not publish a ZMQ topic we need
│   └── RpcError            it answered with an error code
├── DecodeError         bytes are not what they should be
├── DatasetError        a dataset folder or file cannot be used
│   └── NoSpace             the disk is full; what was to be written is kept, and can be written later
└── RegtestError        no bitcoind to be had, or a scenario is wrong
"""

import errno
from typing import Final

# What the system answers when a disk or a quota is full, or a file has reached its limit (RLIMIT_FSIZE).
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class CollectorError(Exception):
    """Anything the collector raises on purpose. The command line prints it without a traceback."""


class SettingsError(CollectorError):
    """A setting is missing, unknown or contradictory."""


class NodeError(CollectorError):
    """The node cannot serve us as it is."""


class NodeUnavailable(NodeError):  # noqa: N818 - a state of the node, not a mistake
    """The node may answer later; callers retry on this and on nothing else."""


class NodeRefused(NodeError):  # noqa: N818 - see above
    """The node does not accept our credentials, or we do not accept its certificate."""


class WrongChain(NodeError):  # noqa: N818 - see above
    """The node is on another chain than the settings or the dataset say."""


class MissingTopic(NodeError):  # noqa: N818 - see above
    """The node does not publish a ZMQ topic we need."""


class RpcError(NodeError):
    """The node answered with an error; `code` is its JSON-RPC code."""

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"{method}: {message} (code {code})")
        self.method = method
        self.code = code


class DecodeError(CollectorError):
    """Bytes are not what they should be."""


class DatasetError(CollectorError):
    """A dataset folder or file cannot be used."""


class NoSpace(DatasetError):  # noqa: N818 - a state of the disk, not a mistake
    """The disk has no room now; what was to be written is kept, and can be written later."""


class RegtestError(CollectorError):
    """No bitcoind to be had, or a scenario is wrong."""
