"""Imports of large libraries by a command that is called, with Python's garbage collector paused."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Import in the block. Imported objects stay until the process ends, so the collector need not see them.

    PyTorch and its exporter create over a million objects. Without the pause, the collector visits them
    again and again, which takes a third of the time of a small export.
    """
    before = len(sys.modules)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:  # in a process that has them already, all objects stay visible
            gc.freeze()
        if was_enabled:
            gc.enable()
