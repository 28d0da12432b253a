"""Waiting for a condition that another process or thread makes true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(
    condition: Callable[[], Any],
    seconds: float = 30,
    allowed: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Return the first true result of a condition, which may raise the allowed exceptions until then."""
    end = time.monotonic() + seconds
    while True:
        try:
            if result := condition():
                return result
        except allowed:
            pass
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.02)
