"""`turnpike serve --device openvino`, with OpenVINO's plugin for onnxruntime."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.live_server import ROOT, Server, environment, serving, worker_processes
from tests.support.openvino import require_openvino
from turnpike.service.artifact.devices import BF16_FLAGS, CPU_INFO
from turnpike.service.artifact.runtime import open_model

pytestmark = pytest.mark.slow

MODEL_FILE = ROOT / "service/default/digits-10/1/model.onnx"
INFER, GATES, LESION = (f"/v2/models/digits-10/{action}" for action in ("infer", "gates", "lesion"))
RUNTIME = open_model(MODEL_FILE)
INPUT = RUNTIME.inputs[0].name
X = np.random.default_rng(3).uniform(0, 16, (20, 1, 8, 8)).astype(np.float32)
HAS_BF16 = not BF16_FLAGS.isdisjoint(CPU_INFO.read_text(encoding="utf-8").split())


@pytest.fixture(autouse=True)
def openvino() -> None:
    require_openvino()


@pytest.fixture(
    params=["fp32", pytest.param("bf16", marks=pytest.mark.skipif(not HAS_BF16, reason="no bf16"))]
)
def precision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(precision: str) -> Iterator[Server]:
    options = ("--models", MODEL_FILE.parents[2], "--device", "openvino", "--precision", precision)
    with serving(*options, "--check-parity") as server:
        yield server


def infer_request(rows: Any) -> dict[str, Any]:
    tensor = {"name": INPUT, "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    return {"inputs": [tensor]}


def output_of(answer: Any) -> Any:
    (output,) = answer["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def test_predictions_gates_and_lesions(server: Server, precision: str) -> None:
    """Predictions and gates agree with the CPU's up to rounding, and a lesion has the effect it has there."""
    certificate = server.get("/v2/models/digits-10/certificate").json()
    assert (certificate["device"], certificate["device_precision"]) == ("openvino", precision)
    (expected,) = RUNTIME.run({INPUT: X})
    request = infer_request(X)
    tolerance = (1e-4 if precision == "fp32" else 5e-2) * float(np.abs(expected).max())

    predicted = output_of(server.post(INFER, request).json())
    np.testing.assert_allclose(predicted, expected, atol=tolerance)
    assert bool((predicted != expected).any())

    gates = server.post(GATES, request).json()
    assert output_of(gates).tobytes() == predicted.tobytes()
    names = [gate["name"] for gate in gates["gates"]]
    for gate, values in zip(gates["gates"], RUNTIME.run({INPUT: X}, names), strict=True):
        assert gate["mean"] == pytest.approx(values.mean(), abs=1e-4 if precision == "fp32" else 1e-2)

    # OpenVINO's graphs have no levers: an override that is left out would leave the outputs as they are
    lesion = server.post(LESION, request | {"close": [0, 1, 2]}).json()
    assert output_of(lesion).tobytes() == expected.tobytes()
    moved = np.abs(output_of(lesion["lesioned"]) - output_of(lesion)).max()
    assert moved > 0.1
    # both runs take place on the CPU provider, even if no gate moves
    no_moves: tuple[dict[str, Any], ...] = ({"shift": {"0": 0}}, {"close": []})
    for moves in no_moves:
        unmoved = server.post(LESION, request | moves).json()
        assert output_of(unmoved["lesioned"]).tobytes() == output_of(unmoved).tobytes()


def test_one_row_has_the_same_bits_as_in_a_batch(server: Server) -> None:
    """A model is batched only if the probe found that batches change no bit; nor does a sample for drift."""
    if server.get("/v2/models/digits-10/certificate").json()["batched"]:
        together = output_of(server.post(INFER, infer_request(X)).json())
        for row, expected in zip(X[:3], together[:3], strict=True):
            assert (
                output_of(server.post(INFER, infer_request(row[None])).json()).tobytes() == expected.tobytes()
            )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_workers_use_all_cpus() -> None:
    """OpenVINO would run every worker on the first CPUs of the machine, and leave the others idle."""
    options = ("--models", MODEL_FILE.parents[2], "--device", "openvino", "--threads", "1")
    with serving(*options) as server:
        (worker,) = worker_processes(server)
        tasks = Path(f"/proc/{worker.pid}/task")
        done = threading.Event()
        affinities = set()

        def watch() -> None:
            # a thread is only pinned while it runs the model
            while not done.is_set():
                for task in tasks.iterdir():
                    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                        affinities.add(frozenset(os.sched_getaffinity(int(task.name))))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            request = infer_request(np.repeat(X, 50, axis=0))
            for _ in range(100):
                assert server.post(INFER, request).status_code == 200
        finally:
            done.set()
            watcher.join()
    assert affinities == {frozenset(os.sched_getaffinity(0))}


@pytest.mark.skipif(not HAS_BF16, reason="no bf16")
def test_a_service_that_cannot_compute_in_bf16_does_not_start() -> None:
    """With this variable OpenVINO takes the CPU for one with bf16, and may not use its instructions."""
    command = f"{sys.executable} -m turnpike serve --port 0 --device openvino --precision bf16"
    result = subprocess.run(
        command.split(),
        cwd=ROOT,
        env=environment(ONEDNN_MAX_CPU_ISA="AVX2"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 2
    assert "error: device: a model that tries bf16: onnxruntime cannot open it" in result.stderr


@pytest.mark.thorough
@pytest.mark.skipif(not HAS_BF16, reason="no bf16")
def test_verify_shows_the_difference_of_each_tensor(tmp_path: Path) -> None:
    """The file is proved in fp32, and compared in bf16."""

    def turnpike(*words: object) -> str:
        command = [sys.executable, "-m", "turnpike", *map(str, words)]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    turnpike("train", "digits-10", "--epochs", "1", "--no-pictures", "--out", tmp_path / "run")
    turnpike("export", tmp_path / "run", "--to", tmp_path)
    file = tmp_path / "digits-10/1/model.onnx"
    output = turnpike(
        *("verify", file, "--against", tmp_path / "run", "--device", "openvino", "--precision", "bf16")
    )
    for name in ("output", "layer00.transform_gate"):
        assert re.search(rf"^{name}: relative rms error 0\.\d+%, largest difference ", output, re.MULTILINE)
    assert "bf16: agrees with fp32 on" in output
