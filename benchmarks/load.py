"""Load by `wrk`: one thread, and connections that send their next request when they have their answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from benchmarks.bodies import Request
from benchmarks.errors import BenchmarkError, SilentError
from benchmarks.places import HERE

HOST = "127.0.0.1"
# of one answer
PATIENCE = 30


@dataclass(frozen=True)
class Load:
    """What came of a load; `lost` and `refused` were not answered, or not with 200."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    lost: int
    refused: int

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return (self.requests - self.refused) / self.seconds


def expect_wrk() -> None:
    """Stop with a BenchmarkError where there is nothing to load with."""
    if shutil.which("wrk") is None:
        raise BenchmarkError("wrk: expected the load generator on the PATH, found none: apt install wrk")


def drive(port: int, paths: Sequence[str], request: Request, connections: int, seconds: int) -> Load:
    """Load a server for so long."""
    with tempfile.NamedTemporaryFile() as body:
        Path(body.name).write_bytes(request.body)
        told = {
            "BODY": body.name,
            "HEADERS": "\n".join(f"{name}: {value}" for name, value in request.headers.items()),
            "PATHS": "\n".join(paths),
        }
        options = ["-t1", f"-c{connections}", f"-d{seconds}s", f"--timeout={PATIENCE}s", "-s", "load.lua"]
        done = subprocess.run(
            ["wrk", *options, f"http://{HOST}:{port}"],
            cwd=HERE,
            env=os.environ | told,
            capture_output=True,
            text=True,
            timeout=seconds + 2 * PATIENCE,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise BenchmarkError(
            f"wrk: expected figures of {paths[0]}, got: {(done.stderr or done.stdout)[-200:]}"
        )
    return Load(**json.loads(lines[0]))


def ask(port: int, path: str, request: Request) -> tuple[bytes, dict[str, str]]:
    """The answer to one request and its headers, their names in small letters."""
    connection = HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        connection.request("POST", path, request.body, dict(request.headers))
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, HTTPException) as error:
        raise SilentError(f"{path}: expected an answer, got {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise SilentError(f"{path}: expected 200, got {answer.status} {body[:200]!r}")
    return body, {name.lower(): value for name, value in answer.getheaders()}
