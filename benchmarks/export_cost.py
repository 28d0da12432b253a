"""What an export with full verification costs beside bare `torch.onnx.export`, preset by preset.

    python benchmarks/export_cost.py [PRESET ...]

Each measurement is a process of its own, the two in turn, so that both pay for their imports, and what
else the machine does slows both. Bias: `torch.onnx.export` is given its default options, with which it
optimises the graph; ours traces without that and folds by itself. "verify" is our time for the proof
alone, within the export's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
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

COMMON = """
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

BARE = (
    COMMON
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

OURS = (
    COMMON
    + """
from export import export_model
start = time.perf_counter()
seconds = dict(export_model(net, folder, name="net", inputs=[spec]).seconds)
seconds["all"] = time.perf_counter() - start
"""
)

TELL = """
print(json.dumps({"seconds": seconds, "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def measured(code: str, preset: str) -> dict[str, float]:
    """One process's seconds and peak memory."""
    ran = subprocess.run(
        [sys.executable, "-c", code + TELL, preset],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    return told["seconds"] | {"mib": told["mib"]}


def main(presets: list[str]) -> None:
    """Print a table: medians of the rounds, and of their ratios."""
    print("| preset | torch.onnx.export | ours | of it verify | verify / torch.onnx.export | memory, MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for preset in presets:
        rounds = [(measured(BARE, preset), measured(OURS, preset)) for _ in range(ROUNDS)]
        bare = statistics.median(one["all"] for one, _ in rounds)
        ours = statistics.median(two["all"] for _, two in rounds)
        verify = statistics.median(two["verify"] for _, two in rounds)
        ratio = statistics.median(two["verify"] / one["all"] for one, two in rounds)
        mib = [statistics.median(pair[side]["mib"] for pair in rounds) for side in (0, 1)]
        print(
            f"| `{preset}` | {bare:.1f} s | {ours:.1f} s | {verify:.2f} s | {ratio:.2f} "
            f"| {mib[0]:.0f} → {mib[1]:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:] or list(PRESETS))
