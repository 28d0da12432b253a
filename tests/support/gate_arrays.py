"""Gates, their signatures, and arrays of gate values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from turnpike.service.artifact.manifest import Gate
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Dims = tuple[int | str, ...]


def gate(name: str, layer: int, **more: Any) -> Gate:
    fields: dict[str, Any] = {"kind": "coupled", "carry": "identity", "unit_axis": -1, "units": 2}
    return Gate(name=name, layer=layer, **(fields | more))


def signature(dims: Mapping[str, Dims], splittable: frozenset[str] = frozenset()) -> Signature:
    hidden = {name: Tensor(name, "float32", shape) for name, shape in dims.items()}
    return Signature({}, {}, hidden, "batch", splittable)


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def random_gates(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).beta(0.3, 0.6, size=shape).astype(np.float32)
