"""Runs calls in a low-priority thread, so that loading a model does not slow down requests."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

# Niceness. Linux gives such a thread about a seventieth of the CPU time of an ordinary one beside it.
# SCHED_IDLE would give next to none, which is too little for a thread that may hold the interpreter's lock.
LOWEST_PRIORITY = 19


class Caller(Protocol):
    """Calls a function, in this thread or another, and returns its result or raises its exception."""

    def __call__(self, function: Callable[..., Result], /, *args: Any) -> Result: ...


def call_directly(function: Callable[..., Result], /, *args: Any) -> Result:
    """Call the function in this thread, at its own priority."""
    return function(*args)


@contextlib.contextmanager
def low_priority_caller() -> Iterator[Caller]:
    """A caller that runs functions in a low-priority thread and waits for them.

    Use it only for functions that release the interpreter's lock for nearly all of their time, as those of
    onnxruntime, hashlib and files do. A low-priority thread that waits for a CPU while it holds the lock
    stops every other thread.
    """
    with ThreadPoolExecutor(1, "low-priority", initializer=_lower_priority) as pool:

        def call(function: Callable[..., Result], /, *args: Any) -> Result:
            return pool.submit(function, *args).result()

        yield call


def _lower_priority() -> None:
    # on Linux, niceness belongs to the thread and not to the process
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
