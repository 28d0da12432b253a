"""Requests per second of model files, such as a network and what `turnpike compress` made of it.

    python -m benchmarks.compression.served repository/deck/1/model.onnx repository/deck/2/model.onnx

Each file is served alone by `turnpike serve --workers auto`. Requests have one row of random pixels from 0 to
255. The files are measured in turn in several rounds, and the table has medians. Requires wrk.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import struct
import tempfile
from pathlib import Path

import numpy as np
import orjson

from benchmarks.contestants.wire_formats import JSON_LENGTH_HEADER, EncodedRequest
from benchmarks.errors import BenchmarkError
from benchmarks.measurement.our_server import running_turnpike
from benchmarks.measurement.wrk import require_wrk, run_wrk
from turnpike.service.artifact.runtime import open_model

CONNECTIONS = (1, 16, 64)
FORMATS = ("JSON", "binary")
WARM_UP_SECONDS = 1


def main() -> None:
    """Measure the files, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--seconds", type=int, default=2, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    arguments = parser.parse_args()
    require_wrk()
    rates: dict[tuple[Path, str, int], list[float]] = {}
    for _ in range(arguments.rounds):
        for file in arguments.files:
            for (wire_format, connections), rate in measure(file, arguments.seconds).items():
                rates.setdefault((file, wire_format, connections), []).append(rate)
    loads = [(wire_format, connections) for wire_format in FORMATS for connections in CONNECTIONS]
    print(f"| file | {' | '.join(f'{name}, {count}' for name, count in loads)} |")
    print(f"| --- |{' ---: |' * len(loads)}")
    for file in arguments.files:
        cells = []
        for load in loads:
            rate, first = (statistics.median(rates[path, *load]) for path in (file, arguments.files[0]))
            cells.append(f"{rate:,.0f} ({rate / first:.1f}x)")
        print(f"| {file} | {' | '.join(cells)} |")


def measure(file: Path, seconds: int) -> dict[tuple[str, int], float]:
    """Requests per second by format and number of connections."""
    (tensor,) = open_model(file).inputs
    shape = [1, *tensor.dims[1:]]
    row = np.random.default_rng(0).integers(0, 256, [int(size) for size in shape]).ravel().tolist()
    head: dict[str, object] = {"name": tensor.name, "shape": shape, "datatype": "FP32"}
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "net/1/model.onnx"
        copy.parent.mkdir(parents=True)
        shutil.copyfile(file, copy)
        with running_turnpike(folder, "--workers", "auto", "--no-access-log") as server:
            for name in FORMATS:
                request = encoded(name, head, row)
                path = ["/v2/models/net/infer"]
                run_wrk(server.address[1], path, request, CONNECTIONS[-1], WARM_UP_SECONDS)
                for connections in CONNECTIONS:
                    load = run_wrk(server.address[1], path, request, connections, seconds)
                    if load.lost or load.refused:
                        raise BenchmarkError(f"{file}: expected answers to all requests, got {load}")
                    rates[name, connections] = load.rate
    return rates


def encoded(name: str, head: dict[str, object], row: list[int]) -> EncodedRequest:
    """The request in JSON or with a binary tensor."""
    if name == "JSON":
        body = orjson.dumps({"inputs": [head | {"data": row}]})
        return EncodedRequest(body, {"Content-Type": "application/json"})
    data = struct.pack(f"<{len(row)}f", *row)
    described = orjson.dumps({"inputs": [head | {"parameters": {"binary_data_size": len(data)}}]})
    headers = {"Content-Type": "application/octet-stream", JSON_LENGTH_HEADER: str(len(described))}
    return EncodedRequest(described + data, headers)


if __name__ == "__main__":
    main()
