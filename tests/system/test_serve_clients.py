"""The service with real client libraries, each in an environment and a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.clients import client_programs
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.live_server import Server, serving
from tests.support.virtualenvs import ROOT, run_client
from turnpike.service.artifact.runtime import open_model
from turnpike.service.repository.scan import MODEL_FILE
from turnpike.service.requests.middleware import COMPRESSED_FROM_BYTES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model with two workers."""
    with serving("--workers", 2) as running:
        yield running


def expected(results: dict[str, Any], output: str = "output") -> Any:
    """The output that onnxruntime computes for the client's rows."""
    rows = np.array(results["rows"], np.float32)
    return open_model(BUNDLED_MODEL).run({"x": rows}, [output])[0].tolist()


def test_the_client_of_triton_works(server: Server) -> None:
    """Every request that its HTTP client can send, in every form."""
    results = run_client(
        "triton_client.py",
        client_programs("triton"),
        server.url.removeprefix("http://"),
        "digits-10",
    )
    outputs = expected(results)
    for form in ("binary", "json", "mixed", "gzip", "deflate", "everything"):
        assert results[form] == outputs, form
    assert results["gate"] == expected(results, "layer03.transform_gate")
    assert (results["live"], results["ready"], results["model_ready"], results["version_ready"]) == (
        True,
    ) * 4
    assert results["absent_ready"] is False
    assert results["server"]["name"] == "turnpike"
    assert results["metadata"]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
    assert results["config"]["max_batch_size"] == 128
    assert results["index"] == [{"name": "digits-10", "version": "1", "state": "READY", "reason": ""}]
    assert (results["id"], results["version"]) == ("seven", "1")
    best = np.argsort(-np.array(outputs), axis=1)[:, :2]
    for row, classes in enumerate(results["classes"]):
        assert classes == [f"{outputs[row][k]:.6f}:{k}:{k}" for k in best[row]]
    assert all(results["async"])
    assert results["wrong_shape"]["status"] == "400"
    assert "inputs[0].shape" in results["wrong_shape"]["message"]
    assert results["no_model"]["status"] == "404"
    assert results["no_output"]["status"] == "400"
    assert results["admin"]["status"] == "403"
    assert results["statistics"]["model_stats"][0]["inference_count"] >= 3 * 24


def test_the_clients_of_triton_read_compressed_answers(tmp_path: Path) -> None:
    """Both ask for gzip and deflate, in both forms of tensors. Only the answers to infer are compressed."""
    shutil.copytree(BUNDLED_MODEL.parents[1], tmp_path / "digits-10")
    # an index that is large enough to be compressed
    for number in range(120):
        file = tmp_path / f"{'broken' * 15}-{number}" / "1" / MODEL_FILE
        file.parent.mkdir(parents=True)
        file.write_bytes(b"no model")
    with serving("--models", tmp_path) as server:
        results = run_client(
            "triton_compression.py",
            client_programs("triton"),
            server.url.removeprefix("http://"),
            "digits-10",
            "layer03.transform_gate",
        )
    outputs = expected(results, "layer03.transform_gate")
    assert len(results["outputs"]) == 8
    assert all(got == outputs for got in results["outputs"].values())
    assert [name for name, _, _ in results["decompressed"]] == ["gzip"] * 4 + ["deflate"] * 4
    assert all(compressed < original / 2 for _, compressed, original in results["decompressed"])
    assert len(results["index"]) == 121
    assert len(json.dumps(results["index"])) > COMPRESSED_FROM_BYTES


def test_the_client_of_kserve_works(server: Server) -> None:
    """Its REST client uses both protocols."""
    results = run_client("kserve_client.py", client_programs("kserve"), server.url, "digits-10")
    outputs = expected(results)
    assert results["binary"] == results["json"] == outputs
    assert (results["binary_id"], results["json_id"]) == ("binary", "json")
    assert (results["live"], results["ready"], results["model_ready"]) == (True,) * 3
    assert results["live_in_v1"] is True
    assert [prediction["label"] for prediction in results["predictions"]] == [
        str(k) for k in np.argmax(outputs, axis=1)
    ]


def test_schemathesis_finds_no_undocumented_response(server: Server) -> None:
    """Random requests to all operations of the OpenAPI document get only responses that it describes."""
    ran = subprocess.run(
        [
            client_programs("schemathesis") / "schemathesis",
            "--config-file",
            ROOT / "tests/clients/schemathesis.toml",
            "run",
            f"{server.url}/openapi.json",
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            "--max-examples",
            "60",
            "--seed",
            "1",
            "--generation-database",
            "none",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:]
