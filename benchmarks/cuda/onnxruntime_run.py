"""Times onnxruntime on the device without a server, in one way of running it, as a program of its own.

    python -m benchmarks.cuda.onnxruntime_run WAY DEVICE FILE FOLDER SECONDS BATCH[,BATCH...]

All ways begin and end with arrays in the memory of the CPU, as in a server. FOLDER has the network's rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.contestants.networks import CLASSES, OUTPUT_NAME
from benchmarks.cuda.run_times import Array, Run, print_times
from benchmarks.errors import BenchmarkError
from turnpike.service.artifact.devices import PROVIDERS, Device, provider_options
from turnpike.service.artifact.runtime import expect_device, open_model, session_options

INPUT_NAME = "x"

# the ways of running it, by their names in results
PLAIN = "onnxruntime"
SERVICE = "onnxruntime as in the service"
BOUND = "onnxruntime, bound buffers"
GRAPH = "onnxruntime, CUDA graph"
WAYS = (PLAIN, SERVICE, BOUND, GRAPH)


def open_session(file: Path, device: Device, *, cuda_graph: bool) -> onnxruntime.InferenceSession:
    """A session with the service's own options; `cuda_graph` adds the capture of graphs."""
    expect_device(device)
    if cuda_graph and device != "cuda":
        raise BenchmarkError(f"{GRAPH}: expected the device cuda, got {device}, which ignores the option")
    options = provider_options(device, threads=1, precision="fp32")
    options |= {"enable_cuda_graph": "1"} if cuda_graph else {}
    return onnxruntime.InferenceSession(
        str(file), session_options(1), providers=[(PROVIDERS[device], options)], enable_fallback=0
    )


class BoundRun:
    """Runs one number of rows in buffers on the device: a copy to it, a run, and a copy back.

    The buffers keep their addresses, which a captured graph requires. `graph_id` is the number of the
    session's graph for this number of rows; None captures none.
    """

    def __init__(
        self, session: onnxruntime.InferenceSession, device: Device, batch: int, graph_id: int | None
    ) -> None:
        (width,) = session.get_inputs()[0].shape[1:]

        def buffer(columns: int) -> onnxruntime.OrtValue:
            return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((batch, columns), np.float32), device, 0)

        self._session = session
        self._rows, self._logits = buffer(width), buffer(CLASSES)
        self._binding = session.io_binding()
        self._binding.bind_ortvalue_input(INPUT_NAME, self._rows)
        self._binding.bind_ortvalue_output(OUTPUT_NAME, self._logits)
        self._options = onnxruntime.RunOptions()
        if graph_id is not None:
            self._options.add_run_config_entry("gpu_graph_id", str(graph_id))

    def __call__(self, rows: Array) -> Array:
        self._rows.update_inplace(rows)
        self._session.run_with_iobinding(self._binding, self._options)
        logits: Array = self._logits.numpy()
        return logits


def main(way: str, device: Device, file: Path, folder: Path, seconds: float, batches: list[int]) -> None:
    if way == SERVICE:
        runtime = open_model(file, device=device)
    else:
        session = open_session(file, device, cuda_graph=way == GRAPH)

    def make_run(batch: int) -> Run:
        if way == SERVICE:
            return lambda rows: runtime.run({INPUT_NAME: rows}, [OUTPUT_NAME])[0]
        if way == PLAIN:
            return lambda rows: session.run([OUTPUT_NAME], {INPUT_NAME: rows})[0]
        # one graph for each number of rows; 0 is reserved
        return BoundRun(session, device, batch, graph_id=batches.index(batch) + 1 if way == GRAPH else None)

    exact = "fp16" not in file.parts
    print_times(make_run, folder, batches, seconds, exact=exact)


if __name__ == "__main__":
    way, device, file, folder, seconds, batches = sys.argv[1:]
    if way not in WAYS or device not in PROVIDERS:
        raise BenchmarkError(f"expected one of {', '.join(WAYS)} on one of {', '.join(PROVIDERS)}")
    main(way, device, Path(file), Path(folder), float(seconds), [int(batch) for batch in batches.split(",")])
