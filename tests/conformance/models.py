"""The models that a server needs for the suite, whatever they are made of.

`same-TYPE` returns its input x as y, for each datatype TYPE. `sums` returns a + b and a - b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# by datatype
DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}


@dataclass(frozen=True)
class Model:
    """A model of rows. `inputs` and `outputs` are names of tensors, each with `width` values a row."""

    name: str
    datatype: str
    width: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for arrays of inputs."""
        if self.outputs == ("y",):
            return {"y": inputs["x"]}
        a, b = inputs["a"], inputs["b"]
        return {"sum": a + b, "difference": a - b}


SUMS = Model("sums", "FP32", 2, ("a", "b"), ("sum", "difference"))
SAME = {datatype: Model(f"same-{datatype.lower()}", datatype, 3, ("x",), ("y",)) for datatype in DTYPES}
MODELS = (SUMS, *SAME.values())


def values(datatype: str) -> Array:
    """Two rows for `same-TYPE`, with the smallest and the largest number."""
    dtype = np.dtype(DTYPES[datatype])
    if dtype.kind == "b":
        return np.array([[True, False, True], [False, False, True]])
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        return np.array([[0, -1.25, limits.max], [limits.min, 0.1, limits.tiny]], dtype)
    range_ = np.iinfo(dtype)
    return np.array([[range_.min, 0, range_.max], [1, 2, 3]], dtype)
