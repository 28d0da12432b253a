"""A network is trained, exported and served on a real port; its results are those of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.gates_client import array_of
from tests.support.live_server import Server, serving
from tests.support.ray_cluster import serving_on_ray
from tests.support.run_cli import train_digits
from turnpike.export import export_model
from turnpike.models.layers.gate import record_gates
from turnpike.models.training.checkpoint import load_network
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import open_model

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ServedNetwork:
    """A trained network, and the server of its export."""

    server: Server
    net: torch.nn.Module
    manifest: Manifest

    def torch(self, rows: Array) -> Array:
        with torch.no_grad():
            return self.net(torch.from_numpy(rows)).numpy()

    def gates(self, rows: Array) -> list[Array]:
        """T of every layer, computed by PyTorch."""
        with record_gates(self.net) as recordings:
            self.torch(rows)
        return [recording.transform_gates[0].numpy() for recording in recordings.values()]

    def tolerance(self) -> float:
        """The largest error in the manifest, with a margin for rows that the export has not seen."""
        worst = max(tensor.max for tensor in self.manifest.parity.tensors)
        return 16 * worst


# Ray is perhaps installed first
ON_RAY = pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.fixture(scope="module", params=["local", ON_RAY])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedNetwork]:
    """The preset digits-10, trained for two epochs, and served by workers or by replicas on Ray."""
    folder = tmp_path_factory.mktemp("served")
    export_model(train_digits(folder / "trained"), to=folder / "repository")
    net, _ = load_network(folder / "trained" / "model.safetensors")
    manifest = open_model(folder / "repository/digits-10/1/model.onnx").manifest
    assert manifest is not None
    engine = serving if request.param == "local" else serving_on_ray
    with engine("--models", folder / "repository") as server:
        yield ServedNetwork(server, net.eval(), manifest)


def rows(count: int) -> Array:
    return np.random.default_rng(count).integers(0, 17, (count, 1, 8, 8)).astype(np.float32)


def infer_request(values: Array, outputs: list[str] | None = None, flat: bool = False) -> dict[str, Any]:
    """An infer request in JSON."""
    data = (values.reshape(-1) if flat else values).tolist()
    request: dict[str, Any] = {
        "inputs": [{"name": "x", "shape": list(values.shape), "datatype": "FP32", "data": data}]
    }
    if outputs:
        request["outputs"] = [{"name": name} for name in outputs]
    return request


@pytest.mark.parametrize("count", [1, 64])
@pytest.mark.parametrize("flat", [True, False])
def test_json_results_equal_pytorch(served: ServedNetwork, count: int, flat: bool) -> None:
    """One row and many, flat and nested, differ by less than the proved error."""
    batch = rows(count)
    response = served.server.post("/v2/models/digits-10/infer", infer_request(batch, flat=flat))
    assert response.status_code == 200, response.text
    np.testing.assert_allclose(
        array_of(response.json()["outputs"][0]), served.torch(batch), rtol=0, atol=served.tolerance()
    )


@pytest.mark.parametrize("count", [1, 64])
def test_binary_results_equal_pytorch(served: ServedNetwork, count: int) -> None:
    """The same tensors as raw bytes in request and response."""
    batch = rows(count)
    head = (
        f'{{"parameters":{{"binary_data_output":true}},"inputs":[{{"name":"x","shape":[{count},1,8,8],'
        f'"datatype":"FP32","parameters":{{"binary_data_size":{batch.nbytes}}}}}]}}'
    ).encode()
    response = served.server.post(
        "/v2/models/digits-10/infer",
        head + batch.tobytes(),
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert response.status_code == 200, response.text
    length = int(response.headers["Inference-Header-Content-Length"])
    outputs = np.frombuffer(response.content[length:], "<f4").reshape(count, 10)
    np.testing.assert_allclose(outputs, served.torch(batch), rtol=0, atol=served.tolerance())


@pytest.mark.parametrize("count", [1, 64])
def test_predictions_equal_pytorch(served: ServedNetwork, count: int) -> None:
    """Labels and probabilities for a plain list of rows."""
    batch = rows(count)
    response = served.server.post("/v1/models/digits-10:predict", {"instances": batch.tolist()})
    assert response.status_code == 200, response.text
    expected = torch.softmax(torch.from_numpy(served.torch(batch)).double(), -1).numpy()
    for prediction, row in zip(response.json()["predictions"], expected, strict=True):
        assert prediction["label"] == str(row.argmax())
        assert prediction["probability"] == pytest.approx(row.max(), abs=served.tolerance())
        assert list(prediction["probabilities"].values()) == pytest.approx(list(row), abs=served.tolerance())


@pytest.mark.parametrize("count", [1, 64])
def test_gates_equal_pytorch(served: ServedNetwork, count: int) -> None:
    """All values of T of every layer, and their means."""
    batch = rows(count)
    response = served.server.post("/v2/models/digits-10/gates?detail=rows", infer_request(batch))
    assert response.status_code == 200, response.text
    result = response.json()
    expected_gates = served.gates(batch)
    tensors = {tensor["name"]: array_of(tensor) for tensor in result["tensors"]}
    assert len(expected_gates) == len(result["gates"]) == 10
    for expected, gate in zip(expected_gates, result["gates"], strict=True):
        np.testing.assert_allclose(tensors[gate["name"]], expected, rtol=0, atol=served.tolerance())
        assert gate["mean"] == pytest.approx(float(expected.mean()), abs=served.tolerance())
    np.testing.assert_allclose(
        array_of(result["outputs"][0]), served.torch(batch), rtol=0, atol=served.tolerance()
    )


def test_a_gate_can_be_requested_as_an_output(served: ServedNetwork) -> None:
    batch = rows(3)
    response = served.server.post(
        "/v2/models/digits-10/infer", infer_request(batch, ["layer04.transform_gate", "output"])
    )
    assert [tensor["name"] for tensor in response.json()["outputs"]] == ["layer04.transform_gate", "output"]
    np.testing.assert_allclose(
        array_of(response.json()["outputs"][0]), served.gates(batch)[4], rtol=0, atol=served.tolerance()
    )


@pytest.mark.parametrize("count", [1, 64])
def test_lesions_equal_pytorch(served: ServedNetwork, count: int) -> None:
    """Closing a layer in the service is the same as a gate bias far below zero in PyTorch."""
    batch = rows(count)
    response = served.server.post("/v2/models/digits-10/lesion", infer_request(batch) | {"close": [2, 7]})
    assert response.status_code == 200, response.text
    before = served.torch(batch)
    biases = [served.net.get_parameter(f"layers.{layer}.gate.bias") for layer in (2, 7)]
    saved = [bias.detach().clone() for bias in biases]
    try:
        for bias in biases:
            bias.data -= 1e4
        after = served.torch(batch)
    finally:
        for bias, value in zip(biases, saved, strict=True):
            bias.data.copy_(value)
    result = response.json()
    np.testing.assert_allclose(array_of(result["outputs"][0]), before, rtol=0, atol=served.tolerance())
    np.testing.assert_allclose(
        array_of(result["lesioned"]["outputs"][0]), after, rtol=0, atol=served.tolerance()
    )
    flips = before.argmax(-1) != after.argmax(-1)
    assert result["lesion"]["by_row"]["flipped"] == flips.tolist()
    assert result["lesion"]["flipped"] == flips.sum()
