"""What numbers an input is drawn from: the range of ids a network knows, the spread that data have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from export.input_spec import InputSpec
from export.source import Array, Source

# ops that move ids about, or change their type, and leave their values alone
VALUE_PRESERVING_OPS = frozenset(
    {
        *("Cast", "Clip", "Concat", "Expand", "Flatten", "Identity", "Pad"),
        *("Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    }
)


@dataclass(frozen=True)
class InputDomain:
    """Integers from `low` to `high`, both included, or numbers around `mean` with the deviation `sd`."""

    low: int = 0
    high: int = 1
    mean: Array | float = 0.0
    sd: Array | float = 1.0

    def smaller(self) -> list[InputDomain]:
        """Fewer integers, for a network that takes not all of these."""
        tops = {top for top in (127, 31, 7, 3, 1, 0) if self.low <= top < self.high}
        return [replace(self, high=top) for top in sorted(tops, reverse=True)]

    def draw(self, one: InputSpec, sizes: dict[str, int], rng: np.random.Generator) -> Array:
        """Values of an input's dtype, its named dimensions of the given sizes."""
        shape = one.shape(**sizes)
        dtype = np.dtype(one.dtype)
        if dtype.kind == "f":
            return np.asarray(self.mean + self.sd * rng.standard_normal(shape)).astype(dtype)
        return rng.integers(self.low, self.high, shape, endpoint=True).astype(dtype)


def input_domains(source: Source, model: ir.Model, called: Sequence[str]) -> dict[str, InputDomain]:
    """The domain of every input, by its name; `called` says what each is called in the graph."""
    return {
        one.name: _domain(one, source, model, name) for one, name in zip(source.inputs, called, strict=True)
    }


def _domain(one: InputSpec, source: Source, model: ir.Model, name: str) -> InputDomain:
    rows = None if source.rows is None else source.rows.inputs.get(one.name)
    kind = np.dtype(one.dtype).kind
    if kind == "b":
        return InputDomain()
    if kind == "f":
        return _spread(one, rows, source)
    values = {value.name: value for value in model.graph.inputs}
    known = lookup_table_size(model, values[name])
    if known is not None:
        return InputDomain(0 if rows is None else min(0, int(rows.min())), known - 1)
    if rows is not None and rows.size:
        return InputDomain(int(rows.min()), int(rows.max()))
    return InputDomain(0, 255 if one.dtype == "uint8" else 1)


def _spread(one: InputSpec, rows: Array | None, source: Source) -> InputDomain:
    """Where data lie: as the rows do, or as the network's own scaling says, or around zero."""
    if rows is not None and rows.size:
        numbers = rows.astype(np.float64)
        overall = float(numbers.std()) or 1.0
        if not all(isinstance(dim, int) for dim in one.dims[1:]):
            return InputDomain(mean=float(numbers.mean()), sd=overall)
        sd = numbers.std(axis=0)
        # a cell that is the same in every row is varied too, so that what hangs on it is tried
        return InputDomain(mean=numbers.mean(axis=0), sd=np.where(sd > 0, sd, overall))
    scaling = dict(source.module.named_buffers()) if source.module is not None else {}
    shift, scale = scaling.get("shift"), scaling.get("scale")
    if shift is None or scale is None or shift.numel() != 1 or scale.numel() != 1 or not scale.item():
        return InputDomain()
    return InputDomain(mean=float(shift.item()), sd=abs(1 / float(scale.item())))


def lookup_table_size(model: ir.Model, value: ir.Value) -> int | None:
    """How many rows the smallest table has that is looked up by these ids; None where there is none."""
    tables = model.graph.initializers
    found: list[int] = []
    seen: set[Any] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for node, place in current.uses():
            if node.op_type in ("Gather", "GatherElements") and place == 1:
                table = node.inputs[0]
                if table is not None and table.name in tables and table.shape is not None:
                    size = table.shape[node.attributes.get_int("axis", 0)]
                    found += [size] if isinstance(size, int) else []
            elif node.op_type == "OneHot" and place == 0:
                depth = None if node.inputs[1] is None else ir.convenience.get_const_tensor(node.inputs[1])
                found += [] if depth is None else [int(depth.numpy().reshape(-1)[0])]
            elif node.op_type in VALUE_PRESERVING_OPS or (node.op_type == "Gather" and place == 0):
                waiting += node.outputs
    return min(found, default=None)
