"""A pickle that runs code, to show that it is never opened."""

from __future__ import annotations

from pathlib import Path


class PickleTrap:
    """Creates a file when it is unpickled."""

    def __init__(self, created: Path) -> None:
        self.created = created

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.created,))
