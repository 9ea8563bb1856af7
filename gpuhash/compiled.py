"""Compile a loop with numba and keep the machine code on disk, bound to the sources it came from.

numba's own cache looks only at the file of the function. Ours are made of instructions that other
modules emit, so the folder is named after a digest of all modules here: a change in any of them starts a
new folder, and old machine code can never run under new sources.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import core, njit

config: Any = core.config
log = logging.getLogger("gpuhash")


def compiled(function: Callable[..., Any]) -> Any:
    """Compile function when it is first called, without the GIL; reuse what an earlier process compiled."""
    folder = cache_folder()
    if folder is None:
        return njit(nogil=True)(function)
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        return njit(nogil=True, cache=True)(function)
    finally:
        config.CACHE_DIR = before


@cache
def cache_folder() -> Path | None:
    """Where machine code of these sources is kept, or None when no such folder can be written.

    Below $NUMBA_CACHE_DIR, $XDG_CACHE_HOME or ~/.cache, the first that is set.
    """
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".cache") / "gpuhash" / source_digest()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        log.warning("compiled code is not kept for the next start: %s", error)
        return None
    return folder


def source_digest() -> str:
    """First 16 hex digits of the SHA-256 over the modules of this package."""
    total = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        total.update(source.read_bytes())
    return total.hexdigest()[:16]
