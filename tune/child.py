"""Commands of ours as processes of their own, which end when they are no longer wanted."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tune.interrupt import Check

# by their paths: the folder we are in may hold other files of these names
ROOT = Path(__file__).parent.parent
TURNPIKE = ROOT / "turnpike.py"
# seconds between looks, and those that a process has to end before it is killed
LOOK, END = 0.1, 10.0
# of what a process says on standard error, as much is kept
KEPT = 16 * 1024
_ERROR = re.compile(r"^error: (.*)", re.MULTILINE)


def turnpike(*words: str) -> list[str]:
    """A command of ours."""
    return [sys.executable, str(TURNPIKE), *words]


def module(name: str, *words: str) -> list[str]:
    """A module of ours that is a program."""
    begin = f"import runpy, sys; sys.path[0] = {str(ROOT)!r}; runpy.run_module({name!r}, run_name='__main__')"
    return [sys.executable, "-c", begin, *words]


class Child:
    """A command under way; ended at the end of its block, with all processes that it started.

    It is in a session of its own: Ctrl-C at a terminal reaches this process alone, which ends the others.
    """

    def __init__(self, command: Sequence[str], check: Check) -> None:
        self._command, self._check = command, check
        self._said = b""

    def __enter__(self) -> Self:
        # our own programs, and no shell reads the words
        self._process = subprocess.Popen(  # noqa: S603
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._listener.join(END)

    @property
    def said(self) -> str:
        """The end of what it said on standard error."""
        return self._said.decode("utf-8", "replace")

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    @property
    def complaint(self) -> str:
        """The error it ended with, in its own words."""
        found = _ERROR.findall(self.said)
        return found[-1] if found else f"it ended with status {self.status} and without a word"

    def looks(self) -> Iterator[None]:
        """A look now and then for as long as it runs, unless somebody wants all to stop."""
        while self._process.poll() is None:
            self._check()
            yield
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK)
        # what it said last has been heard
        self._listener.join(END)

    def finish(self) -> int:
        """Wait for its end, and give its exit status."""
        for _ in self.looks():
            pass
        return self._process.wait()

    def _listen(self, pipe: IO[bytes]) -> None:
        # a server writes a line a request: it is read as fast as it comes, so that nobody waits for us
        with pipe:
            while piece := os.read(pipe.fileno(), 1 << 16):
                self._said = (self._said + piece)[-KEPT:]
