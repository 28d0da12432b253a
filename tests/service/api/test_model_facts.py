"""Responses that depend on a model's file alone: certificate, samples and gate profile."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.support.fake_request import FakeRequest
from tests.support.gates_client import GatesClient, SingleModelRegistry, manifest_of, profile_of
from tests.support.manifests import IDENTITY, PARITY, stored_input
from tests.support.tiny_highway import Ending, highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike.service.api.context import ServiceContext
from turnpike.service.api.model_facts import (
    StaticModelEndpoint,
    bias_of,
    certificate_json,
    gate_profile_json,
    samples_json,
)
from turnpike.service.artifact.levers import override_biases
from turnpike.service.artifact.manifest import Feature, Gate, Lever, Sample, Variant
from turnpike.service.artifact.proof_records import InputRange, ParityBatch, TensorParity
from turnpike.service.artifact.runtime import open_model
from turnpike.service.registry.model import Model

SAMPLES = (
    Sample(label="<script>", inputs=(stored_input("x", [0, 1, 2, 255]),)),
    Sample(inputs=(stored_input("x", [0.5, -1.25, 3e-8, 0], "float32"),)),
)
GATE_FIELDS = {"layer": 0, "kind": "coupled", "carry": "identity", "unit_axis": -1, "units": 2}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return load_model(put_model(tmp_path, "net", 3, with_manifest(highway(layers=1))))


def context_of(model: Model) -> ServiceContext:
    return cast("ServiceContext", SimpleNamespace(registry=SingleModelRegistry(model)))


def get(endpoint: StaticModelEndpoint, **version: str) -> bytes:
    """The body of the endpoint's response."""
    request = FakeRequest()
    request.path_params = {"model": "net", **version}
    response = asyncio.run(endpoint(request))
    assert response.status == 200
    return response.body


def certificate_of(model: Model) -> Any:
    return json.loads(certificate_json(model))


def tensor_parity(name: str, rms: float) -> TensorParity:
    return TensorParity(name=name, rms=rms, rms_torch=1e-7, max=1e-6, max_torch=1e-6)


def test_a_response_is_rendered_once_in_a_thread(model: Model) -> None:
    """Other requests do not wait for it. Each endpoint keeps its own response."""
    threads = []

    def render(rendered: Model) -> bytes:
        assert rendered is model
        threads.append(threading.current_thread())
        return b"{}"

    endpoint = StaticModelEndpoint(context_of(model), render)
    assert get(endpoint) == get(endpoint, version="3") == b"{}"
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert get(StaticModelEndpoint(context_of(model), lambda _: b"[]")) == b"[]"


def test_a_replaced_file_is_rendered_again(tmp_path: Path, model: Model) -> None:
    def render(rendered: Model) -> bytes:
        return rendered.digest.encode()

    assert get(StaticModelEndpoint(context_of(model), render)) == model.digest.encode()
    other = load_model(put_model(tmp_path, "net", 4, with_manifest(highway(layers=2))))
    assert get(StaticModelEndpoint(context_of(other), render)) == other.digest.encode()


def test_an_endpoint_may_have_its_own_way_to_find_models(model: Model) -> None:
    """The routes of gates refuse models without gates."""

    def find(context: ServiceContext, params: Mapping[str, str]) -> Model:
        raise LookupError(params["model"])

    with pytest.raises(LookupError, match="net"):
        get(StaticModelEndpoint(context_of(model), lambda _: b"", find))


