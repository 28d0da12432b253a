"""The log of a real server, when nobody reads it, when somebody does later, and when it cannot be written."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import orjson
import pytest
import requests

from tests.support.digit_requests import INFER_PATH
from tests.support.full_pipe import full_pipe
from tests.support.live_server import ROOT, Server, environment, free_port, serving
from tests.support.waiting import wait_until

KEY = {"X-Api-Key": "secret"}
ONE_ROW = {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}]}
# JSON needs two bytes for each
QUOTES = '"' * 128
# a request that is answered quickly, with 404, and has a line of 700 bytes in the log
LONG_LINE = (
    f"POST /v2/models/{'x' * 200}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    f"X-Request-Id: {QUOTES}\r\nTraceparent: 00-{'a' * 32}-{'b' * 16}-01\r\n\r\n{{}}"
).encode()
SHORT_LINE = b"POST /v2/models/none/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
PIPELINED_REQUESTS = 250


@contextlib.contextmanager
def serving_with_stderr(stderr: int | IO[bytes], *options: object) -> Iterator[Server]:
    """A server with this standard error, which the test reads or does not. It must stop with status 0."""
    port = free_port()
    words = [sys.executable, "-m", "turnpike", "serve", "--port", port, "--drain-wait", 0, *options]
    process: subprocess.Popen[str] = subprocess.Popen(
        list(map(str, words)),
        cwd=ROOT,
        env=environment(TURNPIKE_ADMIN_KEY="secret"),
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    server = Server(process, url=f"http://127.0.0.1:{port}")
    try:
        wait_until(lambda: server.get("/v2/health/ready").ok, 60, requests.ConnectionError)
        yield server
        assert server.stop() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def flood(server: Server, count: int, request: bytes = LONG_LINE) -> int:
    """Send a request over four connections, until at least this many are answered with 404."""
    port = int(server.url.rpartition(":")[2])

    def send(_: int) -> int:
        answered = 0
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            while answered < count / 4:
                connection.sendall(request * PIPELINED_REQUESTS)
                received = b""
                while received.count(b"HTTP/1.1 404") < PIPELINED_REQUESTS or not received.endswith(b"}"):
                    data = connection.recv(1 << 16)
                    assert data, "the server closed the connection"
                    received += data
                answered += PIPELINED_REQUESTS
        return answered

    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(send, range(4)))


def dropped(server: Server) -> int:
    """The metric, which has the sum over all processes."""
    (value,) = re.findall(
        r"^turnpike_log_lines_dropped_total (\S+)$", server.get("/metrics").text, re.MULTILINE
    )
    return int(float(value))


@pytest.mark.slow
def test_a_log_that_nobody_reads_stops_nothing() -> None:
    """Workers and supervisor go on, dropped lines are counted, and SIGTERM ends the service as usual."""
    read_end, write_end = full_pipe()
    with serving_with_stderr(write_end, "--workers", 2, "--max-delay-ms", 1000) as server:
        wait_until(lambda: flood(server, 4000) and dropped(server), 60)
        before = dropped(server)
        assert server.post(INFER_PATH, ONE_ROW).status_code == 200
        for action, status in (("unload", 503), ("load", 200)):
            assert server.post(f"/v2/repository/models/digits-10/{action}", headers=KEY).ok
            assert server.get("/v2/models/digits-10/ready").status_code == status
        flood(server, 1000)
        assert dropped(server) > before
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(server.post, INFER_PATH, ONE_ROW)
            wait_until(lambda: "turnpike_http_requests_in_flight 2" in server.get("/metrics").text)
            server.process.send_signal(signal.SIGTERM)
            assert pending.result(10).status_code == 200
            assert server.process.wait(10) == 0
    os.close(read_end)
    os.close(write_end)


@pytest.mark.slow
def test_a_late_reader_learns_how_much_it_missed() -> None:
    """Every request has its line or is among the dropped ones, and no line is torn."""
    read_end, write_end = os.pipe()
    data = bytearray()

    def read() -> None:
        while piece := os.read(read_end, 1 << 16):
            data.extend(piece)

    reader = threading.Thread(target=read, daemon=True)
    with serving_with_stderr(write_end, "--workers", 1) as server:
        os.close(write_end)
        sent = 0

        def overflows() -> bool:
            nonlocal sent
            sent += flood(server, 6000) + 1
            return dropped(server) > 0

        wait_until(overflows, 60)
        reader.start()
        wait_until(lambda: b"lines of the log were dropped" in data)
        sent += flood(server, 1000) + 1
        count = dropped(server)
    reader.join(10)
    os.close(read_end)
    lines = [orjson.loads(line) for line in data.splitlines()]
    (report,) = [line["message"] for line in lines if "dropped" in line.get("message", "")]
    assert report == f"{count} lines of the log were dropped, since they could not be written in time"
    requests_logged = [line for line in lines if line.get("status") == 404 or line.get("path") == "/metrics"]
    assert len(requests_logged) + count == sent
    times = [line["time"] for line in lines if line.get("worker")]
    assert times == sorted(times)


@pytest.mark.slow
def test_no_line_of_two_workers_is_lost_or_torn(tmp_path: Path) -> None:
    """Another process reads the pipe, since this one is busy with sending requests."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
        assert reader.stdin
        with serving_with_stderr(reader.stdin, "--workers", 2) as server:
            reader.stdin.close()
            sent = 0

            def all_are_written() -> bool:
                return log.read_bytes().count(b'"status":404') == sent

            for _ in range(6):
                # as many lines as find room in a worker even if nothing is written meanwhile
                sent += flood(server, 10_000, SHORT_LINE)
                wait_until(all_are_written)
            assert dropped(server) == 0
        assert reader.wait(10) == 0
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert sum(line.get("status") == 404 for line in lines) == sent
    assert {line["worker"] for line in lines if line.get("status") == 404} == {1, 2}


