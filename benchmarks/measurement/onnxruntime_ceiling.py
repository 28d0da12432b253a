"""Measures onnxruntime without a server, in several processes: the rows per second that no server can exceed.

    python -m benchmarks.measurement.onnxruntime_ceiling FILE SESSIONS THREADS SECONDS BATCH[,BATCH...]

runs one of these processes; `measure_ceiling` starts them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.contestants.networks import OUTPUT_NAME, BenchmarkNetwork
from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT

PROVIDER = "CPUExecutionProvider"


def measure_ceiling(
    network: BenchmarkNetwork,
    batches: Sequence[int],
    *,
    processes: int,
    threads: int,
    seconds: float,
    sessions: int = 1,
    precision: str = "fp32",
) -> dict[int, float]:
    """Rows per second of all processes together, by rows of a run.

    Arguments:
        network: the network whose file is run
        batches: rows of a run; the processes start each of these sizes at the same time
        processes: number of processes
        threads: onnxruntime's threads in each process
        seconds: duration for each size
        sessions: sessions of the same file in each process, which run in turn
        precision: precision of the file
    """
    # PyTorch exports only fp32; other precisions exist as files of `turnpike export`
    file = network.bare_file if precision == "fp32" else network.exported_file(precision)
    arguments = [str(file), str(sessions), str(threads), str(seconds), ",".join(map(str, batches))]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.measurement.onnxruntime_ceiling", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    try:
        rates = {}
        for batch in batches:
            for process in running:
                expect_line(process, "ready")
            for process in running:
                assert process.stdin
                process.stdin.write("go\n")
                process.stdin.flush()
            rates[batch] = sum(float(expect_line(process, "")) for process in running)
        return rates
    finally:
        for process in running:
            process.kill()
            process.communicate()


def expect_line(process: subprocess.Popen[str], prefix: str) -> str:
    """The next line of a process; BenchmarkError unless it begins with the prefix."""
    assert process.stdout
    line = process.stdout.readline().strip()
    if not line or not line.startswith(prefix):
        raise BenchmarkError(
            f"ceiling: expected {prefix or 'a rate'} from a process, got {line or 'end of its output'!r}"
        )
    return line


def run_process(file: Path, session_count: int, threads: int, seconds: float, batches: Sequence[int]) -> None:
    """For each size: print "ready", wait for a line on stdin, run, and print the rows per second."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    sessions = [
        onnxruntime.InferenceSession(file, options, providers=[PROVIDER]) for _ in range(session_count)
    ]
    (model_input,) = sessions[0].get_inputs()
    for batch in batches:
        rows = np.random.default_rng(0).standard_normal((batch, model_input.shape[1]), np.float32)
        feeds = {model_input.name: rows}
        for session in sessions * 3:
            session.run([OUTPUT_NAME], feeds)
        print("ready", flush=True)
        sys.stdin.readline()
        runs, start, elapsed = 0, time.perf_counter(), 0.0
        while elapsed < seconds:
            sessions[runs % session_count].run([OUTPUT_NAME], feeds)
            runs += 1
            elapsed = time.perf_counter() - start
        print(runs * batch / elapsed, flush=True)


if __name__ == "__main__":
    file, session_count, threads, seconds, batches = sys.argv[1:]
    run_process(
        Path(file),
        int(session_count),
        int(threads),
        float(seconds),
        [int(batch) for batch in batches.split(",")],
    )
