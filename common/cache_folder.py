"""The folder of this user for what turnpike downloads."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder of this name in TURNPIKE_CACHE, XDG_CACHE_HOME/turnpike or ~/.cache/turnpike.

    Raises:
        RuntimeError: Neither variable is set, and this user has no home folder.
    """
    if turnpike_cache := os.environ.get("TURNPIKE_CACHE"):
        return Path(turnpike_cache) / name
    # the XDG specification says to ignore relative paths
    xdg_cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = xdg_cache if xdg_cache.is_absolute() else Path.home() / ".cache"
    return home / "turnpike" / name
