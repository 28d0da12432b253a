"""Runs `turnpike serve` on a free port with any options, for benchmarks that ask for more than logits."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT

START_SECONDS = 60


@dataclass(frozen=True)
class OurServer:
    """A server that has loaded its models; `process` is the supervisor, `log` the file of its log."""

    process: psutil.Process
    address: tuple[str, int]
    log: Path


@contextlib.contextmanager
def running_turnpike(
    *options: object,
    python: str | Path = sys.executable,
    variables: Mapping[str, str] | None = None,
    start_seconds: float = START_SECONDS,
) -> Iterator[OurServer]:
    """Run a server, and end it afterwards.

    Arguments:
        options: options of `turnpike serve`
        python: the Python that runs it
        variables: more environment variables
        start_seconds: how long loading its models may take
    """
    with tempfile.TemporaryDirectory(prefix="turnpike-bench-") as folder:
        log = Path(folder) / "log"
        # settings of the service would change what is measured
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE_")}
        # appended to, so that it can be emptied while the server writes
        with log.open("ab") as output:
            server = subprocess.Popen(
                [python, "-m", "turnpike", "serve", "--port", "0", *map(str, options)],
                cwd=ROOT,
                env=inherited | dict(variables or {}),
                stdin=subprocess.DEVNULL,
                stderr=output,
            )
        try:
            end = time.monotonic() + start_seconds
            while (url := re.search(r"serves (http://[^\s\"]+)", log.read_text())) is None:
                if server.poll() is not None or time.monotonic() > end:
                    raise BenchmarkError(f"turnpike: expected a server, got {log.read_text()[-500:]}")
                time.sleep(0.05)
            parts = urlsplit(url[1])
            yield OurServer(psutil.Process(server.pid), (str(parts.hostname), int(parts.port or 0)), log)
        finally:
            server.terminate()
            server.wait()
