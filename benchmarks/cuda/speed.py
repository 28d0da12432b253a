"""Measures the speed of networks on the device: in one process by several ways, and over HTTP."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.contestants.contestants import TURNPIKE, Contestant, turnpike
from benchmarks.contestants.networks import NETWORK_L, NETWORK_S, BenchmarkNetwork
from benchmarks.cuda import onnxruntime_run, pytorch_run
from benchmarks.cuda.device_python import DevicePython, last_line
from benchmarks.cuda.families import PRECISIONS
from benchmarks.errors import BenchmarkError
from benchmarks.measurement.measure import Workload, measure, warm_up
from benchmarks.measurement.server_process import running_server
from benchmarks.results.results_file import ResultLine, ResultsWriter

NETWORKS = tuple(replace(network, precisions=PRECISIONS) for network in (NETWORK_S, NETWORK_L))
BATCHES = (1, 8, 32, 128, 1024)
CONNECTIONS = (1, 16, 64)


@dataclass(frozen=True)
class SpeedPlan:
    """What is measured.

    Arguments:
        networks: the networks, with files in fp32 and fp16
        batches: rows of a run in one process
        connections: connections to a server, with one row in each request
        seconds: duration of each measurement
        compiled: whether torch.compile is among the ways, which needs a C compiler and takes a while
    """

    networks: tuple[BenchmarkNetwork, ...] = NETWORKS
    batches: tuple[int, ...] = BATCHES
    connections: tuple[int, ...] = CONNECTIONS
    seconds: int = 2
    compiled: bool = True


def select_networks(names: str) -> tuple[BenchmarkNetwork, ...]:
    """The networks with these names, separated by commas."""
    by_name = {network.name: network for network in NETWORKS}
    wanted = [name.strip() for name in names.split(",")]
    if unknown := [name for name in wanted if name not in by_name]:
        raise BenchmarkError(f"--networks: expected some of {', '.join(by_name)}, got {unknown[0]!r}")
    return tuple(by_name[name] for name in dict.fromkeys(wanted))


def measure_speed(writer: ResultsWriter, python: DevicePython, plan: SpeedPlan) -> None:
    """Measure every way and every server on each network. One that fails gets a line with the reason."""
    # without the CUDA libraries of onnxruntime
    torch_python = DevicePython(python.device, Path(sys.executable))
    torch_runs = check_pytorch(writer, torch_python)
    for network in plan.networks:
        network.ensure_files()
        for precision in PRECISIONS:
            fields: ResultLine = {"net": network.name, "precision": precision}
            for way in onnxruntime_run.WAYS:
                if way != onnxruntime_run.GRAPH or python.device == "cuda":
                    file = str(network.exported_file(precision))
                    time_way(writer, python, fields, "onnxruntime_run", way, file, network, plan)
            for way in pytorch_run.WAYS:
                is_of_precision = (way == pytorch_run.HALF) == (precision == "fp16")
                if torch_runs and is_of_precision and (plan.compiled or way != pytorch_run.COMPILED):
                    config = network.config_json
                    time_way(writer, torch_python, fields, "pytorch_run", way, config, network, plan)
            for server in servers(python, precision):
                load_server(writer, fields, server, network, plan)


def check_pytorch(writer: ResultsWriter, python: DevicePython) -> bool:
    """Whether PyTorch has the device; a line says so. Its build is the user's choice."""
    process = python.run("-c", "import torch; print(torch.__version__, torch.cuda.is_available())")
    if process.returncode:
        raise BenchmarkError(f"PyTorch: {last_line(process)}")
    version, has_cuda = process.stdout.split()
    runs = python.device != "cuda" or has_cuda == "True"
    writer.write({"kind": "pytorch", "version": version, "runs": runs})
    return runs


def time_way(
    writer: ResultsWriter,
    python: DevicePython,
    fields: ResultLine,
    program: str,
    way: str,
    source: str,
    network: BenchmarkNetwork,
    plan: SpeedPlan,
) -> None:
    """Run a program that times one way in all batches, and write a line for each.

    Arguments:
        writer: writes the lines
        python: the Python that runs the program
        fields: network and precision
        program: the module of this package that times the way
        way: its name
        source: what the program reads the network from
        network: the network
        plan: batches, and the duration of each measurement
    """
    batches = ",".join(map(str, plan.batches))
    arguments = (way, python.device, source, network.folder, plan.seconds, batches)
    process = python.run("-m", f"benchmarks.cuda.{program}", *arguments)
    line: ResultLine = {"kind": "way", **fields, "way": way}
    for times in process.stdout.splitlines():
        writer.write(line | json.loads(times))
    if process.returncode:
        failure = f"{network.name}, {fields['precision']}, {way}: {last_line(process)}"
        writer.write(line | {"failed": failure})


def servers(python: DevicePython, precision: str) -> tuple[Contestant, ...]:
    """turnpike on the device with exact answers and without, and on the CPUs of the machine."""

    def on_device(name: str, *options: str) -> Contestant:
        serve = turnpike(name, "--device", python.device, *options, workers=1, threads=1, precision=precision)
        arguments = (str(python.executable), *serve.arguments[1:])
        return replace(serve, arguments=arguments, variables=python.variables)

    return (
        on_device("turnpike"),
        on_device("turnpike --no-exact", "--no-exact"),
        replace(TURNPIKE, name="turnpike --device cpu", precision=precision),
    )


def load_server(
    writer: ResultsWriter,
    fields: ResultLine,
    contestant: Contestant,
    network: BenchmarkNetwork,
    plan: SpeedPlan,
) -> None:
    """Start a server, and write its rate and latency for each number of connections."""
    fields = {"kind": "load", **fields, "server": contestant.name}
    try:
        with running_server(contestant, network) as server:
            warm_up(server, Workload("JSON", 1, plan.connections[-1]))
            for connections in plan.connections:
                measured = measure(server, Workload("JSON", 1, connections), plan.seconds)
                line = fields | {"connections": connections, **measured.fields()}
                if measured.load.lost or measured.load.refused:
                    line["failed"] = f"{contestant.name}, {network.name}: some requests got no answer"
                writer.write(line)
    except BenchmarkError as error:
        writer.write(fields | {"failed": f"{fields['precision']}, {error}"})
