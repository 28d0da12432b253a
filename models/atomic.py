"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path`; when the block has written it, it takes the place of `path`.

    Whatever stops the block (an error, Ctrl-C, a full disk), the old file stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield draft
        # some libraries write files that only their owner may read
        draft.chmod(0o666 & ~umask())
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def umask() -> int:
    """What this process takes from the modes of new files; asking for it means setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
