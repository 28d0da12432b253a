"""Profiles a loaded worker with py-spy: which functions and native libraries its time goes to."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contestants import environments
from benchmarks.contestants.contestants import turnpike
from benchmarks.contestants.networks import NETWORKS, BenchmarkNetwork
from benchmarks.cost import gates_cost
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import processes
from benchmarks.measurement.measure import MAX_ATTEMPTS, MAX_OTHER_CPUS, Workload, measure
from benchmarks.measurement.server_process import RunningServer, running_server
from benchmarks.results.results_file import ResultLine, ResultsWriter
from benchmarks.results.tables import markdown_table

# each sample stops the worker for a moment; at 400 per second it hardly runs at all
SAMPLES_PER_SECOND = 50
# functions that are recorded for each workload
MAX_FUNCTIONS = 25
# seconds that the load lasts longer than sampling, to begin before the first sample and end after the last
LOAD_MARGIN_SECONDS = 4
# workloads by name of the network: predictions, and requests for gates
WORKLOADS = {
    "S": (Workload("JSON", 1, 1), Workload("JSON", 1, 64), Workload("binary", 32, 16)),
    "L": (Workload("JSON", 1, 64),),
}
GATES_WORKLOADS = {"S": (Workload("JSON", 1, 1),), "L": (Workload("JSON", 1, 64),)}
ONE_WORKER = turnpike("turnpike", workers=1)
# functions of libc in which a thread waits for something to do
WAITING_CALLS = ("epoll_wait", "epoll_pwait", "pthread_cond_wait", "sem_wait")
# function and file of a pool's thread that has no task
IDLE_THREAD = ("_worker", "concurrent/futures/thread.py")


def profile(writer: ResultsWriter, *, seconds: int) -> None:
    """Profile one worker under each workload."""
    py_spy = environments.ensure_environment("py-spy").with_name("py-spy")
    for network in NETWORKS:
        network.ensure_files()
        with running_server(ONE_WORKER, network) as server:
            infer = server.path("v2 JSON")
            requests: list[tuple[Workload, str, str]] = [
                (workload, workload.kind, infer) for workload in WORKLOADS[network.name]
            ]
            requests += [
                (workload, "gates", gates_cost.gates_path(infer))
                for workload in GATES_WORKLOADS[network.name]
            ]
            for workload, request, path in requests:
                samples = quietest_samples(py_spy, server, workload, path, seconds)
                write_shares(writer, network, workload, request, samples)


def quietest_samples(
    py_spy: Path, server: RunningServer, workload: Workload, path: str, seconds: int
) -> Counter[str]:
    """Samples of the worker under a workload; those of the quietest attempt count.

    Other processes interrupt the worker, most often in system calls, which then seem to take long.

    Arguments:
        py_spy: the program
        server: the running server
        workload: requests and connections
        path: where requests go
        seconds: duration of each attempt
    """
    quietest: tuple[float, Counter[str]] | None = None
    for _ in range(MAX_ATTEMPTS):
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(
                measure, server, workload, seconds + LOAD_MARGIN_SECONDS, [path], max_attempts=1
            )
            samples = count_samples(sample_stacks(py_spy, find_worker(), seconds))
            other_cpus = load.result().other_cpus
        if quietest is None or other_cpus < quietest[0]:
            quietest = other_cpus, samples
        if other_cpus < MAX_OTHER_CPUS:
            break
    assert quietest is not None
    return quietest[1]


def find_worker() -> psutil.Process:
    """The worker: the process of the server that uses most CPU time within a second."""
    candidates = [process for process in processes.descendants() if process.name() != "wrk"]
    before = [processes.cpu_seconds([process]) for process in candidates]
    time.sleep(1)
    used = [
        processes.cpu_seconds([process]) - start for process, start in zip(candidates, before, strict=True)
    ]
    return candidates[used.index(max(used))]


def sample_stacks(py_spy: Path, worker: psutil.Process, seconds: int) -> list[str]:
    """py-spy's stacks of a process, each followed by its number of samples."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "stacks"
        options = ["--native", "--rate", str(SAMPLES_PER_SECOND), "--duration", str(seconds)]
        process = subprocess.run(
            [py_spy, "record", "--pid", str(worker.pid), *options, "--format", "raw", "--output", output],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode or not output.exists():
            raise BenchmarkError(
                f"py-spy: expected stacks of process {worker.pid}, got: {process.stderr[-300:]}"
            )
        return output.read_text(encoding="utf-8").splitlines()


def count_samples(stacks: Sequence[str]) -> Counter[str]:
    """Number of samples by function or library that was active; samples of waiting threads are left out."""
    samples: Counter[str] = Counter()
    for stack in stacks:
        frames, _, count = stack.rpartition(" ")
        name = active_function([parse_frame(frame) for frame in frames.split(";")])
        if name is not None:
            samples[name] += int(count)
    return samples


def active_function(frames: Sequence[tuple[str, str]]) -> str | None:
    """The system call, native library or Python function that is active in a stack; None if it waits.

    Work of the interpreter itself counts for the Python function that it runs.
    """
    function, file = frames[-1]
    if file.startswith("libc.") and not function.startswith("0x"):
        return None if function in WAITING_CALLS else f"{function} (system)"
    for function, file in reversed(frames):
        if ".so" in file and "/" in file:
            return f"{file.partition('/')[0]} (native code)"
        if file.endswith(".py") or file.startswith("<"):
            return None if (function, file) == IDLE_THREAD else f"{function} ({file})"
    return "the interpreter"


def parse_frame(frame: str) -> tuple[str, str]:
    """Function and file of a frame such as "run (asyncio/runners.py:190)", without the line number."""
    function, _, file = frame.rstrip(")").rpartition(" (")
    return function, re.sub(r":\d+$", "", file)


def write_shares(
    writer: ResultsWriter,
    network: BenchmarkNetwork,
    workload: Workload,
    request: str,
    samples: Counter[str],
) -> None:
    """Write a line for each of the functions with most samples."""
    total = samples.total()
    fields: dict[str, Any] = {"net": network.name, "request": request}
    fields |= {"rows": workload.rows, "connections": workload.connections}
    for name, count in samples.most_common(MAX_FUNCTIONS):
        writer.write({"kind": "profile", **fields, "what": name, "share": round(count / total, 4)})


def profile_tables(lines: Sequence[ResultLine]) -> str:
    """A table of the shares of the worker's time for each workload."""
    shares: dict[tuple[str, str, int, int], list[list[str]]] = {}
    for line in lines:
        if line["kind"] == "profile":
            key = line["net"], line["request"], line["rows"], line["connections"]
            shares.setdefault(key, []).append([f"`{line['what']}`", f"{line['share']:.1%}"])
    parts = []
    for (network, request, rows, connections), table_rows in shares.items():
        parts.append(f"**{network}, {request}, rows: {rows}, connections: {connections}**")
        parts.append(markdown_table(["function", "share"], table_rows))
    return "\n\n".join(parts)
