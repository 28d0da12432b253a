"""`python -m benchmarks.cuda`: without a GPU it ends at once; on the CPU it is a rehearsal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cuda import __main__ as command
from benchmarks.cuda import gpu
from benchmarks.cuda.device_python import DevicePython
from benchmarks.cuda.page import CUDA_PAGE, CUDA_RESULTS, REHEARSAL
from benchmarks.errors import BenchmarkError
from benchmarks.measurement import processes, wrk
from benchmarks.results.results_file import read_results
from tests.support.live_server import ROOT, environment
from turnpike.service.artifact.devices import Device

# a rehearsal of everything with one family and a tiny network, in a process of its own: the benchmark ends
# all descendants of its process
REHEARSAL_PROGRAM = """
import sys
from pathlib import Path
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.cuda import __main__ as command
from benchmarks.cuda.families import PRECISIONS
from benchmarks.cuda.speed import SpeedPlan

tiny = BenchmarkNetwork("tiny", width=4, layers=2, inputs=4, precisions=PRECISIONS)
command.SpeedPlan = lambda **options: SpeedPlan((tiny,), (1, 200), (1,), 1, False)
command.WORK_FOLDER, command.DRAFT_RESULTS, command.DRAFT_PAGE = (
    Path(sys.argv[1], name) for name in ("", "results.jsonl", "page.md")
)
command.main(["--device", "cpu", "--families", "mlp"])
"""


def test_without_a_gpu_it_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it installs or measures anything."""

    def too_late(*arguments: Any) -> Any:
        raise AssertionError("expected an error before this")

    monkeypatch.setattr(gpu, "DRIVER", "no-driver-of-a-gpu.so.1")
    monkeypatch.setattr(command, "device_python", too_late)
    with pytest.raises(SystemExit) as end:
        command.main([])
    message = str(end.value)
    assert message.startswith(
        "benchmarks: --device cuda: expected an NVIDIA GPU with its driver, found no driver"
    )
    assert "\n" not in message


def test_without_the_provider_it_ends_before_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoDevice:
        def expect_device(self) -> None:
            raise BenchmarkError("--device cuda: onnxruntime could not start it")

    monkeypatch.setattr(command, "find_gpu", lambda: None)
    monkeypatch.setattr(wrk, "require_wrk", lambda: None)
    monkeypatch.setattr(command, "device_python", lambda *arguments: NoDevice())
    with pytest.raises(SystemExit, match="^benchmarks: --device cuda: onnxruntime could not start it$"):
        command.main([])


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--families", "cnn", "--families: expected all"), ("--networks", "M", "--networks: expected some of")],
)
def test_unknown_names_are_refused(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str, message: str
) -> None:
    monkeypatch.setattr(wrk, "require_wrk", lambda: None)
    with pytest.raises(SystemExit, match=message):
        command.main(["--device", "cpu", option, value])


@pytest.mark.parametrize(
    ("options", "device", "page"),
    [
        ([], "cuda", "docs.md"),
        (["--networks", "S"], "cuda", "draft.md"),
        (["--no-compile"], "cuda", "draft.md"),
        (["--device", "cpu"], "cpu", "draft.md"),
    ],
)
def test_only_a_whole_run_on_a_gpu_replaces_the_figures_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], device: Device, page: str
) -> None:
    """Others write into a copy."""

    class AnyDevice(DevicePython):
        def expect_device(self) -> None:
            pass

    pages = {name: tmp_path / name for name in ("docs.md", "draft.md")}
    pages["docs.md"].write_text("<!-- cuda -->\n<!-- end of cuda -->\n")
    for name, value in {
        "WORK_FOLDER": tmp_path,
        "CUDA_PAGE": pages["docs.md"],
        "CUDA_RESULTS": tmp_path / "docs.jsonl",
        "DRAFT_PAGE": pages["draft.md"],
        "DRAFT_RESULTS": tmp_path / "draft.jsonl",
        "find_gpu": lambda: gpu.Gpu("Test GPU", 80, "13.2"),
        "device_python": lambda *arguments: AnyDevice(device, Path(sys.executable)),
        "measure_all": lambda *arguments: None,
    }.items():
        monkeypatch.setattr(command, name, value)
    monkeypatch.setattr(wrk, "require_wrk", lambda: None)
    monkeypatch.setattr(processes, "adopt_descendants", lambda: None)
    command.main(options)
    assert [name for name, path in pages.items() if path.exists() and "onnxruntime" in path.read_text()] == [
        page
    ]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rehearsal_runs_to_its_end(tmp_path: Path) -> None:
    """It writes results and a page of its own, and leaves those of the documentation as they are."""
    kept = [path.read_bytes() if path.exists() else None for path in (CUDA_PAGE, CUDA_RESULTS)]
    process = subprocess.run(
        [sys.executable, "-c", REHEARSAL_PROGRAM, tmp_path],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if "wrk: expected the load generator" in process.stderr:
        pytest.skip("requires wrk")
    assert process.returncode == 0, process.stderr
    lines = read_results(tmp_path / "results.jsonl")
    assert not [line for line in lines if "failed" in line]
    assert {"device", "verified", "answers", "pytorch", "way", "load"} <= {line["kind"] for line in lines}
    assert REHEARSAL in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert kept == [path.read_bytes() if path.exists() else None for path in (CUDA_PAGE, CUDA_RESULTS)]
