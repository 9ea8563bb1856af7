"""Keep libraries from loading other libraries that no part of the collector uses."""

import sys
from importlib.abc import MetaPathFinder
from typing import Final

UNNEEDED: Final = ("pandas", "scipy.linalg")


class _Hidden(MetaPathFinder):
    """Makes the import of each unneeded library fail as if it were not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in UNNEEDED:
            raise ModuleNotFoundError(fullname)


def hide_unneeded() -> None:
    """Let each import of pandas and of SciPy's linear algebra fail from now on in this process.

    Arrow imports pandas when it makes its first array from a list (60 MB and a third of a second). numba
    looks once for SciPy's linear algebra (50 MB). Both do without.
    """
    sys.meta_path.insert(0, _Hidden())
