"""The numbers an input is drawn from: the range of ids a network knows, or the distribution of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from export.input_spec import InputSpec
from export.source import Array, Source

# operators that move ids or change their type, but not their values
VALUE_PRESERVING_OPS = frozenset(
    {
        *("Cast", "Clip", "Concat", "Expand", "Flatten", "Identity", "Pad"),
        *("Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    }
)


@dataclass(frozen=True)
class InputDomain:
    """Integers from `low` to `high` (included), or normal numbers with `mean` and standard deviation `sd`."""

    low: int = 0
    high: int = 1
    mean: Array | float = 0.0
    sd: Array | float = 1.0

    def narrower(self) -> list[InputDomain]:
        """Narrower integer ranges to try, for a network that does not accept all of this one."""
        tops = {top for top in (127, 31, 7, 3, 1, 0) if self.low <= top < self.high}
        return [replace(self, high=top) for top in sorted(tops, reverse=True)]

    def draw(self, spec: InputSpec, sizes: dict[str, int], rng: np.random.Generator) -> Array:
        """Random values for an input, with the given sizes of its named dimensions."""
        shape = spec.shape(**sizes)
        dtype = np.dtype(spec.dtype)
        if dtype.kind == "f":
            return np.asarray(self.mean + self.sd * rng.standard_normal(shape)).astype(dtype)
        return rng.integers(self.low, self.high, shape, endpoint=True).astype(dtype)


def input_domains(source: Source, model: ir.Model, graph_names: Sequence[str]) -> dict[str, InputDomain]:
    """The domain of every input, by name. `graph_names` are the names of the inputs in the graph."""
    return {
        spec.name: _domain(spec, source, model, graph_name)
        for spec, graph_name in zip(source.inputs, graph_names, strict=True)
    }


def _domain(spec: InputSpec, source: Source, model: ir.Model, graph_name: str) -> InputDomain:
    rows = None if source.rows is None else source.rows.inputs.get(spec.name)
    kind = np.dtype(spec.dtype).kind
    if kind == "b":
        return InputDomain()
    if kind == "f":
        return _float_domain(spec, rows, source)
    values = {value.name: value for value in model.graph.inputs}
    table_size = lookup_table_size(model, values[graph_name])
    if table_size is not None:
        return InputDomain(0 if rows is None else min(0, int(rows.min())), table_size - 1)
    if rows is not None and rows.size:
        return InputDomain(int(rows.min()), int(rows.max()))
    return InputDomain(0, 255 if spec.dtype == "uint8" else 1)


def _float_domain(spec: InputSpec, rows: Array | None, source: Source) -> InputDomain:
    """The distribution of the rows; without rows, what the network's own scaling implies, or N(0, 1)."""
    if rows is not None and rows.size:
        numbers = rows.astype(np.float64)
        overall = float(numbers.std()) or 1.0
        if not all(isinstance(dim, int) for dim in spec.dims[1:]):
            return InputDomain(mean=float(numbers.mean()), sd=overall)
        sd = numbers.std(axis=0)
        # vary cells that are constant in the data too, so that their weights are tested
        return InputDomain(mean=numbers.mean(axis=0), sd=np.where(sd > 0, sd, overall))
    scaling = dict(source.module.named_buffers()) if source.module is not None else {}
    shift, scale = scaling.get("shift"), scaling.get("scale")
    if shift is None or scale is None or shift.numel() != 1 or scale.numel() != 1 or not scale.item():
        return InputDomain()
    return InputDomain(mean=float(shift.item()), sd=abs(1 / float(scale.item())))


def lookup_table_size(model: ir.Model, value: ir.Value) -> int | None:
    """Rows of the smallest table (embedding) that is indexed by these ids; None if there is none."""
    tables = model.graph.initializers
    table_sizes: list[int] = []
    seen: set[Any] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for node, input_index in current.uses():
            if node.op_type in ("Gather", "GatherElements") and input_index == 1:
                table = node.inputs[0]
                if table is not None and table.name in tables and table.shape is not None:
                    size = table.shape[node.attributes.get_int("axis", 0)]
                    table_sizes += [size] if isinstance(size, int) else []
            elif node.op_type == "OneHot" and input_index == 0:
                depth = None if node.inputs[1] is None else ir.convenience.get_const_tensor(node.inputs[1])
                table_sizes += [] if depth is None else [int(depth.numpy().reshape(-1)[0])]
            elif node.op_type in VALUE_PRESERVING_OPS or (node.op_type == "Gather" and input_index == 0):
                waiting += node.outputs
    return min(table_sizes, default=None)
