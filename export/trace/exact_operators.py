"""Corrects operators that torch.onnx writes as other functions than those of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from onnxscript.function_libs.torch_lib.ops.core import aten_div_mode, aten_floor_divide
from torch import fx
from torch.export import ExportedProgram

from turnpike.export.errors import UntraceableError
from turnpike.export.module_copy import copy_program
from turnpike.export.trace.untraceable import all_nodes, named_arguments, source_location

# its types allow no tensor of unknown dtype
op: Any = onnxscript.opset18
# begins the names of nodes that are not folded for a constant mask: the proof expects them
UNFOLDED = "masked_rows"
ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
RIGHT_SHIFTS = (torch.ops.aten.__rshift__.Scalar, torch.ops.aten.bitwise_right_shift.Tensor_Scalar)
DIFFERENCES = (torch.ops.aten.rsub.Scalar, torch.ops.aten.rsub.Tensor)


def angle_of(y: Any, x: Any) -> Any:
    """atan2(y, x). torch.onnx has -pi instead of pi where y is 0 and x is negative, and 0 for NaN."""
    constants = (op.Constant(value=ir.tensor(number, ir.DataType.DOUBLE)) for number in (0.0, math.pi))
    zero, half_turn = (op.CastLike(constant, y) for constant in constants)
    angle = op.Atan(op.Div(y, x))
    behind = op.Where(op.Less(y, zero), op.Sub(angle, half_turn), op.Add(angle, half_turn))
    is_origin = op.And(op.Equal(x, zero), op.Equal(y, zero))
    return op.Where(is_origin, zero, op.Where(op.Less(x, zero), behind, angle))


def difference_from(x: Any, other: Any, alpha: float = 1) -> Any:
    """other - alpha * x, as in 1 - T. torch.onnx has no function for it, and would have to replace it."""
    return op.Sub(as_tensor(other, x), x if alpha == 1 else op.Mul(x, as_tensor(alpha, x)))


def rounded_quotient(x: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """x / other, rounded. torch.onnx computes that of integers in float32, which rounds those beyond 2^24."""
    if not x.dtype.is_integer() or isinstance(other, float) or rounding_mode is None:
        return aten_div_mode(x, other, rounding_mode=rounding_mode)
    divisor = op.Constant(value=ir.tensor(other, x.dtype)) if isinstance(other, int) else other
    divisor.dtype = x.dtype
    return op.Div(x, divisor) if rounding_mode == "trunc" else aten_floor_divide(x, divisor)


def shifted_right(x: Any, places: int) -> Any:
    """x >> places as a quotient, which the proof knows. torch.onnx writes it by bits of unsigned numbers."""
    bits = x.dtype.bitwidth - x.dtype.is_signed()
    if 0 <= places < bits:
        return rounded_quotient(x, 2**places, "floor")
    # PyTorch shifts no further than all bits: what remains is the sign
    zero = as_tensor(0, x)
    return op.Sub(zero, op.CastLike(op.Less(x, zero), x)) if x.dtype.is_signed() else op.Mul(x, zero)


def as_tensor(number: Any, like: Any) -> Any:
    """A number in the dtype of a tensor. onnxscript would round one of Python to float32 first."""
    if isinstance(number, int | float):
        dtype = ir.DataType.DOUBLE if isinstance(number, float) else ir.DataType.INT64
        number = op.Constant(value=ir.tensor(number, dtype))
    return op.CastLike(number, like)


# for torch.onnx, in place of its own
TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.atan2.default: angle_of,
    torch.ops.aten.div.Tensor_mode: rounded_quotient,
    **dict.fromkeys(RIGHT_SHIFTS, shifted_right),
    **dict.fromkeys(DIFFERENCES, difference_from),
}


def with_equal_dtypes(program: ExportedProgram) -> ExportedProgram:
    """A program that gives `difference_from` only tensors of its result's dtype: a copy where needed."""

    def others(node: fx.Node) -> list[fx.Node]:
        if node.target not in DIFFERENCES:
            return []
        dtype = node.meta["val"].dtype
        return [
            given for given in node.all_input_nodes if getattr(given.meta["val"], "dtype", dtype) != dtype
        ]

    if not any(map(others, all_nodes(program))):
        return program
    program = copy_program(program)
    for node in list(all_nodes(program)):
        for given in others(node):
            dtype = node.meta["val"].dtype
            with node.graph.inserting_before(node):
                cast = node.graph.call_function(torch.ops.aten._to_copy.default, (given,), {"dtype": dtype})
            cast.meta = node.meta | {"val": given.meta["val"].to(dtype)}
            node.replace_input_with(given, cast)
    return program


def correct_masked_attention(model: ir.Model, program: ExportedProgram) -> None:
    """Give no weight to any step in rows of attention that are masked completely, in place.

    PyTorch answers 0 there. torch.onnx writes NaN for masks of floats; for those of booleans, it masks with
    the smallest number instead of minus infinity, so that all steps have the same weight.
    """
    values = {value.name: value for node in model.graph.all_nodes() for value in node.outputs}
    for node in all_nodes(program):
        if node.target is not ATTENTION or named_arguments(node).get("attn_mask") is None:
            continue
        result = values.get(node.name)
        try:
            _correct(None if result is None else result.producer(), node.meta["val"].dtype)
        except (AttributeError, IndexError) as error:
            raise UntraceableError(
                f"{source_location(node)}masked attention: expected the nodes that torch.onnx writes for it, "
                "got others"
            ) from error


def _correct(product: Any, dtype: torch.dtype) -> None:
    """Correct the nodes before the last product of a masked attention."""
    weights = product.inputs[0]
    is_boolean = weights.producer().op_type == "Where"
    softmax = weights.producer().inputs[2].producer() if is_boolean else weights.producer()
    scores = softmax.inputs[0].producer()
    if (softmax.op_type, scores.op_type) != ("Softmax", "Add"):
        raise AttributeError(softmax.op_type)
    mask = scores.inputs[1]
    numbers = (torch.tensor(-torch.inf, dtype=dtype), torch.tensor(0, dtype=dtype), torch.tensor([-1]))
    constants = [ir.node("Constant", [], {"value": ir.tensor(number.numpy())}) for number in numbers]
    lowest, zero, last = (constant.outputs[0] for constant in constants)
    largest = ir.node("ReduceMax", [mask, last], {"keepdims": 1}, name=f"{UNFOLDED}.largest")
    hidden = ir.node("Equal", [largest.outputs[0], lowest], name=f"{UNFOLDED}.hidden")
    chosen = ir.node("Where", [hidden.outputs[0], zero, softmax.outputs[0]])
    if is_boolean:
        product.graph.insert_before(mask.producer(), constants)
        mask.producer().replace_input_with(2, lowest)
    else:
        product.graph.insert_before(scores, constants)
    product.graph.insert_before(product, [largest, hidden, chosen])
    product.replace_input_with(0, chosen.outputs[0])
