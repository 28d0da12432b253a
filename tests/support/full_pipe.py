"""A pipe that is full, so that a write to it waits for a reader."""

from __future__ import annotations

import contextlib
import os


def full_pipe() -> tuple[int, int]:
    """Both ends of a pipe with room for no byte more. It holds line ends."""
    read_end, write_end = os.pipe()
    # opened anew, as O_NONBLOCK would apply to everyone who has the same end
    filling = os.open(f"/proc/self/fd/{write_end}", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filling, b"\n" * size)
    os.close(filling)
    return read_end, write_end