def test_the_certificate_has_the_proof(tmp_path: Path) -> None:
    """Parity with its worst tensor, the digest of the file, and its source."""
    parity = PARITY.model_copy(
        update={
            "tensors": (tensor_parity("logits", 2e-7), tensor_parity("layer00.output", 3e-7)),
            "batches": (ParityBatch(name="ordinary", rows=7, digest="d"),),
        }
    )
    file = put_model(
        tmp_path,
        data=with_manifest(
            highway(),
            parity=parity,
            alphabet="ab",
            features=tuple(
                Feature(name=f"mass {n} [kg]", unit="kg", low=1, high=3, mean=2, sd=0.5) for n in range(4)
            ),
            precision="int8",
            variant=Variant(agreement=0.99, error=0.02, rows=100),
            ranges=(InputRange(input="x", low=-1, high=16),),
            samples=(Sample(inputs=(stored_input("x", [1, 2, 3, 4]),)),) * 2,
        ),
    )
    data = file.path.read_bytes()
    assert certificate_of(load_model(file)) == {
        "model_name": "net",
        "model_version": "1",
        "verified": True,
        "bytes": len(data),
        "digest": hashlib.sha256(data).hexdigest(),
        "batched": True,
        "distribution": "logits",
        "precision": "int8",
        "device": "cpu",
        "device_precision": "fp32",
        "source": "module",
        "labels": ["a", "b", "c"],
        "alphabet": "ab",
        "text": None,
        "picture": None,
        "features": [
            {
                "name": f"mass {n} [kg]",
                "unit": "kg",
                "low": 1,
                "high": 3,
                "mean": 2,
                "sd": 0.5,
                "kind": "number",
                "categories": [],
                "date_format": "iso",
                "decimal_comma": False,
                "affix": "",
                "blanks": False,
            }
            for n in range(4)
        ],
        "batch_coupled": False,
        "task": "classes",
        "target": "",
        "interval": None,
        "ranges": {"x": {"low": -1, "high": 16}},
        "samples": 2,
        "gates": 3,
        "proved": True,
        "verdict": "proved: in exact arithmetic, the fp32 graph that the file was made from is the same "
        "function of every input as the network, in all 7 outputs, gates and layers; chance of error below "
        "1e-18",
        "identity": json.loads(IDENTITY.model_dump_json()),
        "parity": json.loads(parity.model_dump_json()) | {"worst": "layer00.output"},
        "compression": None,
        "variant": {
            "agreement": 0.99,
            "error": 0.02,
            "rows": 100,
            "metric": None,
            "metric_fp32": None,
        },
        "tools": {"torch": "2"},
        "weights": "0" * 64,
        "random_weights": False,
    }


def test_a_file_without_a_manifest_has_a_certificate(tmp_path: Path) -> None:
    """The fields are the same. Unknown ones are empty, and `verified` is false."""
    model = load_model(put_model(tmp_path, data=highway().model), allow_unverified=True)
    certificate = certificate_of(model)
    assert certificate["verified"] is False
    assert certificate["bytes"] == model.bytes
    assert certificate["digest"] == model.digest
    assert (certificate["batched"], certificate["distribution"]) == (True, "logits")
    for name in ("precision", "source", "parity", "variant", "compression", "weights"):
        assert certificate[name] is None
    assert certificate["labels"] == []
    assert certificate["ranges"] == certificate["tools"] == {}
    assert (certificate["alphabet"], certificate["text"], certificate["samples"]) == ("", None, 0)
    assert certificate.keys() == certificate_of(load_model(put_model(tmp_path, "other"))).keys()


@pytest.mark.parametrize(
    ("ending", "classes", "distribution"), [("softmax", 3, "probabilities"), ("logits", 1, None)]
)
def test_the_certificate_has_the_distribution_of_the_first_output(
    tmp_path: Path, ending: Ending, classes: int, distribution: str | None
) -> None:
    model = load_model(
        put_model(tmp_path, data=with_manifest(highway(ending=ending, classes=classes), labels=()))
    )
    assert certificate_of(model)["distribution"] == distribution


def test_a_model_with_coupled_rows_is_not_batched(tmp_path: Path) -> None:
    certificate = certificate_of(
        load_model(put_model(tmp_path, data=with_manifest(highway(), batch_coupled=True)))
    )
    assert (certificate["batch_coupled"], certificate["batched"]) == (True, False)


def test_the_certificate_has_no_path(tmp_path: Path) -> None:
    assert str(tmp_path).encode() not in certificate_json(load_model(put_model(tmp_path)))


def test_samples_have_the_form_of_infer_requests(tmp_path: Path) -> None:
    """Each has one row in the input's own datatype, whatever dtype it was stored in."""
    response = json.loads(
        samples_json(load_model(put_model(tmp_path, "net", 3, with_manifest(highway(), samples=SAMPLES))))
    )
    assert (response["model_name"], response["model_version"]) == ("net", "3")
    first, second = response["samples"]
    assert first == {
        "label": "<script>",
        "text": "",
        "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0, 1, 2, 255]}],
    }
    assert second["label"] == ""
    assert second["inputs"][0]["data"] == [0.5, -1.25, 3e-8, 0]


