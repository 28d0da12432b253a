"""Signatures of models and bodies of requests, for tests of the protocol."""

from __future__ import annotations

from typing import Any

import orjson

from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor


def signature(
    *inputs: Tensor,
    outputs: tuple[Tensor, ...] = (),
    hidden: tuple[Tensor, ...] = (),
    batch: str | None = "batch",
) -> Signature:
    """A signature with these inputs; by default, the output has ten values for each row."""
    outputs = outputs or (Tensor("logits", "float32", ("batch", 10)),)
    return Signature(
        inputs={tensor.name: tensor for tensor in inputs},
        outputs={tensor.name: tensor for tensor in outputs},
        hidden={tensor.name: tensor for tensor in hidden},
        batch=batch,
        splittable=frozenset(tensor.name for tensor in (*outputs, *hidden)),
    )


ROWS = signature(
    Tensor("x", "float32", ("batch", 2, 3)),
    hidden=(Tensor("layer00.transform_gate", "float32", ("batch", 4)),),
)
IDS = signature(Tensor("ids", "int64", ("batch", "time")))


def entry(data: Any, *shape: int, name: str = "x", datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "datatype": datatype, "data": data, **more}


def body(*inputs: Any, **more: Any) -> bytes:
    """A request in JSON."""
    return orjson.dumps({"inputs": list(inputs), **more})


def binary(head: dict[str, Any], *tensors: bytes) -> tuple[bytes, int]:
    """A request with binary tensors, and how many bytes of it are JSON."""
    text = orjson.dumps(head)
    return b"".join((text, *tensors)), len(text)
