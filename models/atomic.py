"""Atomic file writes: a file appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; after the block has written it, it replaces `path`.

    If the block is stopped by an error, Ctrl-C or a full disk, the old file stays unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield draft
        # some libraries create files that only their owner can read
        draft.chmod(0o666 & ~umask())
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def umask() -> int:
    """The permission bits that this process clears in new files. The only way to read it is to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
