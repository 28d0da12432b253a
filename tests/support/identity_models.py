"""Models that return their inputs, like those of Triton's own tests: INPUT0 becomes OUTPUT0."""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, helper

from tests.support.onnx_sources import model_of, value
from turnpike.service.repository.scan import MODEL_FILE


def put_identity(
    root: Path, name: str, *dims: object, dtype: int = TensorProto.FLOAT, tensors: int = 1
) -> None:
    """Put a model into a repository that returns this many inputs with these dimensions."""
    model = model_of(
        [helper.make_node("Identity", [f"INPUT{n}"], [f"OUTPUT{n}"]) for n in range(tensors)],
        [value(f"INPUT{n}", *dims, dtype=dtype) for n in range(tensors)],
        [value(f"OUTPUT{n}", *dims, dtype=dtype) for n in range(tensors)],
        initializers=(),
    )
    file = root / name / "1" / MODEL_FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(model.SerializeToString())