def test_a_blank_of_a_sample_is_null(tmp_path: Path) -> None:
    """JSON has no NaN."""
    gated = highway()
    features = tuple(Feature(name=name, low=0, high=9, mean=1, sd=1, blanks=True) for name in "abcd")
    sample = Sample(inputs=(stored_input("x", [1, np.nan, 2.5, np.nan], "float32"),))
    file = put_model(tmp_path, data=with_manifest(gated, features=features, samples=(sample,)))
    (stored,) = json.loads(samples_json(load_model(file)))["samples"]
    assert stored["inputs"][0]["data"] == [1, None, 2.5, None]


def test_samples_can_be_posted_unchanged(tmp_path: Path) -> None:
    gated = highway()
    client = GatesClient.of(tmp_path, gated, manifest_of(gated).model_copy(update={"samples": SAMPLES}))
    samples = json.loads(client.ask("samples")[1])["samples"]
    assert len(samples) == len(SAMPLES) > 0
    for sample in samples:
        response = json.loads(client.ask("gates", json.dumps({"inputs": sample["inputs"]}).encode())[1])
        assert response["outputs"][0]["shape"] == [1, 3]


def test_files_without_samples_have_an_empty_list(tmp_path: Path) -> None:
    """They may have a manifest or none."""
    bare = load_model(put_model(tmp_path, "bare", data=highway().model), allow_unverified=True)
    for model in (load_model(put_model(tmp_path)), bare):
        assert json.loads(samples_json(model))["samples"] == []


def test_the_gate_profile_is_that_of_the_manifest(tmp_path: Path) -> None:
    """Gates, profile and lesion curve are those of the manifest, and the biases are those of the file."""
    gated = highway()
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    manifest = manifest_of(gated, profile_of(gated.gates, gated.gate_values(rows)))
    model = load_model(put_model(tmp_path, data=with_manifest(gated, profile=manifest.profile)))
    response = json.loads(gate_profile_json(model))
    assert manifest.profile is not None
    assert response["profile"] == json.loads(manifest.profile.model_dump_json())
    assert response["gates"] == [json.loads(gate.model_dump_json()) for gate in gated.gates]
    assert response["lesion"] is None
    assert list(response["biases"]) == [gate.name for gate in gated.gates]
    for number, gate in enumerate(gated.gates):
        bias = np.array(response["biases"][gate.name], np.float32)
        np.testing.assert_array_equal(bias, gated.weights[f"layers.{number}.gate.bias"])


def test_a_bias_has_the_sign_of_t() -> None:
    """It is the gate's part of a fused tensor, negated for a carry gate, and None without a lever."""
    biases = {"fused": np.array([[9, 9, 1, -2]], np.float16)}
    carry = Gate(name="a", levers=(Lever(tensor="fused", start=2, stop=4, sign=-1),), **GATE_FIELDS)
    bias = bias_of(carry, biases)
    assert bias is not None
    assert bias.tolist() == [-1, 2]
    assert bias.dtype == np.float32
    assert bias_of(Gate(name="b", **GATE_FIELDS), biases) is None


def test_a_higher_bias_opens_the_gate(tmp_path: Path) -> None:
    """If a shift raises the bias, T rises in the network."""
    gated = highway(layers=1)
    (gate,) = gated.gates
    before = bias_of(gate, gated.biases)
    shifted = override_biases(gated.biases, shifted=[(gate, 1.0)])
    after = bias_of(gate, shifted)
    assert before is not None
    assert after is not None
    assert (after > before).all()
    x = {"x": np.ones((1, 4), np.float32)}
    runtime = open_model(gated.model)
    assert (runtime.run({**x, **shifted}, [gate.name])[0] > runtime.run(x, [gate.name])[0]).all()


@pytest.mark.parametrize("levers", [True, False])
def test_gates_without_levers_have_no_bias(tmp_path: Path, levers: bool) -> None:
    """It is null, not an empty list: there may be a bias, but it is not known."""
    gated = highway(layers=1, levers=levers)
    (bias,) = json.loads(gate_profile_json(load_model(put_model(tmp_path, data=with_manifest(gated)))))[
        "biases"
    ].values()
    assert (bias is not None) == levers
