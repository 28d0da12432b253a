"""One of several processes of tests at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Wait until no other process holds the lock on this file, which is created if there is none."""
    file.parent.mkdir(exist_ok=True)
    with file.open("w") as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
