"""Measures whole commands, from the start of the process to its end: help, lists, and a small export.

    python -m benchmarks.cost.startup_cost [--rounds N] [--against CHECKOUT]

Beside the time, the table has the CPU time (user and system) of each process, which other work of the machine
changes less. With a second checkout, the two take turns, and the ratios are taken within a round. "import of
PyTorch" and "of PyTorch's exporter" are the floor of an export: what `import torch`, and the imports of
`torch.export` and `torch.onnx` with their operators, take alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.folders import ROOT

NETWORK = """
import torch
from torch import nn

class Highway(nn.Module):
    def __init__(self):
        super().__init__()
        self.h, self.t = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        t = torch.sigmoid(self.t(x))
        return t * torch.relu(self.h(x)) + (1 - t) * x

def build():
    return nn.Sequential(nn.Linear(8, 16), Highway(), Highway(), nn.Linear(16, 3))
"""
EXPORTER = "import torch.export._trace, torch.onnx, onnxscript.function_libs.torch_lib.ops"
BUNDLED_MODEL = "service/default/digits-10/1/model.onnx"
HELP = ("train", "compare", "export", "verify", "inspect", "serve", "loadtest", "tune", "demo")
ROUNDS = 5


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured: the arguments of Python, by name."""
    turnpike = ["-m", "turnpike"]
    export = [f"{folder}/network.py:build", "--input", "x:float32[batch,8]", "--to", f"{folder}/models"]
    return {
        "import of PyTorch": ["-c", "import torch"],
        "import of PyTorch's exporter": ["-c", EXPORTER],
        "`turnpike export` of 2 layers": [*turnpike, "export", *export],
        "`turnpike inspect`": [*turnpike, "inspect", BUNDLED_MODEL],
        "`turnpike train --list`": [*turnpike, "train", "--list"],
        "`turnpike --help`": [*turnpike, "--help"],
        **{f"`turnpike {name} --help`": [*turnpike, name, "--help"] for name in HELP},
    }


def measure(arguments: list[str], checkout: Path) -> tuple[float, float]:
    """Run Python once in a checkout: its seconds, and its CPU seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def print_table(rounds: int, against: Path | None) -> None:
    """Print medians over the rounds."""
    headings = ["command", "time", "CPU time"]
    if against is not None:
        headings += ["of the other", "its CPU time", "ratio", "of CPU times"]
    print(f"| {' | '.join(headings)} |\n| --- {'| ---: ' * (len(headings) - 1)}|")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "network.py").write_text(NETWORK)
        for name, arguments in commands(Path(folder)).items():
            ours, other = [], []
            for _ in range(rounds):
                ours.append(measure(arguments, ROOT))
                if against is not None:
                    other.append(measure(arguments, against))
            cells = [f"{statistics.median(values):.2f} s" for values in zip(*ours, strict=True)]
            if against is not None:
                cells += [f"{statistics.median(values):.2f} s" for values in zip(*other, strict=True)]
                pairs = list(zip(ours, other, strict=True))
                cells += [f"{statistics.median(our[i] / its[i] for our, its in pairs):.2f}" for i in (0, 1)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost.startup_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    arguments = parser.parse_args()
    print_table(arguments.rounds, arguments.against and arguments.against.resolve())


if __name__ == "__main__":
    main()
