"""The contract inside a file: what it holds, and what it refuses to hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.artifact.manifest import MAX_SAMPLE_CHARACTERS, Gate, Manifest, Parity, TensorParity
from service.errors import ModelFileError

PARITY = Parity(
    reference="by hand",
    providers=("CPUExecutionProvider",),
    seed=0,
    batches=(),
    tensors=(),
    identical=0,
    derived=0,
    ulp=0.0,
)
GATE = Gate(name="layer00.transform_gate", layer=0, kind="coupled", carry="identity", unit_axis=-1, units=4)
MANIFEST = Manifest(
    name="net",
    version=3,
    source="module",
    outputs=("output",),
    labels=("<b>", "zwei"),
    gates=(GATE,),
    parity=PARITY,
    weights="0" * 64,
    tools={"torch": "2"},
)
ROW = {"name": "x", "shape": [3], "dtype": "uint8", "data": "AAEC"}


def changed(**fields: Any) -> str:
    """The manifest's text with other fields."""
    return json.dumps(json.loads(MANIFEST.to_json()) | fields)


def test_it_comes_back_as_it_went() -> None:
    """And the same record gives the same bytes."""
    text = MANIFEST.to_json()
    assert Manifest.from_json(text, "x") == MANIFEST
    assert Manifest.from_json(text, "x").to_json() == text


def test_files_of_before_are_read() -> None:
    """Those without samples and ranges, which have none then."""
    older = json.loads(MANIFEST.to_json())
    del older["samples"], older["ranges"]
    assert Manifest.from_json(json.dumps(older), "x") == MANIFEST
    assert MANIFEST.samples == MANIFEST.ranges == ()


def test_samples_are_bytes() -> None:
    """As they lie in memory, in a shape that they fill."""
    read = Manifest.from_json(changed(samples=[{"label": "<b>", "inputs": [ROW]}]), "x")
    (sample,) = read.samples
    assert (sample.label, sample.inputs[0].shape, sample.inputs[0].raw) == ("<b>", (3,), b"\x00\x01\x02")


def test_samples_are_few() -> None:
    """However many rows there are, they stay a small part of a file."""
    half = {
        "name": "x",
        "shape": [MAX_SAMPLE_CHARACTERS * 3 // 8],
        "dtype": "uint8",
        "data": "A" * (MAX_SAMPLE_CHARACTERS // 2),
    }
    assert Manifest.from_json(changed(samples=[{"inputs": [half]}] * 2), "x").samples
    with pytest.raises(
        ModelFileError, match=f"expected at most {MAX_SAMPLE_CHARACTERS} characters of data, got"
    ):
        Manifest.from_json(changed(samples=[{"inputs": [half]}] * 2 + [{"inputs": [ROW]}]), "x")


def test_the_worst_tensor_is_that_beside_pytorch() -> None:
    """Its error counts by PyTorch's own; where that is none, as it stands."""

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
    ("change", "says"),
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
def test_what_makes_no_sense_is_named(change: dict[str, Any], says: str) -> None:
    """The file, the field, what was expected and what came."""
    with pytest.raises(ModelFileError) as error:
        Manifest.from_json(changed(**change), "net.onnx")
    assert says in str(error.value)


def test_a_failed_parity_cannot_be_written_down() -> None:
    """The only verdict that a file may carry is a pass."""
    with pytest.raises(ModelFileError, match="parity.verdict"):
        Manifest.from_json(MANIFEST.to_json().replace('"pass"', '"fail"'), "net.onnx")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_broken_text_is_no_manifest(text: str) -> None:
    """Whatever a stranger put under the key."""
    with pytest.raises(ModelFileError, match="net.onnx: manifest: "):
        Manifest.from_json(text, "net.onnx")
