"""Everything the analysis raises on purpose, in one tree."""


class AnalysisError(Exception):
    """Anything the analysis raises on purpose. The CLI prints it without a traceback."""


class RulesError(AnalysisError):
    """The pool rules cannot be used as they are; the message names file and entry."""


class AddressError(RulesError):
    """A text that should be a Bitcoin address is none."""
