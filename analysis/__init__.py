"""Answer questions about mining pools in SQL over the collector's dataset.

    from analysis import open_marts
    open_marts("data/dataset").df("pool_share")    # a pandas DataFrame

The first use of a name of this package imports its libraries, which takes a second.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.marts import OpenMarts, open_marts

__all__ = ["OpenMarts", "open_marts"]


def __getattr__(name: str) -> Any:
    """Import the module that defines a name of __all__ when the name is first used, and return its value."""
    if name in __all__:
        return getattr(importlib.import_module("analysis.marts"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
