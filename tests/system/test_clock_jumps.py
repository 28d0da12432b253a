"""The wall clock jumps by hours and days while a server runs: no limit, delay or figure follows it.

Debian's libfaketime changes the wall clock of the server's processes, and leaves their monotonic clock alone.
"""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_server import Server, serving, worker_processes
from tests.support.waiting import wait_until

INFER_PATH = "/v2/models/digits-10/infer"
DRIFT_PATH = "/v2/models/digits-10/gates/drift"
BODY = {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}]}
KEY = {"Authorization": "Bearer open-sesame"}
HOUR, DAY = 3600, 86_400
# seconds: how long a run waits for more rows, and how long headers and bodies may take to arrive
DELAY, ARRIVAL = 0.8, 3
# by how much a measured time may be later than a limit on a busy machine, in seconds
SLACK = 20


class Clock:
    """The wall clock of a server, a number of seconds ahead of ours."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.jump(0)

    def jump(self, offset: int) -> None:
        self.offset = offset
        draft = self._file.with_name("draft")
        draft.write_text(f"{offset:+d}")
        draft.replace(self._file)

    def error(self, moment: datetime) -> float:
        """Seconds between a moment that the server wrote now and its wall clock."""
        return abs(moment.timestamp() - time.time() - self.offset)

    def environment(self) -> dict[str, str]:
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # without it, `fstat` takes a lock of the library: a worker forked meanwhile waits for it for ever
            "NO_FAKE_STAT": "1",
        }


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    if not list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")):
        pytest.skip("NOT TESTED: Debian's package faketime is not installed")
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def server(clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("open-sesame\n")
    limits = ("--header-seconds", ARRIVAL, "--body-seconds", ARRIVAL, "--max-delay-ms", DELAY * 1000)
    with serving("--workers", 2, "--api-keys-file", keys, *limits, **clock.environment()) as one:
        yield one


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=ARRIVAL + SLACK)


def status(connection: socket.socket) -> int:
    """Read the next response, and return its status."""
    got = b""
    while True:
        got += connection.recv(65536)
        head, _, body = got.partition(b"\r\n\r\n")
        match = re.match(rb"HTTP/1.1 (\d+)(?s:.*)content-length: (\d+)", head, re.IGNORECASE)
        assert match, head
        if len(body) == int(match[2]):
            return int(match[1])


def in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Start a function in a thread; returns a function that waits for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()

    def wait() -> Any:
        thread.join(60)
        return results[0]

    return wait


def request_bytes(path: str, body: bytes = b"", length: int | None = None) -> bytes:
    """A request with the key; a POST if it has a length."""
    method, length_header = ("GET", "") if length is None else ("POST", f"Content-Length: {length}\r\n")
    headers = f"Host: localhost\r\nAuthorization: Bearer open-sesame\r\n{length_header}"
    return f"{method} {path} HTTP/1.1\r\n{headers}\r\n".encode() + body


@pytest.mark.slow
@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(HOUR, marks=pytest.mark.thorough),
        -DAY,
        DAY,
        pytest.param(-HOUR, marks=pytest.mark.thorough),
    ],
)
def test_nothing_but_dates_follows_the_wall_clock(server: Server, clock: Clock, offset: int) -> None:
    """Requests, connections, limits and figures that a jump meets are those of a clock that does not jump."""
    workers = {process.pid for process in worker_processes(server)}
    rows = server.get(DRIFT_PATH, headers=KEY).json()["rows"]

    def timed_request() -> tuple[int, float]:
        started = time.monotonic()
        reply = server.post(INFER_PATH, BODY, headers=KEY | {"X-Request-Timeout-Ms": "60000"})
        return reply.status_code, time.monotonic() - started

    def time_until_cut_off(data: bytes) -> tuple[int, float]:
        with closing(connect(server)) as connection:
            started = time.monotonic()
            connection.sendall(data)
            return status(connection), time.monotonic() - started

    # each of these is under way when the clock jumps
    waiting = in_thread(timed_request)
    slow_head = in_thread(lambda: time_until_cut_off(request_bytes("/v2")[:-2]))
    slow_body = in_thread(lambda: time_until_cut_off(request_bytes(INFER_PATH, b"{", length=100)))
    with closing(connect(server)) as idle, closing(connect(server)) as begun:
        idle.sendall(request_bytes("/v2"))
        assert status(idle) == 200
        begun.sendall(request_bytes("/v2")[:-2])
        time.sleep(DELAY / 3)
        clock.jump(offset)

        # what had begun goes on
        begun.sendall(b"\r\n")
        assert status(begun) == 200
        code, seconds = waiting()
        assert code == 200
        assert DELAY - 0.1 < seconds < DELAY + SLACK
        time.sleep(1)
        idle.sendall(request_bytes("/v2"))
        assert status(idle) == 200
    # what takes too long is cut off when its time is up
    for cut_off in (slow_head, slow_body):
        code, seconds = cut_off()
        assert code == 408
        assert ARRIVAL - 0.5 < seconds < ARRIVAL + SLACK

    # dates follow the clock, and durations do not
    reply = server.get("/v2", headers=KEY)
    assert clock.error(parsedate_to_datetime(reply.headers["Date"])) < SLACK
    server.get("/v2", headers=KEY | {"X-Request-Id": f"after_{offset}"})
    wait_until(lambda: f"after_{offset}" in server.output)
    records = [line for line in server.logged() if line["logger"] == "access"]
    assert clock.error(datetime.fromisoformat(records[-1]["time"]).astimezone(UTC)) < SLACK
    assert all(0 <= line["ms"] < 1000 * HOUR / 2 for line in records)
    sums = re.findall(r"_seconds_sum\S* (\S+)", server.get("/metrics", headers=KEY).text)
    assert sums
    assert all(0 <= float(value) < HOUR / 2 for value in sums)

    # keys, workers and the window of drift are unchanged
    assert server.get("/v2/models/digits-10").status_code == 401
    assert {process.pid for process in worker_processes(server)} == workers
    wait_until(
        lambda: (
            server.post(INFER_PATH, BODY, headers=KEY).ok
            and server.get(DRIFT_PATH, headers=KEY).json()["rows"] > rows
        )
    )
    assert not [line for line in server.logged() if line["level"] == "error"]


@pytest.mark.slow
@pytest.mark.parametrize("offset", [DAY, pytest.param(-DAY, marks=pytest.mark.thorough)])
def test_a_server_ends_in_time_if_the_clock_jumps(clock: Clock, offset: int) -> None:
    """A request in progress is answered, and the server ends right after it, with status 0."""
    clock.jump(0)
    with serving("--max-delay-ms", 4000, "--drain-wait", 0.2, **clock.environment()) as server:
        waiting = in_thread(lambda: server.post(INFER_PATH, BODY).status_code)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        time.sleep(1.5)  # the port is closed by now
        clock.jump(offset)
        assert waiting() == 200
        assert server.process.wait(30) == 0
        assert 3 < time.monotonic() - started < 3.5 + SLACK
