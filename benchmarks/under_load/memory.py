"""Measures the memory of a server over a million requests, to show whether it grows.

    python -m benchmarks.under_load.memory [--requests 1000000]

Starts `turnpike serve` with the bundled model. Sends predictions in JSON and binary, requests for gates and
requests that are refused, over connections that are replaced every thousand requests. Prints the resident
memory of all processes at intervals. At the end it prints the slope of a line fitted to the second half.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import threading
import time
from typing import BinaryIO
from urllib.parse import urlsplit

import numpy as np
import orjson
import psutil

# requests that are sent before their answers are read
PIPELINED_REQUESTS = 16
CONNECTION_REQUESTS = 1000
# how often memory is printed
REPORTS = 20


def encode_post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: benchmark", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def request_mix() -> list[bytes]:
    """Eight requests: six predictions, one for gates, and at the end an invalid one, refused with 400."""
    rows = np.random.default_rng(0).integers(0, 17, (1, 1, 8, 8)).astype(np.float32)
    as_json = orjson.dumps(
        {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": rows.ravel().tolist()}]}
    )
    head = orjson.dumps(
        {
            "parameters": {"binary_data_output": True},
            "inputs": [
                {
                    "name": "x",
                    "shape": [1, 1, 8, 8],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": rows.nbytes},
                }
            ],
        }
    )
    model = "/v2/models/digits-10"
    v2_binary = encode_post(
        f"{model}/infer", head + rows.tobytes(), f"Inference-Header-Content-Length: {len(head)}"
    )
    v2_json = encode_post(f"{model}/infer", as_json)
    v1_json = encode_post("/v1/models/digits-10:predict", orjson.dumps({"instances": rows.tolist()}))
    return [
        v2_json,
        v2_binary,
        v1_json,
        encode_post(f"{model}/gates", as_json),
        v2_json,
        v2_binary,
        v1_json,
        encode_post(f"{model}/infer", b'{"inputs":[]}'),
    ]


def send_requests(address: tuple[str, int], count: int, sent: list[int], sender: int) -> None:
    """Send `count` requests of the mix, pipelined, and check their status.

    Arguments:
        address: host and port of the server
        count: number of requests
        sent: number of answered requests by sender, which is updated
        sender: index of this sender in `sent`
    """
    requests = request_mix()
    while sent[sender] < count:
        with socket.create_connection(address) as connection:
            reader = connection.makefile("rb")
            for _ in range(0, CONNECTION_REQUESTS, PIPELINED_REQUESTS):
                turns = [turn % len(requests) for turn in range(PIPELINED_REQUESTS)]
                connection.sendall(b"".join(requests[turn] for turn in turns))
                for turn in turns:
                    read_answer(reader, 400 if turn == len(requests) - 1 else 200)
                sent[sender] += PIPELINED_REQUESTS


def read_answer(reader: BinaryIO, expected_status: int) -> None:
    status = int(reader.readline().split()[1])
    length = 0
    while (line := reader.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    body = reader.read(length)
    if status != expected_status:
        raise SystemExit(f"expected {expected_status}, got {status}: {body[:300]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1_000_000, help="number of requests")
    parser.add_argument("--connections", type=int, default=4, help="number of connections at a time")
    arguments = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-m", "turnpike", "serve", "--port", "0", "--no-access-log"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr
        address = None
        while address is None:
            address = re.search(r"serves (http://[^\s\"]+)", server.stderr.readline())
        threading.Thread(target=server.stderr.read, daemon=True).start()
        url = urlsplit(address[1])
        host_and_port = str(url.hostname), int(url.port or 0)
        measure(server.pid, host_and_port, arguments.requests, arguments.connections)
    finally:
        server.terminate()
        server.wait()


def measure(pid: int, address: tuple[str, int], requests: int, connections: int) -> None:
    """Send the requests and print the memory of the server's processes.

    Arguments:
        pid: the server's main process
        address: its host and port
        requests: number of requests
        connections: number of connections at a time, each with a thread here
    """
    sent = [0] * connections
    threads = [
        threading.Thread(
            target=send_requests, args=(address, requests // connections, sent, sender), daemon=True
        )
        for sender in range(connections)
    ]
    for thread in threads:
        thread.start()
    process = psutil.Process(pid)
    samples: list[tuple[int, int]] = []  # requests and bytes
    step = max(requests // REPORTS, 1)
    start = time.monotonic()
    while any(thread.is_alive() for thread in threads) or not samples:
        if sum(sent) >= len(samples) * step:
            resident = sum(child.memory_info().rss for child in [process, *process.children(recursive=True)])
            samples.append((sum(sent), resident))
            print(f"{sum(sent):>9,} requests  {resident / 2**20:8.2f} MiB  {time.monotonic() - start:6.0f} s")
        time.sleep(0.05)
    if sum(sent) < requests // connections * connections:
        raise SystemExit(f"expected {requests:,} answered requests, got {sum(sent):,}: a connection failed")
    counts, sizes = zip(*samples[len(samples) // 2 :], strict=True)
    slope = float(np.polyfit(counts, sizes, 1)[0])
    print(f"slope over the second half: {slope * 1e6 / 2**20:+.3f} MiB per million requests")


if __name__ == "__main__":
    main()
