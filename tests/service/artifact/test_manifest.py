"""The manifest: its form as JSON, and the fields that it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.manifests import MANIFEST, PARITY
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import with_manifest
from turnpike.service.artifact.manifest import (
    MAX_MANIFEST_BYTES,
    MAX_SAMPLE_CHARACTERS,
    METADATA_KEY,
    Manifest,
    read_manifest,
)
from turnpike.service.artifact.onnx_file.protobuf import encode_varint
from turnpike.service.artifact.proof_records import Parity, TensorParity
from turnpike.service.errors import ModelFileError

ROW = {"name": "x", "shape": [3], "dtype": "uint8", "data": "AAEC"}
FEATURE = {"name": "mass [kg]", "unit": "kg", "low": 1, "high": 3, "mean": 2, "sd": 0.5}


def manifest_json(**fields: Any) -> str:
    """MANIFEST as JSON, with these fields replaced."""
    return json.dumps(json.loads(MANIFEST.to_json()) | fields)


def test_a_manifest_survives_json() -> None:
    """Equal manifests give equal strings."""
    text = MANIFEST.to_json()
    assert Manifest.from_json(text, "x") == MANIFEST
    assert Manifest.from_json(text, "x").to_json() == text


def test_manifests_of_older_files_can_be_read() -> None:
    """Older manifests have no samples, no ranges, no features and no texts, and more about rounding."""
    older = json.loads(MANIFEST.to_json())
    older["parity"] |= {"unjudged": [], "explained": None, "identical": 3, "derived": 0, "ulp": 0.0}
    del older["samples"], older["ranges"], older["features"], older["text"]
    assert Manifest.from_json(json.dumps(older), "x") == MANIFEST
    assert MANIFEST.samples == MANIFEST.ranges == MANIFEST.features == ()
    assert MANIFEST.text is None


def test_samples_are_read_as_bytes() -> None:
    """They must fill their shape."""
    manifest = Manifest.from_json(manifest_json(samples=[{"label": "<b>", "inputs": [ROW]}]), "x")
    (sample,) = manifest.samples
    assert (sample.label, sample.inputs[0].shape, sample.inputs[0].raw) == ("<b>", (3,), b"\x00\x01\x02")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([FEATURE, FEATURE], "expected distinct names, got 'mass .kg.' twice"),
        ([FEATURE | {"mean": 9}], "expected low <= mean <= high, got 1.0, 9.0 and 3.0"),
        ([FEATURE | {"sd": -1}], "greater than or equal to 0"),
        ([FEATURE | {"name": ""}], "at least 1 character"),
    ],
)
def test_features_that_contradict_themselves_are_refused(columns: list[Any], message: str) -> None:
    assert Manifest.from_json(manifest_json(features=[FEATURE]), "x").features[0].unit == "kg"
    with pytest.raises(ModelFileError, match=message):
        Manifest.from_json(manifest_json(features=columns), "x")


def test_samples_are_limited() -> None:
    """They must stay a small part of the file."""
    half = {
        "name": "x",
        "shape": [MAX_SAMPLE_CHARACTERS * 3 // 8],
        "dtype": "uint8",
        "data": "A" * (MAX_SAMPLE_CHARACTERS // 2),
    }
    assert Manifest.from_json(manifest_json(samples=[{"inputs": [half]}] * 2), "x").samples
    with pytest.raises(
        ModelFileError, match=f"expected at most {MAX_SAMPLE_CHARACTERS} characters of data, got"
    ):
        Manifest.from_json(manifest_json(samples=[{"inputs": [half]}] * 2 + [{"inputs": [ROW]}]), "x")
    with pytest.raises(ModelFileError, match=f"got {MAX_SAMPLE_CHARACTERS + 1}"):
        Manifest.from_json(
            manifest_json(samples=[{"inputs": [half]}] * 2 + [{"text": "a", "inputs": []}]), "x"
        )


def test_the_worst_tensor_is_relative_to_pytorch() -> None:
    """Its error is divided by PyTorch's, unless that is 0."""

    def parity(**errors: tuple[float, float]) -> Parity:
        tensors = tuple(
            TensorParity(name=name, rms=rms, rms_torch=torch, max=0, max_torch=0)
            for name, (rms, torch) in errors.items()
        )
        return PARITY.model_copy(update={"tensors": tensors})

    worst = parity(large=(4.0, 4.0), worse=(2.0, 1.0), exact=(1e-3, 0.0)).worst
    assert worst is not None
    assert worst.name == "worse"
    worst = parity(exact=(0.0, 0.0), off=(1e-9, 0.0)).worst
    assert worst is not None
    assert worst.name == "off"
    assert PARITY.worst is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "net.onnx: manifest: format: Input should be 1, got '2'"),
        ({"version": 0}, "manifest: version: Input should be greater than or equal to 1"),
        ({"precision": "fp8"}, "manifest: precision: Input should be 'fp32', 'fp16' or 'int8', got 'fp8'"),
        ({"gates": [{"name": 1}]}, "manifest: gates.0."),
        ({"surprise": 1}, "manifest: surprise: Extra inputs are not permitted"),
        ({"parity": None}, "manifest: parity:"),
        (
            {"ranges": [{"input": "x", "low": 2, "high": 1}]},
            "ranges.0: Value error, expected low at most high",
        ),
        ({"samples": [{"inputs": [ROW | {"shape": [4]}]}]}, "expected the bytes of uint8 [4], got 3 bytes"),
        ({"samples": [{"inputs": [ROW | {"dtype": "float32"}]}]}, "the bytes of float32 [3], got 3 bytes"),
        ({"samples": [{"inputs": [ROW | {"shape": [10**400]}]}]}, "expected the bytes of uint8 [1000"),
        ({"samples": [{"inputs": [ROW | {"shape": [3] + [1] * 63}]}]}, "should have at most 63 items"),
        ({"samples": [{"inputs": [ROW | {"shape": [-1, -3]}]}]}, "samples.0.inputs.0.shape.0: Input should"),
        ({"samples": [{"inputs": [ROW | {"shape": [0], "data": ""}]}]}, "inputs.0.shape.0: Input should"),
        ({"samples": [{"inputs": [ROW | {"data": "AA EC"}]}]}, "Value error, expected base64"),
        ({"samples": [{"inputs": [ROW | {"dtype": "bool"}]}]}, "samples.0.inputs.0.dtype: Input should be"),
    ],
)
def test_invalid_fields_are_named(change: dict[str, Any], message: str) -> None:
    """The error has the file, the field, the expected and the actual value."""
    with pytest.raises(ModelFileError) as error:
        Manifest.from_json(manifest_json(**change), "net.onnx")
    assert message in str(error.value)


