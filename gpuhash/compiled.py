"""Compile functions with numba and keep the machine code on disk, in a folder per version of the sources.

numba's own cache looks only at the file of the compiled function. A compiled function also contains the code
of the functions that it calls, which may stand in other modules of its package. The folder of the machine
code is therefore named after a digest of all modules of the package. A change in any of them starts a new
folder, so old machine code never runs under new sources.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import core, njit

config: Any = core.config
log = logging.getLogger("gpuhash")

Function = TypeVar("Function", bound=Callable[..., Any])


def compiler(package: str) -> Callable[[Function], Function]:
    """Return the decorator that compiles the functions of a package, such as `collector.codec`.

    A decorated function is compiled at its first call, or taken from the disk where an earlier process has
    compiled the same sources. It may call functions of its own package and of libraries, no others. It runs
    without the GIL. Where no folder can be written, each process compiles for itself.
    """

    def compile_function(function: Function) -> Function:
        folder = cache_folder(package)
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            return cast(Function, njit(nogil=True, cache=folder is not None)(function))
        except RuntimeError:  # numba can keep nothing for this function: it is in no file
            return cast(Function, njit(nogil=True)(function))
        finally:
            config.CACHE_DIR = before

    return compile_function


@cache
def cache_folder(package: str) -> Path | None:
    """Make and return the folder for the machine code of a package; return None if it cannot be written.

    The folder stands below $NUMBA_CACHE_DIR, $XDG_CACHE_HOME or ~/.cache: the first of them that is set.
    """
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        parent = (Path(base) if base else Path.home() / ".cache") / "gpuhash"
        folder = parent / f"{package}-{source_digest(package)}"
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _warn_once(f"{parent}: {error.strerror}")
        return None
    except RuntimeError as error:  # the user has no home
        _warn_once(str(error))
        return None
    return folder


def source_digest(package: str) -> str:
    """Return the first 16 hex digits of the SHA-256 over all source files of a package."""
    spec = find_spec(package)
    total = hashlib.sha256()
    for folder in (spec and spec.submodule_search_locations) or []:
        for source in sorted(Path(folder).rglob("*.py")):
            total.update(source.read_bytes())
    return total.hexdigest()[:16]


@cache
def _warn_once(reason: str) -> None:
    log.warning("compiled code is not kept for the next start: %s", reason)


compiled = compiler("gpuhash")
