"""The rows that a model's file brings along for people to try, as JSON."""

from __future__ import annotations

from typing import Any

import orjson

from service.artifact.datatypes import DATATYPES
from service.artifact.manifest import SampleInput
from service.artifact.runtime import Tensor
from service.artifact.sample_rows import row_of
from service.registry.model import Model


def samples(model: Model) -> bytes:
    """Each sample with its inputs, which may be posted as they are."""
    manifest, inputs = model.manifest, model.signature.inputs
    told = {
        "model_name": model.name,
        "model_version": str(model.version),
        "samples": [
            {"label": sample.label, "inputs": [_entry(one, inputs[one.name]) for one in sample.inputs]}
            for sample in (() if manifest is None else manifest.samples)
        ],
    }
    return orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY)


def _entry(one: SampleInput, tensor: Tensor) -> dict[str, Any]:
    """An input as an infer request has it."""
    row = row_of(one, tensor)
    datatype = DATATYPES[tensor.dtype]
    return {"name": one.name, "shape": row.shape, "datatype": datatype, "data": row.reshape(-1)}
