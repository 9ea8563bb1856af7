"""Import packages that come only with an extra of this one, such as `pool-measurement[spark]`."""

import importlib
import sys
from typing import Any

from collector.errors import SettingsError


def import_extra(module: str, extra: str, needs: str, error: type[Exception] = SettingsError) -> Any:
    """Import a module of a package that comes with an extra of this one, and return it.

    Where it cannot be imported, `error` is raised. Its message begins with `needs`, as in "Spark needs
    PySpark", and says how to install the extra into the Python that runs.
    """
    try:
        return importlib.import_module(module)
    except ImportError as reason:
        # No index has our package. Where it is installed, pip keeps it and adds what the extra needs.
        command = f"{sys.executable} -m pip install 'pool-measurement[{extra}]'"
        raise error(f"{needs} ({reason}); install it with {command}") from None
