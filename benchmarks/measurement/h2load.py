"""Puts load on a gRPC server with `h2load`, and sends single calls with `curl`.

h2load uses one thread. Each of its streams sends the next request when it has the answer to the last. It also
sends over HTTP/1.1, so that both protocols can be compared under the same load.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.contestants.wire_formats import EncodedRequest
from benchmarks.errors import BenchmarkError, FailedRequestError
from benchmarks.measurement.wrk import ANSWER_TIMEOUT_SECONDS, Load

# the programs, and Debian's packages of them
PACKAGES = {"h2load": "nghttp2-client", "curl": "curl"}


def require_h2load() -> None:
    """Raise BenchmarkError unless h2load and curl are installed."""
    for program, package in PACKAGES.items():
        if shutil.which(program) is None:
            raise BenchmarkError(f"{program}: expected it on the PATH, found none: apt install {package}")


def run_h2load(
    url: str,
    request: EncodedRequest,
    *,
    connections: int,
    streams: int,
    seconds: int,
    answer_bytes: int,
    http1: bool = False,
) -> Load:
    """Send a request again and again to a server of this machine.

    h2load does not read the statuses of gRPC, whose errors have the status 200 of HTTP, too. But they have no
    message, so the bytes of all messages show how many requests were refused.

    Arguments:
        url: where requests go
        request: body and headers
        connections: number of connections
        streams: requests that each connection sends at a time
        seconds: duration
        answer_bytes: length of the body of an answer
        http1: send over HTTP/1.1, which has one request at a time on a connection
    """
    with tempfile.NamedTemporaryFile() as body:
        Path(body.name).write_bytes(request.body)
        options = ["-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", f"--data={body.name}"]
        options += ["--h1"] if http1 else []
        process = subprocess.run(
            ["h2load", *options, *header_options(request), url],
            capture_output=True,
            text=True,
            timeout=seconds + 2 * ANSWER_TIMEOUT_SECONDS,
            check=False,
        )
    counts = re.search(
        r"^requests: .* (?P<done>\d+) done, .* (?P<failed>\d+) failed, .*\n"
        r"status codes: (?P<good>\d+) 2xx, .*\n"
        r"traffic: .* \((?P<bytes>\d+)\) data$",
        process.stdout,
        re.MULTILINE,
    )
    requests = int(counts["done"]) - int(counts["failed"]) if counts else 0
    if process.returncode or not counts or not requests:
        raise BenchmarkError(
            f"h2load: expected a result for {url}, got: {(process.stderr or process.stdout)[-200:]}"
        )
    answers = min(int(counts["good"]), int(counts["bytes"]) // answer_bytes)
    return Load(requests, seconds, lost=int(counts["failed"]), refused=max(0, requests - answers))


def call(url: str, request: EncodedRequest) -> bytes:
    """Send one message to a method of gRPC; returns the message of the answer, with its prefix."""
    with tempfile.TemporaryDirectory() as folder:
        body, headers, message = (Path(folder) / name for name in ("body", "headers", "message"))
        body.write_bytes(request.body)
        # curl writes trailers like headers, at the end
        options = ["--silent", "--show-error", "--http2-prior-knowledge"]
        options += ["--max-time", str(ANSWER_TIMEOUT_SECONDS)]
        options += ["--data-binary", f"@{body}", "--dump-header", str(headers), "--output", str(message)]
        process = subprocess.run(
            ["curl", *options, *header_options(request), url],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            raise FailedRequestError(f"{url}: expected an answer, got: {process.stderr.strip()}")
        lines = headers.read_text(encoding="utf-8").splitlines()
        answer = message.read_bytes() if message.exists() else b""
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status, reason = fields.get("grpc-status"), fields.get("grpc-message")
    if status != "0":
        raise FailedRequestError(f"{url}: expected the status 0 of gRPC, got {status} {reason!r}")
    return answer


def header_options(request: EncodedRequest) -> list[str]:
    """The options of h2load and of curl that set the headers."""
    return [option for name, value in request.headers.items() for option in ("-H", f"{name}: {value}")]
