"""The memory of a server over a million requests: does it grow?

    python benchmarks/memory.py [--requests 1000000]

Starts `turnpike serve` with the bundled model, sends predictions in JSON and binary, requests for gates and
requests that are refused, over connections that are renewed every thousand requests, and prints the resident
memory of all its processes as it goes, and the slope of a line through the second half.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import orjson
import psutil

# requests sent before their answers are read, and requests over one connection
AHEAD, CONNECTION = 16, 1000


def request(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: benchmark", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def mixture() -> list[bytes]:
    """Every eighth asks for gates, every eighth is refused."""
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
    binary = request(f"{model}/infer", head + rows.tobytes(), f"Inference-Header-Content-Length: {len(head)}")
    plain = request(f"{model}/infer", as_json)
    people = request("/v1/models/digits-10:predict", orjson.dumps({"instances": rows.tolist()}))
    return [
        plain,
        binary,
        people,
        request(f"{model}/gates", as_json),
        plain,
        binary,
        people,
        request(f"{model}/infer", b'{"inputs":[]}'),
    ]


def send(address: tuple[str, int], share: int, done: list[int], number: int) -> None:
    """So many requests of the mixture, some ahead of their answers."""
    wires = mixture()
    while done[number] < share:
        with socket.create_connection(address) as connection:
            reader = connection.makefile("rb")
            for _ in range(0, CONNECTION, AHEAD):
                connection.sendall(b"".join(wires[turn % len(wires)] for turn in range(AHEAD)))
                for turn in range(AHEAD):
                    answer(reader, 400 if turn % len(wires) == len(wires) - 1 else 200)
                done[number] += AHEAD


def answer(reader: object, expected: int) -> None:
    status = int(reader.readline().split()[1])  # type: ignore[attr-defined]
    length = 0
    while (line := reader.readline()) != b"\r\n":  # type: ignore[attr-defined]
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    body = reader.read(length)  # type: ignore[attr-defined]
    if status != expected:
        raise SystemExit(f"expected {expected}, got {status}: {body[:300]!r}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=4)
    wanted = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-m", "turnpike", "serve", "--port", "0", "--no-access-log"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr
        found = None
        while found is None:
            found = re.search(r"serves (http://[^\s\"]+)", server.stderr.readline())
        threading.Thread(target=server.stderr.read, daemon=True).start()
        parts = urlsplit(found[1])
        measure(server.pid, (str(parts.hostname), int(parts.port or 0)), wanted.requests, wanted.connections)
    finally:
        server.terminate()
        server.wait()


def measure(pid: int, address: tuple[str, int], requests: int, connections: int) -> None:
    done = [0] * connections
    threads = [
        threading.Thread(target=send, args=(address, requests // connections, done, number), daemon=True)
        for number in range(connections)
    ]
    for thread in threads:
        thread.start()
    process = psutil.Process(pid)
    seen: list[tuple[int, int]] = []
    step = max(requests // 20, 1)
    begun = time.monotonic()
    while any(thread.is_alive() for thread in threads) or not seen:
        if sum(done) >= len(seen) * step:
            resident = sum(one.memory_info().rss for one in [process, *process.children(recursive=True)])
            seen.append((sum(done), resident))
            print(f"{sum(done):>9,} requests  {resident / 2**20:8.2f} MiB  {time.monotonic() - begun:6.0f} s")
        time.sleep(0.05)
    if sum(done) < requests // connections * connections:
        raise SystemExit("a connection failed")
    counts, sizes = zip(*seen[len(seen) // 2 :], strict=True)
    slope = float(np.polyfit(counts, sizes, 1)[0])
    print(f"slope over the second half: {slope * 1e6 / 2**20:+.3f} MiB a million requests")


if __name__ == "__main__":
    main()
