"""Measures the CPU time of the Python client beside that of bare HTTP clients.

    python -m benchmarks.cost.client_cost [URL]

Each sends the same request, one row as bytes to `digits-10` of a running service: 200 at once with
AsyncClient and with aiohttp alone, and one after the other with Client and with http.client. They take turns,
and each figure is the smallest of 15 rounds. Bias: the bare clients do not read the tensors of their answers.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import aiohttp
import numpy as np

from turnpike.client.client import AsyncClient, Client
from turnpike.client.http import encode
from turnpike.client.inputs import Call

ROW = np.zeros((1, 1, 8, 8), np.float32)
MODEL, PATH = "digits-10", "/v2/models/digits-10/infer"
AT_ONCE, SEQUENTIAL, ROUNDS = 200, 200, 15
BODY, HEADERS = encode(Call("infer", MODEL, tensors={"x": ROW}))


def main(url: str) -> None:
    """Measure and print the figures."""
    asyncio.run(measure_at_once(url))
    measure_sequential(url)


async def measure_at_once(url: str) -> None:
    """200 requests at once."""
    async with AsyncClient(url) as client, aiohttp.ClientSession(url) as session:

        async def send_bare() -> bytes:
            async with session.post(PATH, data=BODY, headers=HEADERS) as response:
                return await response.read()

        ours, bare = [], []
        for _ in range(ROUNDS):
            start = time.process_time()
            await asyncio.gather(*(client.infer(MODEL, ROW) for _ in range(AT_ONCE)))
            middle = time.process_time()
            await asyncio.gather(*(send_bare() for _ in range(AT_ONCE)))
            ours.append(middle - start)
            bare.append(time.process_time() - middle)
    print(
        f"{AT_ONCE} at once: AsyncClient {min(ours):.3f} s of CPU, aiohttp {min(bare):.3f} s, "
        f"{min(ours) / min(bare):.2f} times as much"
    )


def measure_sequential(url: str) -> None:
    """One request after the other."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def send_bare() -> None:
        connection.request("POST", PATH, BODY, HEADERS)
        connection.getresponse().read()

    with Client(url) as client:
        client.infer(MODEL, ROW)
        ours, bare = [], []
        for _ in range(ROUNDS):
            ours.append(_cpu_of(lambda: client.infer(MODEL, ROW)))
            bare.append(_cpu_of(send_bare))
    connection.close()
    print(f"one by one: Client {min(ours):.0f} µs of CPU, http.client {min(bare):.0f} µs")


def _cpu_of(send: Callable[[], object]) -> float:
    """Microseconds of CPU for a request."""
    start = time.process_time()
    for _ in range(SEQUENTIAL):
        send()
    return (time.process_time() - start) / SEQUENTIAL * 1e6


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
