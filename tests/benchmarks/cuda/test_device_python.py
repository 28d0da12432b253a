"""The Python that has the device: its environment, its libraries, and why it may not run models."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cuda import device_python as module
from benchmarks.cuda.device_python import DevicePython, cuda_variables, device_python, last_line
from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT
from turnpike.service.artifact.runtime import device_available

PYTHON = Path(sys.executable)


def test_a_rehearsal_runs_in_the_running_environment() -> None:
    python = device_python("cpu")
    assert python == DevicePython("cpu", PYTHON)
    python.expect_device()


@pytest.mark.skipif(device_available("cuda"), reason="this environment has the CUDA provider")
def test_a_python_without_the_provider_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="^--device cuda: device: cuda needs an onnxruntime with"):
        DevicePython("cuda", PYTHON).expect_device()


def test_cuda_has_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the CUDA build in the version of the running onnxruntime, and everything else of the latter."""
    commands: list[tuple[Any, ...]] = []

    def run_command(name: str, *words: Any) -> None:
        commands.append(words)
        (tmp_path / f"cuda-{release}/lib/python3/site-packages/nvidia/cu13/lib").mkdir(
            parents=True, exist_ok=True
        )

    release = version("onnxruntime")
    monkeypatch.setattr(module, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(module, "run_command", run_command)
    python = device_python("cuda")
    folder = tmp_path / f"cuda-{release}"
    assert python.executable == folder / "bin/python"
    assert commands[-1][-1] == f"onnxruntime-gpu[cuda,cudnn]=={release}"
    assert python.variables["LD_LIBRARY_PATH"].startswith(
        f"{folder}/lib/python3/site-packages/nvidia/cu13/lib"
    )
    (paths,) = folder.rglob("dependencies.pth")
    assert str(ROOT) in paths.read_text().splitlines()
    count = len(commands)
    assert device_python("cuda") == python
    assert len(commands) == count


def test_without_cuda_libraries_no_variable_is_set(tmp_path: Path) -> None:
    """Those of the system are used."""
    assert cuda_variables(tmp_path) == {}
    own = device_python("cuda", tmp_path / "bin/python")
    assert own == DevicePython("cuda", tmp_path / "bin/python")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Traceback\n  x\nbenchmarks.errors.BenchmarkError: expected a, got b\n\n", "expected a, got b"),
        ("warning: w\nerror: --to: expected a folder\n", "--to: expected a folder"),
        ("", "exit status 3 without a message"),
    ],
)
def test_a_failure_is_the_last_line(output: str, reason: str) -> None:
    assert last_line(subprocess.CompletedProcess([], 3, "", output)) == reason
