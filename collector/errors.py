"""Define the exceptions that the collector raises on purpose.

CollectorError
├── SettingsError       a setting is missing, unknown or contradictory
│   └── WrongUsage          a word of the command line is none that the command takes
├── NodeError           the node cannot be used
│   ├── NodeUnavailable     the node may answer later; only after this error a call is tried again
│   ├── NodeRefused         the node refuses our credentials, or we refuse its certificate
│   │   └── MethodForbidden     the node does not let us call a method
│   ├── WrongChain          the node is on another chain than the settings or the dataset
│   ├── MissingTopic        the node does not publish a ZMQ topic that we need
│   ├── UnusableAnswer      our code fails on an answer of the node
│   └── RpcError            the node answered with an error code
├── DecodeError         bytes do not have the expected format
├── DatasetError        a dataset folder or file cannot be used
│   ├── NoSuchChain         a dataset has data of other chains only
│   ├── RowRefused          a row does not fit its table
│   ├── NotWritable         nothing can be written now; the data is kept and can be written later
│   └── UploadRuns          another upload of the dataset runs
├── FetchError          data of others cannot be downloaded, or is not what its list says
│   └── ServerUnavailable   a server may answer later; only after this error a download is tried again
│       └── ServerUnreachable   no connection can be made; it is tried again a few times at most
├── StoreError          an object store cannot be used, or does not hold what it should
│   ├── StoreUnavailable    the store may answer later; only after this error a request is tried again
│   └── StoreChanged        another process has written what we were about to replace
├── RegtestError        there is no bitcoind, or a scenario is wrong
│   └── NoSuchScenario      no scenario has the name that was given; also a WrongUsage
└── Stopped             the user pressed Ctrl-C; the text says what stays
"""

import errno
from typing import Final

# What the system answers when a disk or a quota is full, or a file has reached its limit (RLIMIT_FSIZE).
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# What may also pass: a disk or folder that was made read-only, a process or system without a free descriptor.
NOT_WRITABLE: Final = NO_SPACE | {errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE}


class CollectorError(Exception):
    """Is the base of all errors raised on purpose. The command line prints its text, without a traceback."""


class SettingsError(CollectorError):
    """Means that a setting is missing, unknown or contradictory."""


class WrongUsage(SettingsError):  # noqa: N818 - what the user did
    """Means that a word of the command line cannot be what it is given for; the exit status is 2."""


class NodeError(CollectorError):
    """Means that the node cannot be used, or has answered something that no supported node answers."""


class NodeUnavailable(NodeError):  # noqa: N818 - a state of the node, not a mistake
    """Means that the node may answer later. Callers try again after this error and after no other."""


class NodeRefused(NodeError):  # noqa: N818 - see above
    """Means that the node refuses our credentials, or that we refuse its certificate."""


class MethodForbidden(NodeRefused):
    """Means that the node does not let us call a method, or does not answer this machine (HTTP 403)."""


class WrongChain(NodeError):  # noqa: N818 - see above
    """Means that the node is on another chain than the settings or the dataset."""


class MissingTopic(NodeError):  # noqa: N818 - see above
    """Means that the node does not publish a ZMQ topic that we need."""


class UnusableAnswer(NodeError):  # noqa: N818 - see above
    """Means that our code fails on an answer, by a fault of ours; the session goes on without the answer."""


class RpcError(NodeError):
    """Means that the node answered with an error; `code` is its JSON-RPC code."""

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"{method}: {message} (code {code})")
        self.method = method
        self.code = code


class DecodeError(CollectorError):
    """Means that bytes, or an answer of the node, do not have the expected format."""


class DatasetError(CollectorError):
    """Means that a dataset folder or file cannot be used."""


class NoSuchChain(DatasetError):  # noqa: N818 - a state of the dataset, not a mistake
    """Means that a dataset has data of other chains only, not of the one that was asked for."""


class RowRefused(DatasetError):  # noqa: N818 - says what happened to the row
    """Means that a row does not fit its table: a column is unknown or missing, or cannot hold the value."""


class NotWritable(DatasetError):  # noqa: N818 - a state of the system, not a mistake
    """Means that the disk is full or read-only, or no descriptor is free; the data can be written later."""


class FetchError(CollectorError):
    """Means that data of others cannot be downloaded, or is not what the list of data sets says."""


class ServerUnavailable(FetchError):  # noqa: N818 - a state of the server, not a mistake
    """Means that a server may answer later. `retry_after_s` is the pause in seconds that it asks for."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ServerUnreachable(ServerUnavailable):
    """Means that no connection to a server can be made: its name is unknown here, or nobody answers there.

    `server` is its name and port.
    """

    def __init__(self, message: str, server: str) -> None:
        super().__init__(message)
        self.server = server


class UploadRuns(DatasetError):  # noqa: N818 - what another process does, not a mistake
    """Means that another upload of the dataset runs; it may be asked again when that has ended."""


class StoreError(CollectorError):
    """Means that an object store cannot be used, or does not hold what it should."""


class StoreUnavailable(StoreError):  # noqa: N818 - a state of the store, not a mistake
    """Means that an object store may answer later. Callers try again after this error and after no other."""


class StoreChanged(StoreError):  # noqa: N818 - what another process did, not a mistake
    """Means that another process has written the object that we were about to replace in a store."""


class RegtestError(CollectorError):
    """Means that there is no bitcoind for a private test network, or that its scenario is wrong."""


class NoSuchScenario(RegtestError, WrongUsage):  # noqa: N818 - see WrongUsage
    """Means that no scenario has the name that was given."""


class Stopped(CollectorError):  # noqa: N818 - what the user did, not a mistake
    """Means that the user pressed Ctrl-C. The text says what stays; the command line ends with status 130."""


def may_pass(error: BaseException) -> bool:
    """Return whether the system may allow later what it just refused: a write, a process, a descriptor."""
    if isinstance(error, OSError):
        return error.errno in {*NOT_WRITABLE, errno.EAGAIN, errno.ENOMEM}
    return isinstance(error, NotWritable)
