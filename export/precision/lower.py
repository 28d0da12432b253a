"""Lowers the precision of a graph: fp16 for GPUs, int8 for wide networks on CPUs.

onnxruntime's own dynamic quantization has one activation scale per batch. There a row's answer depends on its
neighbors (it moves by 1.9e-3), a row of huge numbers spoils the others, and such a file could never be
batched. Here each row (each word of a text) has its own scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from turnpike.export.errors import PrecisionError
from turnpike.export.precision.half_precision import to_half_precision

Array = np.ndarray[Any, np.dtype[Any]]

# largest magnitude of a quantized activation
MAX_ACTIVATION = 127
# Largest magnitude of a quantized weight. CPUs without VNNI add pairs of products in 16 bits, which saturate:
# two products of an activation (up to 255) and a weight must fit, or the same file gives other results there.
MAX_WEIGHT = 64
# activations are stored as uint8 around this value, because CPUs multiply unsigned by signed integers
ZERO_POINT = 128
# from this opset on ReduceMax takes its axes as an input (ReduceSum did so before)
REDUCE_MAX_AXES_OPSET = 18
# added to every scale, so that a row of zeros is not divided by zero
MIN_SCALE = 1e-30


def quantize_weights(model: ir.Model) -> int:
    """Quantize the weights of every MatMul and Gemm to int8, in place.

    A weight has one scale per output (per channel). An activation has one scale per row, computed as the
    graph runs; a row with NaN gives a row of NaN. Biases and the names of all inputs and outputs stay.

    Returns:
        The number of nodes that were quantized.
    """
    builder = _NodeBuilder(model.graph)
    multiplications = [(node, weight) for node in model.graph if (weight := _matrix_weight(node)) is not None]
    for node, weight in multiplications:
        builder.replace(node, weight)
    return len(multiplications)


@dataclass(frozen=True)
class _MatrixWeight:
    """The initializer that a node multiplies by; `transposed` if its axes are (outputs, inputs)."""

    value: ir.Value
    transposed: bool

    def array(self) -> Array:
        tensor = self.value.const_value
        assert tensor is not None  # noqa: S101, _matrix_weight checked it
        array = tensor.numpy().astype(np.float64)
        return array.T if self.transposed else array


def _matrix_weight(node: ir.Node) -> _MatrixWeight | None:
    attributes = node.attributes
    if node.domain or node.op_type not in ("MatMul", "Gemm"):
        return None
    if (
        attributes.get_int("transA", 0)
        or attributes.get_float("alpha", 1.0) != 1
        or attributes.get_float("beta", 1.0) != 1
    ):
        return None
    value, transposed = node.inputs[1], bool(attributes.get_int("transB", 0))
    producer = None if value is None else value.producer()
    if producer is not None and producer.op_type == "Transpose":
        value, transposed = producer.inputs[0], not transposed
    tensor = None if value is None else value.const_value
    if value is None or tensor is None or value.is_graph_input():
        return None
    # with two axes a Transpose can only swap them
    is_float_matrix = tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) == 2
    return _MatrixWeight(value, transposed) if is_float_matrix else None


class _NodeBuilder:
    """Adds quantized nodes to a graph; quantized activations, weights and constants are shared."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.activations: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self.weights: dict[_MatrixWeight, tuple[ir.Value, ir.Value]] = {}
        self.constants: dict[str, ir.Value] = {}

    def replace(self, node: ir.Node, weight: _MatrixWeight) -> None:
        """Turn y = x W + b into y = (q W') s w + b: q and W' are integers, s scales rows and w channels."""
        x, bias, out = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None, node.outputs[0]
        assert x is not None  # noqa: S101, both operators require it
        add = self._adder(node, f"{out.name}.out")
        if x not in self.activations:
            self.activations[x] = self._quantize_rows(x, self._adder(node, f"{x.name}.row"))
        rows, row_scales = self.activations[x]
        matrix, channel_scales = self._quantize_weight(weight)
        sums = add("MatMulInteger", rows, matrix, self._constant("zero_point", np.uint8(ZERO_POINT)))
        result = add("Cast", sums, to=ir.DataType.FLOAT)
        # multiply by one scale after the other: onnxruntime would mistake a product of both for its own
        # pattern with one scale for all rows
        result = add("Mul", add("Mul", result, row_scales), channel_scales)
        if bias is not None:
            result = add("Add", result, bias)
        result.type, result.shape = out.type, out.shape
        out.replace_all_uses_with(result, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)
        result.name = out.name

    def _quantize_rows(self, x: ir.Value, add: Callable[..., ir.Value]) -> tuple[ir.Value, ir.Value]:
        """Quantize rows to integers from 1 to 255; returns them with the scale of each row."""
        axis = self._constant("last_axis", np.array([-1], np.int64))
        magnitude = add("Abs", x)
        if self.graph.opset_imports[""] < REDUCE_MAX_AXES_OPSET:
            largest = add("ReduceMax", magnitude, axes=[-1], keepdims=1)
        else:
            largest = add("ReduceMax", magnitude, axis, keepdims=1)
        step = add("Mul", largest, self._constant("part", np.float32(1 / MAX_ACTIVATION)))
        scale = add("Add", step, self._constant("tiny", np.float32(MIN_SCALE)))
        divided = add("Div", x, scale)
        # Cast truncates; adding the zero point makes the numbers positive, and adding 0.5 makes it rounding
        shifted = add("Add", divided, self._constant("shift", np.float32(ZERO_POINT + 0.5)))
        rows = add("Cast", shifted, to=ir.DataType.UINT8)
        # neither ReduceMax nor Cast keeps a NaN, but a sum does: add 0 times the sum to the scale
        zero_or_nan = add(
            "Mul", add("ReduceSum", divided, axis, keepdims=1), self._constant("zero", np.float32(0))
        )
        return rows, add("Add", scale, zero_or_nan)

    def _quantize_weight(self, weight: _MatrixWeight) -> tuple[ir.Value, ir.Value]:
        """The weight (inputs, outputs) as integers, and the scale of each output."""
        if weight not in self.weights:
            array = weight.array()
            scales = np.maximum(np.abs(array).max(0) / MAX_WEIGHT, MIN_SCALE)
            name = f"{weight.value.name}{'.turned' if weight.transposed else ''}"
            self.weights[weight] = (
                self._initializer(f"{name}.int8", np.rint(array / scales).astype(np.int8)),
                self._initializer(f"{name}.scales", scales.astype(np.float32)),
            )
        return self.weights[weight]

    def _adder(self, before: ir.Node, name: str) -> Callable[..., ir.Value]:
        """A function that adds a node with one output before another node, and names both."""
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
    """Convert a model file to a lower precision.

    Inputs, outputs, hidden outputs, levers and metadata stay. All inputs and outputs stay float32; in fp16 so
    does the preparation of the inputs. The same bytes always give the same bytes.
    """
    lowered = to_half_precision(model) if precision == "fp16" else _to_int8(model)
    passes.TopologicalSortPass()(lowered)
    passes.RemoveUnusedNodesPass()(lowered)
    return ir.to_proto(lowered).SerializeToString(deterministic=True)


def _to_int8(model: bytes) -> ir.Model:
    lowered = ir.from_proto(onnx.load_model_from_string(model))
    if quantize_weights(lowered) == 0:
        raise PrecisionError(
            "--precision int8: expected a network with matrices of float32 weights outside of GRU, LSTM and "
            "loops, got one without any: export it in fp32"
        )
    return lowered
