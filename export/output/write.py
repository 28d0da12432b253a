"""The last step: a file that appears whole, opened once as it will be served, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from models.atomic import replacing


def write(path: Path, data: bytes, check: Callable[[Path], None]) -> None:
    """Write the bytes beside `path`, check the file that they made, and put it in place.

    Whatever stops it, the old file stays, and no folder is left that was not there.
    """
    with folders(path.parent), replacing(path) as draft:
        draft.write_bytes(data)
        check(draft)


@contextlib.contextmanager
def folders(folder: Path) -> Iterator[None]:
    """Make a folder and those above it, and take those that were made away again if the block fails."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for one in made:
            with contextlib.suppress(OSError):  # not made yet, or in use by someone else by now
                one.rmdir()
        raise
