"""A graph run by onnx's own reference evaluator, in its own precision and in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnx.reference import ReferenceEvaluator

from export.source import Array

NARROW = frozenset((ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16))
# attributes that name the type of what a node gives
TYPES = ("to", "dtype", "softmax_precision")


class Evaluator:
    """What some values of a graph are, and nothing that they do not need."""

    def __init__(self, model: onnx.ModelProto, wanted: Sequence[str]) -> None:
        made = ir.from_proto(model)
        cut(made, wanted)
        self._own = ReferenceEvaluator(ir.to_proto(made))
        widen(made)
        self._wide = ReferenceEvaluator(ir.to_proto(made))

    def run(self, feeds: Mapping[str, Array], *, wide: bool) -> dict[str, Array]:
        """The wanted values by name; what the evaluator itself raises comes out as it is."""
        evaluator = self._wide if wide else self._own
        given = {
            name: array.astype(np.float64) if wide and array.dtype.kind == "f" else array
            for name, array in feeds.items()
            if name in evaluator.input_names
        }
        with np.errstate(all="ignore"):
            results = evaluator.run(None, given)
        return dict(zip(evaluator.output_names, map(np.asarray, results), strict=True))


def widen(model: ir.Model) -> None:
    """Make every narrow weight, literal and cast of a graph float64."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype in NARROW:
                value.const_value = _widened(value.const_value)
        for node in graph:
            if node.op_type == "ConstantOfShape" and "value" not in node.attributes:
                node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(np.zeros(1, np.float64)))
            for name, attribute in list(node.attributes.items()):
                if name in TYPES and attribute.type is ir.AttributeType.INT:
                    if attribute.as_int() in NARROW:
                        node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.DOUBLE))
                elif attribute.type is ir.AttributeType.TENSOR and attribute.as_tensor().dtype in NARROW:
                    node.attributes[name] = ir.AttrTensor(name, _widened(attribute.as_tensor()))
                elif node.op_type == "Constant" and name in ("value_float", "value_floats"):
                    literal = np.asarray(attribute.value, np.float64)
                    del node.attributes[name]
                    node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(literal))
        for value in (*graph.inputs, *graph.outputs, *(out for node in graph for out in node.outputs)):
            if value.dtype in NARROW:
                value.dtype = ir.DataType.DOUBLE


def _widened(tensor: ir.TensorProtocol) -> ir.Tensor[Any]:
    return ir.Tensor(tensor.numpy().astype(np.float64), name=tensor.name)


def cut(model: ir.Model, wanted: Sequence[str]) -> None:
    """Leave of a graph only what these values need; they become its outputs."""
    values = {value.name: value for node in model.graph for value in node.outputs}
    values |= {value.name: value for value in (*model.graph.initializers.values(), *model.graph.inputs)}
    model.graph.outputs.clear()
    model.graph.outputs.extend(values[name] for name in wanted)
    # biases that a caller may override are weights here
    for value in [value for value in model.graph.inputs if value.name in model.graph.initializers]:
        model.graph.inputs.remove(value)
    passes.RemoveUnusedNodesPass()(model)
