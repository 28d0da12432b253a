"""Measures whole commands (help, lists, a small export), and the start and memory of the service.

    python -m benchmarks.cost.startup_cost [--rounds N] [--against CHECKOUT] [--service]

Beside the time from the start of a process to its end, the first table has the CPU time (user and system) of
each process, which other work of the machine changes less. With a second checkout, the two take turns, and
the ratios are taken within a round. "import of PyTorch" and "of PyTorch's exporter" are the floor of an
export: what `import torch`, and the imports of `torch.export` and `torch.onnx` with their operators, take
alone.

The second table has `turnpike serve` with the bundled model and two workers: the time from the start of the
command to the first right answer, and the memory and CPU time of all its processes one second later.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT
from benchmarks.measurement.processes import cpu_seconds, memory_usage
from benchmarks.measurement.server_process import free_ports
from turnpike.service.api.openapi.operation import DIGIT

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
WORKERS = 2
# what DIGIT shows
RIGHT_LABEL = "2"
# between two tries to get an answer
POLL_SECONDS = 0.002
# after which a server that gives no right answer has failed
MAX_START_SECONDS = 60.0
# between the first answer and the measurement of memory
SETTLE_SECONDS = 1.0


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
        env=os.environ | {"PYTHONPATH": f"{checkout}/src{os.pathsep}{checkout}"},
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


class ServiceStart(NamedTuple):
    """The seconds to the first right answer; CPU seconds and MiB of all processes soon after it."""

    seconds: float
    cpu: float
    workers_rss: int
    rss: int
    pss: int


def measure_service(checkout: Path) -> ServiceStart:
    """Start the service of a checkout, and stop it after its first right answer."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "turnpike", "serve", "--port", str(port), "--workers", str(WORKERS)]
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": f"{checkout}/src{os.pathsep}{checkout}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while answered_label(port) != RIGHT_LABEL:
                if process.poll() is not None or time.perf_counter() - start > MAX_START_SECONDS:
                    raise BenchmarkError(f"{checkout}: expected an answer of turnpike serve, got none")
                time.sleep(POLL_SECONDS)
            seconds = time.perf_counter() - start
            time.sleep(SETTLE_SECONDS)
            supervisor = psutil.Process(process.pid)
            workers = supervisor.children(recursive=True)
            memory = memory_usage([supervisor, *workers])
            return ServiceStart(
                seconds,
                cpu_seconds([supervisor, *workers]),
                memory_usage(workers)["rss_mib"],
                memory["rss_mib"],
                memory["pss_mib"],
            )
        finally:
            process.terminate()


def answered_label(port: int) -> str | None:
    """The label that the service gives the digit; None if it does not answer yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_START_SECONDS)
    try:
        connection.request("POST", "/v1/models/digits-10:predict", json.dumps({"instances": [DIGIT]}))
        response = connection.getresponse()
        content = response.read()
        return json.loads(content)["predictions"][0]["label"] if response.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


def print_service_table(rounds: int, against: Path | None) -> None:
    """Print medians over the rounds; checkouts take turns."""
    checkouts = {"this one": ROOT} | ({} if against is None else {"the other": against})
    starts: dict[str, list[ServiceStart]] = {name: [] for name in checkouts}
    for _ in range(rounds):
        for name, checkout in checkouts.items():
            starts[name].append(measure_service(checkout))
    print("| checkout | first answer | CPU time | RSS of the workers | RSS | PSS |")
    print("| --- " + "| ---: " * len(ServiceStart._fields) + "|")
    for name, measured in starts.items():
        seconds, cpu, *memory = (statistics.median(values) for values in zip(*measured, strict=True))
        cells = [f"{seconds:.2f} s", f"{cpu:.2f} s", *(f"{mib:.0f} MiB" for mib in memory)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost.startup_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--service", action="store_true", help="only the second table")
    arguments = parser.parse_args()
    against = arguments.against and arguments.against.resolve()
    if not arguments.service:
        print_table(arguments.rounds, against)
        print()
    print_service_table(arguments.rounds, against)


if __name__ == "__main__":
    main()
