"""A network trained, exported and served on a real port: its answers are PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from export import export_model
from models.layers.gate import record_gates
from models.training.checkpoint import load_network
from service.artifact.manifest import Manifest
from service.artifact.runtime import open_model
from tests.support.live_server import Server, serving
from tests.support.run_cli import trained

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Served:
    """The trained network beside the server that serves its export."""

    server: Server
    net: torch.nn.Module
    manifest: Manifest

    def torch(self, rows: Array) -> Array:
        with torch.no_grad():
            return self.net(torch.from_numpy(rows)).numpy()

    def gates(self, rows: Array) -> list[Array]:
        """T of every layer, as PyTorch has it."""
        with record_gates(self.net) as recordings:
            self.torch(rows)
        return [recording.transform_gates[0].numpy() for recording in recordings.values()]

    def bound(self) -> float:
        """What the manifest says an answer may be off by at most, with room for rows that it has not seen."""
        worst = max(tensor.max for tensor in self.manifest.parity.tensors)
        return 16 * worst


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The preset digits-10 after two epochs."""
    folder = tmp_path_factory.mktemp("served")
    export_model(trained(folder / "trained"), to=folder / "repository")
    net, _ = load_network(folder / "trained" / "model.safetensors")
    manifest = open_model(folder / "repository/digits-10/1/model.onnx").manifest
    assert manifest is not None
    with serving("--models", folder / "repository") as server:
        yield Served(server, net.eval(), manifest)


def rows(count: int) -> Array:
    return np.random.default_rng(count).integers(0, 17, (count, 1, 8, 8)).astype(np.float32)


def as_json(given: Array, outputs: list[str] | None = None, flat: bool = False) -> dict[str, Any]:
    """A request of the protocol."""
    data = (given.reshape(-1) if flat else given).tolist()
    request: dict[str, Any] = {
        "inputs": [{"name": "x", "shape": list(given.shape), "datatype": "FP32", "data": data}]
    }
    if outputs:
        request["outputs"] = [{"name": name} for name in outputs]
    return request


def array(tensor: dict[str, Any]) -> Array:
    return np.array(tensor["data"], np.float32).reshape(tensor["shape"])


@pytest.mark.parametrize("count", [1, 64])
@pytest.mark.parametrize("flat", [True, False])
def test_json_answers_are_those_of_pytorch(served: Served, count: int, flat: bool) -> None:
    """Within the bound that the manifest proved, at one row and at many, however the data is nested."""
    given = rows(count)
    answer = served.server.post("/v2/models/digits-10/infer", as_json(given, flat=flat))
    assert answer.status_code == 200, answer.text
    np.testing.assert_allclose(
        array(answer.json()["outputs"][0]), served.torch(given), rtol=0, atol=served.bound()
    )


@pytest.mark.parametrize("count", [1, 64])
def test_binary_answers_are_those_of_pytorch(served: Served, count: int) -> None:
    """The same tensors as raw bytes, both ways."""
    given = rows(count)
    head = (
        f'{{"parameters":{{"binary_data_output":true}},"inputs":[{{"name":"x","shape":[{count},1,8,8],'
        f'"datatype":"FP32","parameters":{{"binary_data_size":{given.nbytes}}}}}]}}'
    ).encode()
    answer = served.server.post(
        "/v2/models/digits-10/infer",
        head + given.tobytes(),
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["Inference-Header-Content-Length"])
    got = np.frombuffer(answer.content[length:], "<f4").reshape(count, 10)
    np.testing.assert_allclose(got, served.torch(given), rtol=0, atol=served.bound())


@pytest.mark.parametrize("count", [1, 64])
def test_predictions_are_those_of_pytorch(served: Served, count: int) -> None:
    """Labels and probabilities, from one plain list of rows."""
    given = rows(count)
    answer = served.server.post("/v1/models/digits-10:predict", {"instances": given.tolist()})
    assert answer.status_code == 200, answer.text
    truth = torch.softmax(torch.from_numpy(served.torch(given)).double(), -1).numpy()
    for said, row in zip(answer.json()["predictions"], truth, strict=True):
        assert said["label"] == str(row.argmax())
        assert said["probability"] == pytest.approx(row.max(), abs=served.bound())
        assert list(said["probabilities"].values()) == pytest.approx(list(row), abs=served.bound())


@pytest.mark.parametrize("count", [1, 64])
def test_gates_are_those_of_pytorch(served: Served, count: int) -> None:
    """T of every layer, whole, and the means said of it."""
    given = rows(count)
    answer = served.server.post("/v2/models/digits-10/gates?detail=rows", as_json(given))
    assert answer.status_code == 200, answer.text
    said = answer.json()
    truths = served.gates(given)
    tensors = {tensor["name"]: array(tensor) for tensor in said["tensors"]}
    assert len(truths) == len(said["gates"]) == 10
    for truth, gate in zip(truths, said["gates"], strict=True):
        np.testing.assert_allclose(tensors[gate["name"]], truth, rtol=0, atol=served.bound())
        assert gate["mean"] == pytest.approx(float(truth.mean()), abs=served.bound())
    np.testing.assert_allclose(array(said["outputs"][0]), served.torch(given), rtol=0, atol=served.bound())


def test_a_gate_is_an_output_by_name(served: Served) -> None:
    """The protocol's own way to one gate."""
    given = rows(3)
    answer = served.server.post(
        "/v2/models/digits-10/infer", as_json(given, ["layer04.transform_gate", "output"])
    )
    assert [tensor["name"] for tensor in answer.json()["outputs"]] == ["layer04.transform_gate", "output"]
    np.testing.assert_allclose(
        array(answer.json()["outputs"][0]), served.gates(given)[4], rtol=0, atol=served.bound()
    )


@pytest.mark.parametrize("count", [1, 64])
def test_lesions_are_those_of_pytorch(served: Served, count: int) -> None:
    """A layer closed in the service is a layer whose gate's bias is far below zero in PyTorch."""
    given = rows(count)
    answer = served.server.post("/v2/models/digits-10/lesion", as_json(given) | {"close": [2, 7]})
    assert answer.status_code == 200, answer.text
    before = served.torch(given)
    biases = [served.net.get_parameter(f"layers.{layer}.gate.bias") for layer in (2, 7)]
    kept = [bias.detach().clone() for bias in biases]
    try:
        for bias in biases:
            bias.data -= 1e4
        after = served.torch(given)
    finally:
        for bias, value in zip(biases, kept, strict=True):
            bias.data.copy_(value)
    said = answer.json()
    np.testing.assert_allclose(array(said["outputs"][0]), before, rtol=0, atol=served.bound())
    np.testing.assert_allclose(array(said["lesioned"]["outputs"][0]), after, rtol=0, atol=served.bound())
    flips = before.argmax(-1) != after.argmax(-1)
    assert said["lesion"]["by_row"]["flipped"] == flips.tolist()
    assert said["lesion"]["flipped"] == flips.sum()
