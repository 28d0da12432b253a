"""Operators of ATen on tensors whose length is that of a mask: `y[mask]`, and what is computed with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import chosen_rows, reductions
from turnpike.export.identity.algebra.arithmetic.terms import Term, UndecidedError, Value, shape_of
from turnpike.export.identity.algebra.chosen_rows import Places, Selected
from turnpike.export.identity.aten.operator_table import Call, Handler, OperatorTable

# operators on each number, whatever the others are
POINTWISE = {
    *("neg", "exp", "log", "sqrt", "rsqrt", "abs", "sign", "reciprocal", "square", "log1p", "expm1", "erf"),
    *(
        "sin",
        "cos",
        "floor",
        "ceil",
        "trunc",
        "round.default",
        "sigmoid",
        "tanh",
        "relu",
        "silu",
        "gelu",
        "elu",
    ),
    *("selu", "mish", "softplus", "leaky_relu", "hardtanh", "hardsigmoid", "hardswish", "add", "sub"),
    *("rsub", "mul", "div", "pow", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "lerp", "where"),
    *("gt", "ge", "lt", "le", "eq", "ne", "masked_fill", "logical_not", "logical_and", "logical_or"),
    *("clone", "alias", "detach", "contiguous", "dropout", "_to_copy", "to", "convert_element_type"),
}
# operators on each row of their first tensor, whatever the other rows are: the name of this tensor
ROWWISE = {
    "linear": "input",
    "mm": "self_",
    "matmul": "self_",
    "addmm": "mat1",
    "layer_norm": "input",
    "native_layer_norm": "input",
    "softmax": "self_",
    "_softmax": "self_",
    "log_softmax": "self_",
    "_log_softmax": "self_",
}
table = OperatorTable()


def run_on_chosen(name: str, handler: Handler, call: Call, arguments: Mapping[str, Any]) -> Any:
    """Run an operator of which an argument is a tensor with the length of a mask."""
    if name in table:
        return table[name](call, **arguments)
    if name in POINTWISE:
        mask, numbers = chosen_rows.dense(call.algebra, list(arguments.values()))
        return Selected(mask, handler(call, **dict(zip(arguments, numbers, strict=True))))
    rows = arguments.get(ROWWISE.get(name, ""))
    others = [value for value in arguments.values() if isinstance(value, Selected | Places)]
    if not isinstance(rows, Selected) or len(others) > 1 or _is_along_rows(arguments, rows):
        raise UndecidedError(f"{name} of a tensor whose length depends on the input")
    result = handler(call, **{**arguments, ROWWISE[name]: rows.values})
    if isinstance(result, tuple):
        return (Selected(rows.mask, result[0]), *result[1:])
    return Selected(rows.mask, result)


def _is_along_rows(arguments: Mapping[str, Any], rows: Selected) -> bool:
    """Whether an operator computes with all rows together."""
    rank = len(shape_of(rows.values))
    axis = arguments.get("dim", arguments.get("axis"))
    if "normalized_shape" in arguments:
        return len(arguments["normalized_shape"]) >= rank
    # a stack of matrices has a product for each of them, in the first axis
    if any(isinstance(value, Term | np.ndarray) and len(shape_of(value)) > 2 for value in arguments.values()):
        return True
    return rank < 2 or (axis is not None and axis % rank == 0)


@table.operators("sum", "mean")
def sum_of(call: Call, self_: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return chosen_rows.sum_of(call.algebra, self_, dim, keepdim, call.operator == "mean")


@table.operators("sym_size")
def size(call: Call, self_: Any, dim: int) -> Value:
    if not isinstance(self_, Selected):
        raise UndecidedError("the number of places where a mask of the input holds")
    if dim % len(shape_of(self_.values)):
        return call.algebra.move(call.algebra.sizes_of(self_.values), lambda data: np.asarray(data[dim]))
    return reductions.sum_of(call.algebra, call.algebra.cast(self_.mask, np.int64))


@table.operators("index_put", "_unsafe_index_put")
def write_at(call: Call, self_: Any, indices: Any, values: Any, accumulate: bool = False) -> Value:
    if not isinstance(values, Selected) or isinstance(self_, Selected) or len(indices) != 1:
        raise UndecidedError("a write into numbers that a mask of the input chooses")
    (mask,) = indices
    if not isinstance(mask, Term) or mask.kind != "b":
        raise UndecidedError("numbers where a mask of the input holds are written to other places")
    return chosen_rows.write_where(call.algebra, self_, mask, values, add=accumulate)
