"""A server of ours with the settings of a candidate."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tune.child import Child, turnpike
from tune.errors import ServeError
from tune.interrupt import Check

# seconds that a server has to load its models
READY = 300.0
_ADDRESS = re.compile(r'turnpike serves (https?://[^\s"]+)')


@contextmanager
def served(words: Sequence[str], check: Check) -> Iterator[str]:
    """The address of a `turnpike serve` with these options, on a port of its own, while the block runs."""
    with Child(turnpike("serve", *words), check) as child:
        yield _address(child)


def _address(child: Child) -> str:
    until = time.monotonic() + READY
    for _ in child.looks():
        if found := _ADDRESS.search(child.said):
            return found[1]
        if time.monotonic() > until:
            raise ServeError(f"turnpike serve: expected it to be ready within {READY:g} s, and it was not")
    raise ServeError(f"turnpike serve: {child.complaint}")
