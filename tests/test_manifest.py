"""The contract inside a file: what it holds, and what it refuses to hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import ModelFileError
from service.manifest import Gate, Manifest, Parity

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


def test_it_comes_back_as_it_went() -> None:
    """And the same record gives the same bytes."""
    text = MANIFEST.to_json()
    assert Manifest.from_json(text, "x") == MANIFEST
    assert Manifest.from_json(text, "x").to_json() == text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, "net.onnx: manifest: format: Input should be 1, got '2'"),
        ({"version": 0}, "manifest: version: Input should be greater than or equal to 1"),
        ({"precision": "fp8"}, "manifest: precision: Input should be 'fp32', 'fp16' or 'int8', got 'fp8'"),
        ({"gates": [{"name": 1}]}, "manifest: gates.0."),
        ({"surprise": 1}, "manifest: surprise: Extra inputs are not permitted"),
        ({"parity": None}, "manifest: parity:"),
    ],
)
def test_what_makes_no_sense_is_named(change: dict[str, Any], says: str) -> None:
    """The file, the field, what was expected and what came."""
    text = json.dumps(json.loads(MANIFEST.to_json()) | change)
    with pytest.raises(ModelFileError) as error:
        Manifest.from_json(text, "net.onnx")
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
