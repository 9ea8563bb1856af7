"""Everything the analysis raises on purpose, in one tree."""


class AnalysisError(Exception):
    """Anything the analysis raises on purpose. The CLI prints it without a traceback."""


class RulesError(AnalysisError):
    """The pool rules cannot be used as they are; the message names file and entry."""


class AddressError(RulesError):
    """A text that should be a Bitcoin address is none."""


class ReportError(AnalysisError):
    """The report cannot be made: the database lacks what it shows, or the file cannot be written."""


class DatasetError(AnalysisError):
    """The dataset cannot be read as it is; the message names folder or file."""


class CatalogError(AnalysisError):
    """A SQL file of ours is not what the catalog asks for; the message names the file."""


class DatabaseError(AnalysisError):
    """The database cannot be written, or is none that `pool-analysis build` has made."""


class PublishedDataError(AnalysisError):
    """Files that others published are missing, or are not what they were; the message names the file."""