def test_a_manifest_cannot_have_a_failed_parity() -> None:
    with pytest.raises(ModelFileError, match="parity.verdict"):
        Manifest.from_json(MANIFEST.to_json().replace('"pass"', '"fail"'), "net.onnx")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_damaged_text_is_no_manifest(text: str) -> None:
    """Another program may have written something else under the key."""
    with pytest.raises(ModelFileError, match="net.onnx: manifest: "):
        Manifest.from_json(text, "net.onnx")


def test_a_manifest_is_read_from_the_bytes_of_a_file() -> None:
    """A file without one has None, and what is no model is an error."""
    assert read_manifest(with_manifest(highway(), labels=("x", "y")), "a.onnx").labels == ("x", "y")  # type: ignore[union-attr]
    assert read_manifest(highway().model, "a.onnx") is None
    for data in (b"", b"no model", highway().model[:-9]):
        with pytest.raises(ModelFileError, match="a.onnx: expected an ONNX model") as error:
            read_manifest(data, "a.onnx")
        assert error.value.public_message == "its file is damaged or not an ONNX model"


def test_a_huge_manifest_is_not_parsed() -> None:
    """Meanwhile no request would be answered."""
    entry = b"\x0a\x08" + METADATA_KEY.encode() + b"\x12" + encode_varint(MAX_MANIFEST_BYTES + 1)
    entry += bytes(MAX_MANIFEST_BYTES + 1)
    data = highway().model + b"\x72" + encode_varint(len(entry)) + entry
    with pytest.raises(ModelFileError, match="a.onnx: manifest: expected at most 67108864 bytes") as error:
        read_manifest(data, "a.onnx")
    assert error.value.public_message == "its manifest is too large"
