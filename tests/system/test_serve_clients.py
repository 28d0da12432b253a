"""The service as real clients see it, each installed from its package and run as a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from service.artifact.runtime import open_model
from tests.support.live_server import Server, serving
from tests.support.virtualenvs import ROOT, installed_programs, run_client
from tests.system.test_serve_faults import DEFAULT

# they disagree with each other and with us on the versions of what they need
CLIENTS = {
    "triton": "tritonclient[http]==2.73.0",
    "kserve": "kserve==0.21.0",
    "schemathesis": "schemathesis==4.32.5",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model with two workers."""
    with serving("--workers", 2) as one:
        yield one


def expected(said: dict[str, Any], output: str = "output") -> Any:
    """What onnxruntime itself answers."""
    rows = np.array(said["rows"], np.float32)
    return open_model(DEFAULT).run({"x": rows}, [output])[0].tolist()


def test_tritonclient(server: Server) -> None:
    """Everything its HTTP client can ask for, in every form it can ask."""
    said = run_client(
        "triton_client.py",
        installed_programs("triton", CLIENTS["triton"]),
        server.url.removeprefix("http://"),
        "digits-10",
    )
    truth = expected(said)
    for way in ("binary", "json", "mixed", "gzip", "deflate", "everything"):
        assert said[way] == truth, way
    assert said["gate"] == expected(said, "layer03.transform_gate")
    assert (said["live"], said["ready"], said["model_ready"], said["version_ready"]) == (True,) * 4
    assert said["absent_ready"] is False
    assert said["server"]["name"] == "turnpike"
    assert said["metadata"]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
    assert said["config"]["max_batch_size"] == 128
    assert said["index"] == [{"name": "digits-10", "version": "1", "state": "READY", "reason": ""}]
    assert (said["id"], said["version"]) == ("seven", "1")
    best = np.argsort(-np.array(truth), axis=1)[:, :2]
    for row, classes in enumerate(said["classes"]):
        assert classes == [f"{truth[row][k]:.6f}:{k}:{k}" for k in best[row]]
    assert all(said["async"])
    assert said["wrong_shape"]["status"] == "400"
    assert "inputs[0].shape" in said["wrong_shape"]["message"]
    assert said["no_model"]["status"] == "404"
    assert said["no_output"]["status"] == "400"
    assert said["admin"]["status"] == "403"
    assert said["statistics"]["model_stats"][0]["inference_count"] >= 3 * 24


def test_kserve(server: Server) -> None:
    """Its REST client speaks both protocols."""
    said = run_client(
        "kserve_client.py", installed_programs("kserve", CLIENTS["kserve"]), server.url, "digits-10"
    )
    truth = expected(said)
    assert said["binary"] == said["json"] == truth
    assert (said["binary_id"], said["json_id"]) == ("binary", "json")
    assert (said["live"], said["ready"], said["model_ready"]) == (True,) * 3
    assert [one["label"] for one in said["predictions"]] == [str(k) for k in np.argmax(truth, axis=1)]


def test_schemathesis(server: Server) -> None:
    """Over the whole document: no 5xx, no status and no body but those that it promises."""
    ran = subprocess.run(
        [
            installed_programs("schemathesis", CLIENTS["schemathesis"]) / "schemathesis",
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
