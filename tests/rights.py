"""Giving up what root may, to be refused what any other user is refused."""

import os
import shutil

import pytest


def without_rights() -> tuple[str, ...]:
    """Return what a command begins with so that files of mode 0 are closed to it; skips where nothing can."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root may read everything, and there is no setpriv to give that up")
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
