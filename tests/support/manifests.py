"""A manifest of a small model, and rows in the form that manifests store."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from turnpike.service.artifact.manifest import Gate, Manifest, SampleInput
from turnpike.service.artifact.proof_records import Identity, Parity

IDENTITY = Identity(verdict="identical", compared=7, runs=3, error_bound=1e-18)
PARITY = Parity(
    reference="by hand",
    providers=("CPUExecutionProvider",),
    seed=0,
    batches=(),
    tensors=(),
)
GATE = Gate(name="layer00.transform_gate", layer=0, kind="coupled", carry="identity", unit_axis=-1, units=4)
MANIFEST = Manifest(
    name="net",
    version=3,
    source="module",
    outputs=("output",),
    labels=("<b>", "zwei"),
    gates=(GATE,),
    identity=IDENTITY,
    parity=PARITY,
    weights="0" * 64,
    tools={"torch": "2"},
)


def stored_input(
    name: str, values: Any, dtype: Any = "uint8", shape: tuple[int, ...] | None = None
) -> SampleInput:
    """Values in the form of a manifest."""
    array = np.array(values, dtype)
    data = base64.b64encode(array.tobytes()).decode()
    return SampleInput(name=name, shape=array.shape if shape is None else shape, dtype=dtype, data=data)
