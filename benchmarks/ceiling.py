"""The ceiling: onnxruntime without a server, in as many processes and threads; rows a second at a batch size.

    python -m benchmarks.ceiling FILE SESSIONS THREADS SECONDS BATCH[,BATCH...]

is one process of these, which `rates` starts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.errors import BenchmarkError
from benchmarks.nets import OUTPUT, Net
from benchmarks.places import ROOT

PROVIDER = "CPUExecutionProvider"


def rates(
    net: Net,
    batches: Sequence[int],
    *,
    processes: int,
    threads: int,
    seconds: float,
    sessions: int = 1,
    precision: str = "fp32",
) -> dict[int, float]:
    """Rows a second of all processes together, by the batch size; each begins a size when all are there.

    Where there are several sessions of the file, they run in turn.
    """
    # of a lower precision there is our own file alone
    file = net.bare if precision == "fp32" else net.exported(precision)
    told = [str(file), str(sessions), str(threads), str(seconds), ",".join(map(str, batches))]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ceiling", *told],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    try:
        found = {}
        for batch in batches:
            for one in running:
                expect(one, "ready")
            for one in running:
                assert one.stdin
                one.stdin.write("go\n")
                one.stdin.flush()
            found[batch] = sum(float(expect(one, "")) for one in running)
        return found
    finally:
        for one in running:
            one.kill()
            one.communicate()


def expect(process: subprocess.Popen[str], word: str) -> str:
    """The next line of a process, which is to begin with the word."""
    assert process.stdout
    line = process.stdout.readline().strip()
    if not line or not line.startswith(word):
        raise BenchmarkError(f"ceiling: expected {word or 'a rate'} of a process, got {line or 'its end'!r}")
    return line


def run(file: Path, count: int, threads: int, seconds: float, batches: Sequence[int]) -> None:
    """One process: for each size it says that it is ready, waits for a line, and says its rows a second."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    sessions = [onnxruntime.InferenceSession(file, options, providers=[PROVIDER]) for _ in range(count)]
    (given,) = sessions[0].get_inputs()
    for batch in batches:
        feeds = {given.name: np.random.default_rng(0).standard_normal((batch, given.shape[1]), np.float32)}
        for session in sessions * 3:
            session.run([OUTPUT], feeds)
        print("ready", flush=True)
        sys.stdin.readline()
        runs, begun, now = 0, time.perf_counter(), 0.0
        while now < seconds:
            sessions[runs % count].run([OUTPUT], feeds)
            runs += 1
            now = time.perf_counter() - begun
        print(runs * batch / now, flush=True)


if __name__ == "__main__":
    file, count, threads, seconds, batches = sys.argv[1:]
    run(Path(file), int(count), int(threads), float(seconds), [int(size) for size in batches.split(",")])
