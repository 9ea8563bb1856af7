"""Define the errors that the analysis raises on purpose; all of them are AnalysisErrors."""


class AnalysisError(Exception):
    """Is the base of every error that the analysis raises on purpose.

    The CLI prints it without a traceback.
    """


class WrongUsageError(AnalysisError):
    """Means that a word of the command line is none that the command takes; the exit status is 2."""


class RulesError(AnalysisError):
    """Means that the pool rules are missing, malformed or contradictory; the message names file and entry."""


class AddressError(RulesError):
    """Means that the value of the key `address` in a pool rule is not a Bitcoin address."""


class ReportError(AnalysisError):
    """Means that the report cannot be made: the database lacks a mart, or a file cannot be written."""


class DatasetError(AnalysisError):
    """Means that the dataset cannot be read; the message names the folder or the file."""


class NoSuchChainError(DatasetError):
    """Means that a dataset has data of other chains only, not of the one that was asked for."""


class DatasetGoneError(DatasetError):
    """Means that a query needs the dataset that a database was built from, and that it is not there."""


class CatalogError(AnalysisError):
    """Means that an SQL file of this package breaks the rules of the catalog; the message names the file."""


class DatabaseError(AnalysisError):
    """Means that the database cannot be read or written, or that `pool-analysis build` did not make it."""


class NoRoomError(DatabaseError):
    """Means that a database cannot be written where it should be, or needs more memory or disk than there is.

    `fault` is the message without the advice, which names options of `pool-analysis build`.
    """

    def __init__(self, fault: str, advice: str) -> None:
        super().__init__(f"{fault}; {advice}")
        self.fault = fault


class PublishedDataError(AnalysisError):
    """Means that a file which a paper's authors published is missing or has changed; the message names it."""


class ReleaseError(AnalysisError):
    """Means that a release cannot be written, or that a folder is not what was released."""


class MomentError(DatabaseError):
    """Means that no mempool can be replayed: the text is no time, or no such node was watched."""


class NoMomentError(MomentError):
    """Means that a text is no time, or one in a year that no dataset has."""


class UnknownNodeError(MomentError):
    """Means that no node of the given name was watched; `nodes` are the names of those that were.

    The message repeats no name, because strangers can ask over HTTP; the command line adds them.
    """

    def __init__(self, nodes: tuple[str, ...]) -> None:
        super().__init__("no node of this name was watched")
        self.nodes = nodes


class UnknownRelationError(DatabaseError):
    """Means that no mart or staging view has the given name; the message gives the nearest names."""


class ServeError(AnalysisError):
    """Means that the web page cannot be served: its address is in use, or open to all by mistake."""


class WarehouseError(AnalysisError):
    """Means that another SQL engine (Spark) is missing, or that models cannot be written or run there."""


class UnknownEngineError(WarehouseError, WrongUsageError):
    """Means that the name of an engine is neither ours nor the address of a Spark cluster."""