# what onnxruntime prints as it is imported on a machine with a device that it cannot read
WARNING = "[W:onnxruntime:Default, device_discovery.cc:455 GetNpuDevices] Failed to detect devices"
PRINTING_IMPORT = f"""
import os, sys

class Printer:
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            os.write(2, b"\\x1b[0;93m{WARNING}\\x1b[m\\n")

sys.meta_path.insert(0, Printer())
"""


def test_the_whole_log_is_json(tmp_path: Path) -> None:
    """Libraries in C print to standard error too."""
    (tmp_path / "sitecustomize.py").write_text(PRINTING_IMPORT)
    with serving(PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}") as server:
        assert server.post(INFER_PATH, ONE_ROW).ok
    lines = [orjson.loads(line) for line in server.lines]
    assert [line["level"] for line in lines if line.get("message", "").endswith(WARNING)] == ["warning"]


@pytest.mark.parametrize("command", [pytest.param("2>&-", marks=pytest.mark.slow), "2>/dev/full"])
def test_a_log_that_cannot_be_written_stops_nothing(command: str) -> None:
    """Standard error is closed, or its disk is full."""
    port = free_port()
    arguments = f"-m turnpike serve --port {port} --drain-wait 0 {command}"
    with subprocess.Popen(
        ["/bin/sh", "-c", f"exec {sys.executable} {arguments}"], cwd=ROOT, env=environment()
    ) as process:
        server = Server(process, url=f"http://127.0.0.1:{port}")  # type: ignore[arg-type]
        try:
            wait_until(lambda: server.get("/v2/health/ready").ok, 60, requests.ConnectionError)
            for _ in range(20):
                assert server.post(INFER_PATH, ONE_ROW).status_code == 200
            if command == "2>/dev/full":
                wait_until(lambda: dropped(server) >= 20)
        finally:
            assert server.stop() == 0


@pytest.mark.slow
def test_a_terminal_shows_addresses_to_open_and_a_line_to_copy() -> None:
    """All of them work. Ctrl-C stops the service, and its last line says how that went."""
    controller, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "turnpike", "serve", "--port", "0", "--drain-wait", "0"],
        cwd=ROOT,
        env=environment(),
        stderr=terminal,
    ) as process:
        os.close(terminal)
        shown = read_terminal(controller, "Ctrl-C stops it")
        (page,) = re.findall(r"^  page: (\S+)$", shown, re.MULTILINE)
        (docs,) = re.findall(r"^  docs: (\S+)$", shown, re.MULTILINE)
        (api,) = re.findall(r"^  API:  curl -s (\S+)$", shown, re.MULTILINE)
        assert "turnpike" in requests.get(page, headers={"Accept": "text/html"}, timeout=10).text
        assert requests.get(docs, timeout=10).status_code == 200
        assert requests.get(api, timeout=10).json()["name"] == "digits-10"
        process.send_signal(signal.SIGINT)
        assert "no request was cut off" in read_terminal(controller, "turnpike has stopped")
        assert process.wait(10) == 0
    os.close(controller)


def read_terminal(controller: int, expected: str) -> str:
    """What a terminal shows up to the end of the line with this text."""
    shown = ""
    while not re.search(rf"{expected}.*\n", shown):
        # waits for output; a process that ends closes the terminal, which is an error here
        shown += os.read(controller, 4096).decode().replace("\r", "")
    return shown
