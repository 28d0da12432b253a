"""Measures the time and memory of an export with full verification, beside bare `torch.onnx.export`.

    python -m benchmarks.cost.export_cost [PRESET ...]

Each measurement is a process of its own, so that both pay for their imports. The two take turns, so that
other work of the machine slows both. Bias: `torch.onnx.export` has its default options, with which it
optimises the graph; turnpike traces without that and folds constants by itself. "proof" is the time of the
proof alone, which is part of the export's.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from typing import TYPE_CHECKING

from benchmarks.folders import ROOT

if TYPE_CHECKING:
    from turnpike.export.input_spec import InputSpec
    from turnpike.models.networks.base import Net

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


def build(preset: str) -> tuple[Net, InputSpec]:
    """The network of a preset with random weights, and its input."""
    import torch

    from turnpike.export.sources.checkpoint import network_input
    from turnpike.models.networks.families import build_network
    from turnpike.models.training.presets import find_preset

    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = build_network(find_preset(preset).config).eval()
    return network, network_input(network)


def export_with_torch(preset: str) -> dict[str, float]:
    """Export with PyTorch alone; returns the seconds as "all"."""
    network, spec = build(preset)
    import onnxscript  # noqa: F401
    import torch
    from torch.export import Dim

    shape = spec.shape(**{dim: 3 for dim in spec.dims if isinstance(dim, str)})
    rows = torch.zeros(shape, dtype=torch.int64) if network.reads_ids else torch.rand(shape)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        torch.onnx.export(
            network,
            (rows,),
            f"{folder}/model.onnx",
            dynamo=True,
            dynamic_shapes=({0: Dim("batch")},),
            verbose=False,
        )
        return {"all": time.perf_counter() - start}


def export_with_turnpike(preset: str) -> dict[str, float]:
    """Export with proof; returns the seconds of each part, and of "all"."""
    network, spec = build(preset)
    from turnpike.export.pipeline import export_model

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        seconds = export_model(network, folder, name="net", inputs=[spec]).seconds
        return {**seconds, "all": time.perf_counter() - start}


EXPORTERS = {"torch": export_with_torch, "turnpike": export_with_turnpike}


def measure(exporter: str, preset: str) -> dict[str, float]:
    """Export a preset in a process: the seconds of its parts, and its peak memory in MiB as "mib"."""
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.cost.export_cost", "--exporter", exporter, preset],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return result


def print_measurement(exporter: str, preset: str) -> None:
    """Export a preset in this process, and print the seconds and the memory as JSON."""
    seconds = EXPORTERS[exporter](preset)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**seconds, "mib": mib}))


def print_table(presets: list[str]) -> None:
    """Print a table of medians over the rounds; ratios are taken within a round first."""
    print("| preset | torch.onnx.export | turnpike export | its proof | proof / torch.onnx.export | MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for preset in presets:
        rounds = [(measure("torch", preset), measure("turnpike", preset)) for _ in range(ROUNDS)]
        torch_seconds = statistics.median(torch["all"] for torch, _ in rounds)
        seconds = statistics.median(turnpike["all"] for _, turnpike in rounds)
        proof = statistics.median(turnpike["verify"] for _, turnpike in rounds)
        ratio = statistics.median(turnpike["verify"] / torch["all"] for torch, turnpike in rounds)
        torch_mib = statistics.median(torch["mib"] for torch, _ in rounds)
        mib = statistics.median(turnpike["mib"] for _, turnpike in rounds)
        print(
            f"| `{preset}` | {torch_seconds:.1f} s | {seconds:.1f} s | {proof:.2f} s | {ratio:.2f} "
            f"| {torch_mib:.0f} → {mib:.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost.export_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("presets", nargs="*", metavar="PRESET", help="presets to export (default: ten)")
    parser.add_argument(
        "--exporter",
        choices=EXPORTERS,
        help="export one preset in this process, and print JSON",
    )
    arguments = parser.parse_args()
    if arguments.exporter:
        (preset,) = arguments.presets
        print_measurement(arguments.exporter, preset)
    else:
        print_table(arguments.presets or list(PRESETS))


if __name__ == "__main__":
    main()
