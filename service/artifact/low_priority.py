"""A thread whose work may wait: it takes the CPUs that requests leave over, and is given some in any case."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

# the least share of a CPU that Linux gives beside an ordinary thread is a seventieth; the class for what is
# idle gets next to nothing, which is too little for who holds the interpreter's lock
LOWEST_PRIORITY = 19


class Caller(Protocol):
    """Calls a function, here or elsewhere, and gives what it returns or raises."""

    def __call__(self, do: Callable[..., Result], /, *given: Any) -> Result: ...


def call_directly(do: Callable[..., Result], /, *given: Any) -> Result:
    """Call it here and now."""
    return do(*given)


@contextlib.contextmanager
def low_priority_caller() -> Iterator[Caller]:
    """Calls in such a thread, for which the caller waits.

    They are to be calls that let go of the interpreter's lock for nearly all of their time, as those of
    onnxruntime, hashes and files do: a thread that waits for a CPU while it holds the lock makes all wait.
    """
    with ThreadPoolExecutor(1, "aside", initializer=_lower_priority) as pool:

        def call(do: Callable[..., Result], /, *given: Any) -> Result:
            return pool.submit(do, *given).result()

        yield call


def _lower_priority() -> None:
    """Linux keeps a priority for each thread."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
