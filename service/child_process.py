"""Short-lived child processes for work that may hang or crash, such as reading a store or trying a model.

The parent is the supervisor, which forks workers and should stay small, or a replica on Ray. The child starts
as a new interpreter, so it shares nothing with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import turnpike

# where Python finds turnpike, which need not be installed
IMPORT_ROOT = Path(turnpike.__file__).parents[1]
# IMPORT_ROOT is on the path only until turnpike is imported, as it may hold all installed packages
PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); import turnpike; del sys.path[0]; "
    "from turnpike.service.child_process import run_main; run_main(sys.argv[2], int(sys.argv[3]))"
)
# how long to wait for the end of a killed child, and how often to look
REAP_SECONDS, POLL_SECONDS = 1.0, 0.01
# Linux's prctl: the signal that a process gets when its parent ends
PR_SET_PDEATHSIG = 1
# how often a child looks for its parent, where the kernel does not tell
PARENT_SECONDS = 0.5


@dataclass(frozen=True)
class Child:
    """A running child. `output` has what it prints, errors included, until it ends."""

    process: subprocess.Popen[bytes]
    output: asyncio.StreamReader

    async def status(self) -> int:
        """Wait for its end: the exit status, or -signal."""
        while (status := self.process.poll()) is None:
            await asyncio.sleep(POLL_SECONDS)
        return status


@contextlib.asynccontextmanager
async def child_process(module: str, request: bytes) -> AsyncIterator[Child]:
    """A process that runs `main` of a module, with the request as its standard input.

    It is killed at the end of the block, with all that it started.

    The classes of asyncio for processes start a thread for each child in Python 3.11.

    Raises:
        OSError: No process can be started.
    """
    read_end, write_end = os.pipe()
    # a file in memory, unlike a pipe, takes a request of any length at once
    memory = os.memfd_create("request")
    with os.fdopen(read_end, "rb", buffering=0) as pipe, os.fdopen(memory, "w+b") as stdin:
        try:
            stdin.write(request)
            stdin.seek(0)
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", PROGRAM, IMPORT_ROOT, module, str(os.getpid())],
                stdin=stdin,
                stdout=write_end,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        try:
            output = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(output), pipe
            )
            with contextlib.closing(transport):
                yield Child(process, output)
        finally:
            await _end(process)


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a child with all that it started, and reap it.

    A process that waits for a device of the kernel ends only after that. It is not waited for: the next child
    that is started reaps it.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    deadline = asyncio.get_running_loop().time() + REAP_SECONDS
    while process.poll() is None and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLL_SECONDS)


def run_main(module: str, parent: int) -> None:
    """In the child: run `main` of a module, and end if the parent ends without ending this process.

    Linux sees to that at once, even while a library keeps the interpreter's lock. Elsewhere a thread does.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    import_module(module).main()


def _watch(parent: int) -> None:
    # also finds a parent that had ended before the call above
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)
