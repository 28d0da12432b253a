"""Times PyTorch on the device, in one way of running it, as a program of its own.

    python -m benchmarks.cuda.pytorch_run WAY DEVICE CONFIG FOLDER SECONDS BATCH[,BATCH...]

It runs without the CUDA libraries of onnxruntime, with those of PyTorch. Every run begins and ends with an
array in the memory of the CPU. CONFIG is the network as JSON, FOLDER has its rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.contestants.export_network import build
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.cuda.run_times import Array, Run, print_times
from benchmarks.errors import BenchmarkError

# the ways of running it, by their names in results
EAGER = "PyTorch"
COMPILED = "PyTorch, torch.compile"
HALF = "PyTorch, fp16"
WAYS = (EAGER, COMPILED, HALF)


def main(way: str, device: str, config_json: str, folder: Path, seconds: float, batches: list[int]) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise BenchmarkError(f"expected a build of PyTorch for CUDA, got {torch.__version__}")
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    config = json.loads(config_json)
    dtype = torch.float16 if way == HALF else torch.float32
    module = build(BenchmarkNetwork(**config)).to(device, dtype)
    # this mode captures CUDA graphs
    compute: Callable[[torch.Tensor], torch.Tensor] = (
        torch.compile(module, mode="reduce-overhead", dynamic=False) if way == COMPILED else module
    )

    def run(rows: Array) -> Array:
        logits = compute(torch.from_numpy(rows).to(device, dtype))
        result: Array = logits.float().cpu().numpy()
        return result

    def make_run(batch: int) -> Run:
        return run

    with torch.inference_mode():
        print_times(make_run, folder, batches, seconds, exact=way != HALF)


if __name__ == "__main__":
    way, device, config_json, folder, seconds, batches = sys.argv[1:]
    if way not in WAYS:
        raise BenchmarkError(f"expected one of {', '.join(WAYS)}, got {way!r}")
    main(way, device, config_json, Path(folder), float(seconds), [int(batch) for batch in batches.split(",")])
