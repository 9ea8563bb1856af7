"""The errors that the analysis raises on purpose; all of them are AnalysisErrors."""


class AnalysisError(Exception):
    """Anything the analysis raises on purpose. The CLI prints it without a traceback."""


class RulesError(AnalysisError):
    """The pool rules cannot be used as they are; the message names file and entry."""


class AddressError(RulesError):
    """A text is not a Bitcoin address, although it stands where one is expected."""


class ReportError(AnalysisError):
    """The report cannot be made: the database lacks what it shows, or the file cannot be written."""


class DatasetError(AnalysisError):
    """The dataset cannot be read as it is; the message names folder or file."""


class CatalogError(AnalysisError):
    """One of the SQL files of this package breaks the rules of the catalog; the message names the file."""


class DatabaseError(AnalysisError):
    """The database cannot be read or written, or `pool-analysis build` did not make it."""


class PublishedDataError(AnalysisError):
    """A file that a paper's authors published is missing or has changed; the message names the file."""


class UnknownRelationError(DatabaseError):
    """No mart and no staging view has the name that was asked for; the message gives the nearest names."""
