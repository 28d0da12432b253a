"""Triton's perf_analyzer measures the service, as it measures Triton, over HTTP and gRPC."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import client_programs
from tests.support.live_server import Server, serving

REQUESTS = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--workers", 2, "--grpc-port", 0) as running:
        yield running


@pytest.fixture(scope="module")
def perf_analyzer() -> tuple[Path, dict[str, str]]:
    """The program and its environment variables. Skips if this machine lacks a library of the program."""
    programs = client_programs("programs")
    (cuda,) = programs.parent.glob("lib/python*/site-packages/nvidia/cuda_runtime/lib")
    variables = os.environ | {"LD_LIBRARY_PATH": str(cuda)}
    program = programs / "perf_analyzer"
    linked = subprocess.run(["ldd", program], env=variables, capture_output=True, text=True, check=True)
    missing = re.findall(r"(\S+) => not found", linked.stdout)
    if missing:
        pytest.skip(f"perf_analyzer needs {', '.join(missing)}; on Debian 12: apt install libb64-0d")
    return program, variables


@pytest.mark.parametrize(
    "options",
    [
        "-i http",
        "-i grpc",
        *(
            pytest.param(options, marks=pytest.mark.thorough)
            for options in (
                "-i http --async",
                "-i http --input-tensor-format json --output-tensor-format json",
                "-i grpc --async",
                "-i grpc --streaming",
                "-i grpc --grpc-compression-algorithm gzip",
                "-i grpc -b 8",
            )
        ),
    ],
)
def test_perf_analyzer_measures_without_errors(
    server: Server, perf_analyzer: tuple[Path, dict[str, str]], tmp_path: Path, options: str
) -> None:
    """It reads metadata, configuration and statistics, sends its requests, and reports server-side times."""
    program, variables = perf_analyzer
    address = server.grpc_address if "grpc" in options else server.url.removeprefix("http://")
    report = tmp_path / "report.csv"
    model = ("-m", "digits-10", "-u", address, "--shape", "x:1,8,8")
    load = ("--concurrency-range", "4", "--request-count", str(REQUESTS))
    result = subprocess.run(
        [program, *model, *load, "-f", report, *options.split()],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert not result.stderr.strip()
    assert f"Request count: {REQUESTS}" in result.stdout
    served = re.search(r"Successful request count: (\d+)", result.stdout)
    # some of the first requests came before its first look at the statistics
    assert served
    assert int(served[1]) > REQUESTS / 2
    with report.open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["Inferences/Second"]) > 0
    assert float(row["p99 latency"]) >= float(row["p50 latency"]) > 0
    assert float(row["Server Compute Infer"]) > 0
