"""Measures the time and memory of an export with full verification, beside bare `torch.onnx.export`.

    python -m benchmarks.cost.export_cost [PRESET ...]

Each measurement is a process of its own, so that both pay for their imports. The two take turns, so that
other work of the machine slows both. Bias: `torch.onnx.export` has its default options, with which it
optimises the graph; turnpike traces without that and folds constants by itself. "verify" is the time of the
proof alone, which is part of the export's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from benchmarks.folders import ROOT

PRESETS = (
    "digits-10",
    "deck-20",
    "fig1-100",
    "conv-16",
    "fitnet-b",
    "charcnn",
    "cbhg",
    "rhn",
    "grid-lstm",
    "transformer",
)
ROUNDS = 3

PREPARE = """
import json, logging, resource, sys, tempfile, time, warnings
logging.disable(logging.ERROR)
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
from export.sources.checkpoint import network_input
from models.networks.families import build_network
from models.training.presets import find_preset
net = build_network(find_preset(sys.argv[1]).config).eval()
spec = network_input(net)
folder = tempfile.mkdtemp()
"""

EXPORT_WITH_TORCH = (
    PREPARE
    + """
from torch.export import Dim
shape = spec.shape(**{dim: 3 for dim in spec.dims if isinstance(dim, str)})
x = torch.zeros(shape, dtype=torch.int64) if net.reads_ids else torch.rand(shape)
import onnx, onnxscript
start = time.perf_counter()
torch.onnx.export(
    net, (x,), folder + "/model.onnx", dynamo=True, dynamic_shapes=({0: Dim("batch")},), verbose=False
)
seconds = {"all": time.perf_counter() - start}
"""
)

EXPORT_WITH_TURNPIKE = (
    PREPARE
    + """
from export import export_model
start = time.perf_counter()
seconds = dict(export_model(net, folder, name="net", inputs=[spec]).seconds)
seconds["all"] = time.perf_counter() - start
"""
)

PRINT_RESULT = """
print(json.dumps({"seconds": seconds, "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def measure(code: str, preset: str) -> dict[str, float]:
    """Run code for a preset in a process: the seconds of its parts, and its peak memory in MiB as "mib"."""
    process = subprocess.run(
        [sys.executable, "-c", code + PRINT_RESULT, preset],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(process.stdout.splitlines()[-1])
    return result["seconds"] | {"mib": result["mib"]}


def main(presets: list[str]) -> None:
    """Print a table of medians over the rounds; ratios are taken within a round first."""
    print("| preset | torch.onnx.export | ours | of it verify | verify / torch.onnx.export | memory, MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for preset in presets:
        rounds = [
            (measure(EXPORT_WITH_TORCH, preset), measure(EXPORT_WITH_TURNPIKE, preset)) for _ in range(ROUNDS)
        ]
        torch_seconds = statistics.median(torch["all"] for torch, _ in rounds)
        seconds = statistics.median(turnpike["all"] for _, turnpike in rounds)
        verify = statistics.median(turnpike["verify"] for _, turnpike in rounds)
        ratio = statistics.median(turnpike["verify"] / torch["all"] for torch, turnpike in rounds)
        torch_mib = statistics.median(torch["mib"] for torch, _ in rounds)
        mib = statistics.median(turnpike["mib"] for _, turnpike in rounds)
        print(
            f"| `{preset}` | {torch_seconds:.1f} s | {seconds:.1f} s | {verify:.2f} s | {ratio:.2f} "
            f"| {torch_mib:.0f} → {mib:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:] or list(PRESETS))
