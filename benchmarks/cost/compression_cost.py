"""Measures compressed answers: how small they become by the level of zlib, and what that adds to their time.

    python -m benchmarks.cost.compression_cost [--models MODELS --model NAME --data DATA --data-dir FOLDER]

One client on this machine asks for gates of real rows, in turn with and without `Accept-Encoding: gzip`. The
last column is the speed of a network below which the compressed answer arrives sooner.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson

from benchmarks.measurement.our_server import running_turnpike
from turnpike.models.data.load import load_dataset
from turnpike.service.http.compression import ZLIB_LEVEL

ROWS = (1, 16, 128)
HIGH_LEVEL = 6
# `%d` is the number of rows
QUERIES = {
    "gates of %d": "",
    "with units": "?detail=units",
    "with values": "?detail=rows",
    "with values as bytes": "?detail=rows&binary=true",
}
ROUNDS = 9


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", help="model repository (default: that of the bundled model)")
    parser.add_argument("--model", default="digits-10", help="name of the model (default: %(default)s)")
    parser.add_argument("--data", default="digits", help="its data set (default: %(default)s)")
    parser.add_argument("--data-dir", type=Path, help="folder of a data set that is not embedded")
    arguments = parser.parse_args()
    rows = load_dataset(arguments.data, data_dir=arguments.data_dir).test.x.float().numpy()
    options = ["--models", arguments.models] if arguments.models else []
    print(
        f"| answer | bytes | level {ZLIB_LEVEL} | level {HIGH_LEVEL} | without | with gzip | sooner below |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    with running_turnpike(*options, "--no-access-log") as server:
        connection = http.client.HTTPConnection(*server.address)
        for name, path, body in requests(arguments.model, rows):
            print(f"| {name} | {' | '.join(measure(connection, path, body))} |", flush=True)


def requests(model: str, rows: np.ndarray) -> Iterator[tuple[str, str, bytes]]:
    """The name of each answer, and the path and the body of its request."""
    for count in ROWS:
        tensor = {"name": "x", "datatype": "FP32", "shape": [count, *rows.shape[1:]]}
        body = orjson.dumps({"inputs": [tensor | {"data": rows[:count].ravel().tolist()}]})
        for name, query in QUERIES.items():
            yield (name % count if "%" in name else name), f"/v2/models/{model}/gates{query}", body


def measure(connection: http.client.HTTPConnection, path: str, body: bytes) -> list[str]:
    """The cells of a row."""
    times: dict[str, list[float]] = {"identity": [], "gzip": []}
    sizes: dict[str, int] = {}
    answer = b""
    for _ in range(ROUNDS):
        for encoding, seconds in times.items():
            start = time.perf_counter()
            connection.request("POST", path, body, {"Accept-Encoding": encoding})
            response = connection.getresponse()
            received = response.read()
            seconds.append(time.perf_counter() - start)
            sizes[encoding] = len(received)
            answer = received if encoding == "identity" else answer
    plain, packed = (statistics.median(seconds) for seconds in times.values())
    saved = sizes["identity"] - sizes["gzip"]
    speed = f"{saved * 8e-6 / (packed - plain):,.0f} Mbit/s" if saved and packed > plain else ""
    return [
        f"{len(answer):,}",
        *(compressed(answer, level) for level in (ZLIB_LEVEL, HIGH_LEVEL)),
        f"{plain * 1000:.1f} ms",
        f"{packed * 1000:.1f} ms" if saved else "not compressed",
        speed,
    ]


def compressed(answer: bytes, level: int) -> str:
    """How much smaller an answer becomes, and in what time."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        data = zlib.compress(answer, level)
        seconds.append(time.perf_counter() - start)
    return f"{len(answer) / len(data):.1f}x in {statistics.median(seconds) * 1000:.2f} ms"


if __name__ == "__main__":
    main()
