"""Answer questions about mining pools in SQL over the collector's dataset.

from analysis import open_marts
open_marts("data/dataset").df("pool_share")    # a pandas DataFrame
"""

from analysis.marts import OpenMarts, open_marts

__all__ = ["OpenMarts", "open_marts"]
