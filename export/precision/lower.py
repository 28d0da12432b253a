"""The same network in fewer bits: half precision for graphics cards, whole numbers for wide nets on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from export.errors import PrecisionError
from export.trace.trace import silence_exporter

Array = np.ndarray[Any, np.dtype[Any]]

MAX_INT8 = 127
# rows are kept as unsigned numbers around it: processors multiply unsigned by signed
ZERO_POINT = 128
# the opset from which on ReduceMax takes its axes so; ReduceSum did before
REDUCE_MAX_AXES_OPSET = 18
# keeps a row of zeros from being divided by zero
MIN_SCALE = 1e-30


def quantize_weights(model: ir.Model) -> int:
    """Put the weights that a MatMul or Gemm multiplies by into int8, in place; how many nodes there were.

    A weight has one scale for each of its outputs (per channel), an activation one for each of its rows,
    found as the graph runs: a row with NaN gives a row of NaN. Biases stay as they are, and so do the
    names of everything that the graph offers.
    """
    making = _NodeBuilder(model.graph)
    found = [(node, weight) for node in model.graph if (weight := _matrix_weight(node)) is not None]
    for node, weight in found:
        making.replace(node, weight)
    return len(found)


@dataclass(frozen=True)
class _MatrixWeight:
    """The initializer that a node multiplies by; `turned` where it lies (outputs, inputs)."""

    value: ir.Value
    turned: bool

    def array(self) -> Array:
        held = self.value.const_value
        assert held is not None  # noqa: S101, made sure of where it was found
        array = held.numpy().astype(np.float64)
        return array.T if self.turned else array


def _matrix_weight(node: ir.Node) -> _MatrixWeight | None:
    get = node.attributes
    if node.domain or node.op_type not in ("MatMul", "Gemm"):
        return None
    if get.get_int("transA", 0) or get.get_float("alpha", 1.0) != 1 or get.get_float("beta", 1.0) != 1:
        return None
    value, turned = node.inputs[1], bool(get.get_int("transB", 0))
    turn = None if value is None else value.producer()
    if turn is not None and turn.op_type == "Transpose":
        value, turned = turn.inputs[0], not turned
    held = None if value is None else value.const_value
    if value is None or held is None or value.is_graph_input():
        return None
    # of two axes there is one way to transpose them
    return _MatrixWeight(value, turned) if held.dtype == ir.DataType.FLOAT and len(held.shape) == 2 else None


class _NodeBuilder:
    """The nodes and constants made so far, so that what is shared is made once."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.rounded: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self.weights: dict[_MatrixWeight, tuple[ir.Value, ir.Value]] = {}
        self.constants: dict[str, ir.Value] = {}

    def replace(self, node: ir.Node, weight: _MatrixWeight) -> None:
        """y = x W + b becomes y = (q W') s w + b: q and W' are whole, s scales rows and w channels."""
        x, bias, out = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None, node.outputs[0]
        assert x is not None  # noqa: S101, both operators need it
        add = self._adder(node, f"{out.name}.out")
        if x not in self.rounded:
            self.rounded[x] = self._round(x, self._adder(node, f"{x.name}.row"))
        rows, row_scales = self.rounded[x]
        whole, channel_scales = self._whole(weight)
        sums = add("MatMulInteger", rows, whole, self._constant("zero_point", np.uint8(ZERO_POINT)))
        made = add("Cast", sums, to=ir.DataType.FLOAT)
        # one scale after the other: with a product of both onnxruntime would take this for the form
        # that has one scale for all rows
        made = add("Mul", add("Mul", made, row_scales), channel_scales)
        if bias is not None:
            made = add("Add", made, bias)
        made.type, made.shape = out.type, out.shape
        out.replace_all_uses_with(made, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)
        made.name = out.name

    def _round(self, x: ir.Value, add: Callable[..., ir.Value]) -> tuple[ir.Value, ir.Value]:
        """Rows as whole numbers from 1 to 255, and what each row was divided by."""
        axis = self._constant("last_axis", np.array([-1], np.int64))
        size = add("Abs", x)
        if self.graph.opset_imports[""] < REDUCE_MAX_AXES_OPSET:
            top = add("ReduceMax", size, axes=[-1], keepdims=1)
        else:
            top = add("ReduceMax", size, axis, keepdims=1)
        part = add("Mul", top, self._constant("part", np.float32(1 / MAX_INT8)))
        scale = add("Add", part, self._constant("tiny", np.float32(MIN_SCALE)))
        divided = add("Div", x, scale)
        # Cast cuts the fraction off what is now positive: half more than the zero point makes that rounding
        shifted = add("Add", divided, self._constant("shift", np.float32(ZERO_POINT + 0.5)))
        rows = add("Cast", shifted, to=ir.DataType.UINT8)
        # neither the maximum nor the cast keeps a NaN, but a sum does
        nothing = add(
            "Mul", add("ReduceSum", divided, axis, keepdims=1), self._constant("zero", np.float32(0))
        )
        return rows, add("Add", scale, nothing)

    def _whole(self, weight: _MatrixWeight) -> tuple[ir.Value, ir.Value]:
        """The weight (inputs, outputs) as whole numbers, and the scale of each output."""
        if weight not in self.weights:
            array = weight.array()
            scales = np.maximum(np.abs(array).max(0) / MAX_INT8, MIN_SCALE)
            name = f"{weight.value.name}{'.turned' if weight.turned else ''}"
            self.weights[weight] = (
                self._initializer(f"{name}.int8", np.rint(array / scales).astype(np.int8)),
                self._initializer(f"{name}.scales", scales.astype(np.float32)),
            )
        return self.weights[weight]

    def _adder(self, before: ir.Node, name: str) -> Callable[..., ir.Value]:
        """What makes a node with one output, puts it before another, and names both."""
        numbers = count()

        def add(op: str, *inputs: ir.Value, **attributes: int | list[int]) -> ir.Value:
            node = ir.node(op, inputs, attributes, name=f"int8.{name}{next(numbers)}.{op}")
            node.outputs[0].name = node.name
            self.graph.insert_before(before, node)
            return node.outputs[0]

        return add

    def _constant(self, name: str, value: Any) -> ir.Value:
        if name not in self.constants:
            self.constants[name] = self._initializer(f"int8.{name}", np.asarray(value))
        return self.constants[name]

    def _initializer(self, name: str, array: Array) -> ir.Value:
        value = ir.Value(name=name, const_value=ir.tensor(np.ascontiguousarray(array), name=name))
        self.graph.register_initializer(value)
        return value


LowPrecision = Literal["fp16", "int8"]


def lower(model: bytes, precision: LowPrecision) -> bytes:
    """The file in a lower precision, with the same inputs, outputs, hidden outputs, levers and metadata.

    All that goes in and comes out stays float32. The same bytes give the same bytes.
    """
    made = _to_fp16(model) if precision == "fp16" else _to_int8(model)
    passes.TopologicalSortPass()(made)
    passes.RemoveUnusedNodesPass()(made)
    return ir.to_proto(made).SerializeToString(deterministic=True)


def _to_fp16(model: bytes) -> ir.Model:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    proto = onnx.load_model_from_string(model)
    with silence_exporter():
        made = convert_float_to_float16(proto, keep_io_types=True)
    # of what it keeps in float32 (the constants of a Max, say) it still notes that it is float16
    del made.graph.value_info[:]
    return ir.from_proto(onnx.shape_inference.infer_shapes(made))


def _to_int8(model: bytes) -> ir.Model:
    made = ir.from_proto(onnx.load_model_from_string(model))
    if quantize_weights(made) == 0:
        raise PrecisionError(
            "--precision int8: expected a network that multiplies by matrices of float32 weights, "
            "and this one has none: export it in fp32 or fp16"
        )
    return made
