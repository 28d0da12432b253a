"""Answers of the service on the device are compared with those on the CPU."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cuda import answers
from benchmarks.cuda.answers import array_of, compare_answers, differences, joined, refusal
from benchmarks.cuda.device_python import DevicePython
from benchmarks.cuda.families import FAMILY_NETWORKS, model_file
from benchmarks.errors import BenchmarkError
from benchmarks.results.results_file import ResultsWriter, read_results
from tests.support.manifests import MANIFEST
from turnpike import service

BUNDLED_MODEL = Path(service.__file__).parent / "default/digits-10/1/model.onnx"
MLP = FAMILY_NETWORKS[0]
ONES = np.ones((2, 3), np.float32)
ANSWERS = {
    ("predictions", "output"): ONES,
    ("gates", "gate"): ONES,
    ("gates", "output"): ONES,
    ("lesions", "output after it"): ONES,
}


def test_the_tensor_that_differs_most_is_named() -> None:
    """The difference is given as a share of what is allowed; more than that is a failure."""
    actual = ANSWERS | {("gates", "gate"): ONES + 1e-6, ("lesions", "output after it"): ONES + 1}
    lines = {line["request"]: line for line in differences(ANSWERS, actual, MANIFEST)}
    assert lines["predictions"]["share"] == 0
    assert (lines["gates"]["tensor"], lines["gates"]["tensors"]) == ("gate", 2)
    assert 0 < lines["gates"]["share"] < 1
    assert "failed" not in lines["gates"]
    assert "output after it differs by" in lines["lesions"]["failed"]


def test_nan_is_a_failure() -> None:
    actual = ANSWERS | {("predictions", "output"): ONES * np.float32("nan")}
    assert "inf times" in next(differences(ANSWERS, actual, MANIFEST))["failed"]


def test_the_tensors_must_be_the_same() -> None:
    with pytest.raises(BenchmarkError, match="answers: expected tensors"):
        next(differences(ANSWERS, {}, MANIFEST))


def test_samples_share_a_request() -> None:
    def sample(value: float) -> list[dict[str, Any]]:
        return [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [value, value]}]

    (tensor,) = joined([sample(1), sample(2)])
    assert array_of(tensor).tolist() == [[1, 1], [2, 2]]


def test_the_log_says_why_a_model_is_not_served(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("mlp-fp16: not served: no room\nrhn-fp32: loaded\n")
    assert refusal(log, "mlp-fp16") == "; the log says mlp-fp16: not served: no room"
    assert refusal(log, "conv-fp16") == ""


@pytest.mark.slow
def test_two_services_are_asked_for_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is the CPU here, so that nothing differs. A file that is missing is a failure of its own."""
    repository = tmp_path / "repository"
    file = model_file(repository, MLP, "fp32")
    file.parent.mkdir(parents=True)
    shutil.copy(BUNDLED_MODEL, file)
    missing = model_file(repository, MLP, "fp16")
    monkeypatch.setattr(
        answers, "model_file", lambda *arguments: file if arguments[-1] == "fp16" else model_file(*arguments)
    )
    with ResultsWriter(tmp_path / "r.jsonl") as writer:
        compare_answers(writer, DevicePython("cpu", Path(sys.executable)), [MLP], repository)
    _, *lines, failed = read_results(tmp_path / "r.jsonl")
    assert [(line["request"], line["share"]) for line in lines] == [
        ("predictions", 0),
        ("gates", 0),
        ("lesions", 0),
    ]
    assert lines[1]["tensors"] == 11
    assert not missing.exists()
    assert failed["failed"].startswith("mlp-fp16: /v2/models/mlp-fp16/samples: expected 200, got 404")
