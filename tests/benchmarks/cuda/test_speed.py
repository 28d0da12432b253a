"""Which ways and servers are measured, and what happens to those that fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.cuda import onnxruntime_run, pytorch_run, speed
from benchmarks.cuda.device_python import DevicePython
from benchmarks.cuda.speed import NETWORKS, SpeedPlan, measure_speed, select_networks, servers, time_way
from benchmarks.errors import BenchmarkError
from benchmarks.results.results_file import ResultsWriter, read_results
from turnpike.service.artifact.devices import Device

PYTHON = Path(sys.executable)
NO_PYTHON = Path("/nowhere/python")


def measured_ways(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: Device, *, torch_runs: bool = True, **plan: Any
) -> list[tuple[str, str, Path]]:
    """Precision, way and Python of everything that would be timed."""
    ways: list[tuple[str, str, Path]] = []

    def record(writer: Any, python: DevicePython, fields: Any, program: str, way: str, *rest: Any) -> None:
        ways.append((fields["precision"], way, python.executable))

    monkeypatch.setattr(speed, "time_way", record)
    monkeypatch.setattr(speed, "load_server", lambda *arguments: None)
    monkeypatch.setattr(speed, "check_pytorch", lambda *arguments: torch_runs)
    monkeypatch.setattr(BenchmarkNetwork, "ensure_files", lambda network: None)
    monkeypatch.setattr(BenchmarkNetwork, "exported_file", lambda network, precision: folder)
    with ResultsWriter(folder / "r.jsonl") as writer:
        measure_speed(writer, DevicePython(device, NO_PYTHON), SpeedPlan(networks=NETWORKS[:1], **plan))
    return ways


def test_everything_is_measured_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch runs in the running environment, with its own CUDA libraries."""
    ways = measured_ways(tmp_path, monkeypatch, "cuda")
    for precision in ("fp32", "fp16"):
        assert {(precision, way, NO_PYTHON) for way in onnxruntime_run.WAYS} <= set(ways)
    assert [(precision, way) for precision, way, python in ways if python == PYTHON] == [
        ("fp32", pytorch_run.EAGER),
        ("fp32", pytorch_run.COMPILED),
        ("fp16", pytorch_run.HALF),
    ]


def test_a_rehearsal_has_no_cuda_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {way for _, way, _ in measured_ways(tmp_path, monkeypatch, "cpu", compiled=False)}
    assert ways == {*onnxruntime_run.WAYS, *pytorch_run.WAYS} - {onnxruntime_run.GRAPH, pytorch_run.COMPILED}


def test_pytorch_without_cuda_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = measured_ways(tmp_path, monkeypatch, "cuda", torch_runs=False)
    assert {way for _, way, _ in ways} == set(onnxruntime_run.WAYS)


def test_networks_are_selected_by_name() -> None:
    assert [network.name for network in select_networks("L, S")] == ["L", "S"]
    assert all("fp16" in network.precisions for network in NETWORKS)
    with pytest.raises(BenchmarkError, match="--networks: expected some of S, L, got 'M'"):
        select_networks("S,M")


def test_the_servers_run_on_the_device_and_on_the_cpus() -> None:
    python = DevicePython("cuda", NO_PYTHON, {"LD_LIBRARY_PATH": "cuda"})
    exact, batched, cpu = (server.command(NETWORKS[0], 4711, 4712) for server in servers(python, "fp16"))
    for command in (exact, batched):
        assert command[0] == str(NO_PYTHON)
        assert command[command.index("--device") + 1] == "cuda"
        assert command[command.index("--models") + 1] == str(NETWORKS[0].folder / "fp16")
    assert "--no-exact" in batched
    assert "--no-exact" not in exact
    assert cpu[0] == str(PYTHON)
    assert "--device" not in cpu
    assert servers(python, "fp32")[0].variables == {"LD_LIBRARY_PATH": "cuda"}


def test_a_way_that_fails_keeps_what_it_measured(tmp_path: Path) -> None:
    """The other ways are measured all the same."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\necho \'{"rows": 1, "p50_ms": 2}\'\necho "x.RunError: no room" >&2\nexit 1\n'
    )
    python.chmod(0o755)
    with ResultsWriter(tmp_path / "r.jsonl") as writer:
        time_way(
            writer,
            DevicePython("cuda", python),
            {"net": "S", "precision": "fp32"},
            "onnxruntime_run",
            onnxruntime_run.GRAPH,
            "file",
            NETWORKS[0],
            SpeedPlan(),
        )
    _, measured, failed = read_results(tmp_path / "r.jsonl")
    assert (measured["way"], measured["rows"], measured["p50_ms"]) == (onnxruntime_run.GRAPH, 1, 2)
    assert failed["failed"] == f"S, fp32, {onnxruntime_run.GRAPH}: no room"
