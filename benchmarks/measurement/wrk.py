"""Puts load on a server with `wrk`, and sends single requests.

wrk uses one thread. Each of its connections sends the next request when it has the answer to the last.
"""

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

from benchmarks.contestants.wire_formats import EncodedRequest
from benchmarks.errors import BenchmarkError, FailedRequestError

HOST = "127.0.0.1"
# an answer that takes longer counts as lost
ANSWER_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Load:
    """The counts of a load: `lost` requests had no answer, `refused` ones a status other than 200."""

    requests: int
    seconds: float
    lost: int
    refused: int

    @property
    def rate(self) -> float:
        """Answers with status 200 per second."""
        return (self.requests - self.refused) / self.seconds


@dataclass(frozen=True)
class LoadResult(Load):
    """The counts of wrk, and how long answers took."""

    p50_ms: float
    p99_ms: float
    max_ms: float


def require_wrk() -> None:
    """Raise BenchmarkError unless wrk is installed."""
    if shutil.which("wrk") is None:
        raise BenchmarkError("wrk: expected the load generator on the PATH, found none: apt install wrk")


def run_wrk(
    port: int, paths: Sequence[str], request: EncodedRequest, connections: int, seconds: int
) -> LoadResult:
    """Send a request again and again to a server of this machine.

    Arguments:
        port: port of the server
        paths: where requests go in turn
        request: body and headers
        connections: number of connections
        seconds: duration
    """
    with tempfile.NamedTemporaryFile() as body:
        Path(body.name).write_bytes(request.body)
        # variables that wrk.lua reads
        variables = {
            "BODY": body.name,
            "HEADERS": "\n".join(f"{name}: {value}" for name, value in request.headers.items()),
            "PATHS": "\n".join(paths),
        }
        timeout = f"--timeout={ANSWER_TIMEOUT_SECONDS}s"
        options = ["-t1", f"-c{connections}", f"-d{seconds}s", timeout, "-s", "wrk.lua"]
        process = subprocess.run(
            ["wrk", *options, f"http://{HOST}:{port}"],
            cwd=Path(__file__).parent,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=seconds + 2 * ANSWER_TIMEOUT_SECONDS,
            check=False,
        )
    results = [line for line in process.stdout.splitlines() if line.startswith("{")]
    if process.returncode or not results:
        raise BenchmarkError(
            f"wrk: expected a result for {paths[0]}, got: {(process.stderr or process.stdout)[-200:]}"
        )
    return LoadResult(**json.loads(results[0]))


def post(port: int, path: str, request: EncodedRequest) -> tuple[bytes, dict[str, str]]:
    """Send one request; returns the body and the headers of the answer, their names in lower case."""
    connection = HTTPConnection(HOST, port, timeout=ANSWER_TIMEOUT_SECONDS)
    try:
        connection.request("POST", path, request.body, dict(request.headers))
        response = connection.getresponse()
        body = response.read()
    except (OSError, HTTPException) as error:
        raise FailedRequestError(f"{path}: expected an answer, got {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise FailedRequestError(f"{path}: expected 200, got {response.status} {body[:200]!r}")
    return body, {name.lower(): value for name, value in response.getheaders()}
