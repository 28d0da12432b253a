"""Operators of ONNX on tensors whose length is that of a mask, such as the places of NonZero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import chosen_rows
from turnpike.export.identity.algebra.arithmetic.terms import (
    Sizes,
    Term,
    UndecidedError,
    Value,
    known,
    shape_of,
)
from turnpike.export.identity.algebra.chosen_rows import Places, Selected, SelectedShape, Selection
from turnpike.export.identity.onnx.operator_table import (
    Handler,
    NodeCall,
    OperatorTable,
    integers,
)

# operators on each number, whatever the others are
POINTWISE = {
    *(
        "Neg",
        "Exp",
        "Log",
        "Sqrt",
        "Abs",
        "Sign",
        "Sigmoid",
        "Tanh",
        "Reciprocal",
        "Not",
        "Add",
        "Sub",
        "Mul",
    ),
    *(
        "Div",
        "And",
        "Or",
        "Pow",
        "Where",
        "Erf",
        "Cos",
        "Sin",
        "Relu",
        "Softplus",
        "Softsign",
        "Mish",
        "PRelu",
    ),
    *("Clip", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Max", "Min", "LeakyRelu"),
    *(
        "Elu",
        "Celu",
        "Selu",
        "Gelu",
        "Swish",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "Cast",
        "CastLike",
        "Floor",
    ),
    *("Ceil", "Round"),
}
# operators on each row of their first tensor, whatever the other rows are
ROWWISE = ("MatMul", "Gemm", "LayerNormalization", "Softmax", "LogSoftmax")
table = OperatorTable()


def run_on_chosen(handler: Handler, call: NodeCall, inputs: Sequence[Any]) -> Any:
    """Run a node of which an input is a tensor with the length of a mask."""
    operator = call.operator
    if isinstance(inputs[0], Places) and len(inputs) == 1 and operator in ("Max", "Identity"):
        return inputs[0]
    if operator in table:
        return table[operator](call, *inputs)
    if operator in POINTWISE:
        mask, numbers = chosen_rows.dense(call.algebra, inputs)
        return Selected(mask, handler(call, *numbers))
    rows, others = inputs[0], inputs[1:]
    if (
        operator not in ROWWISE
        or not isinstance(rows, Selected)
        or any(isinstance(value, Selection) for value in others)
        # a stack of matrices has a product for each of them, in the first axis
        or any(value is not None and len(shape_of(value)) > 2 for value in others)
        or _is_along_rows(call, len(shape_of(rows.values)))
    ):
        raise UndecidedError("a tensor whose length depends on the input")
    return Selected(rows.mask, handler(call, rows.values, *others))


def _is_along_rows(call: NodeCall, rank: int) -> bool:
    """Whether an operator computes with all rows together."""
    if call.operator == "Gemm" and call.get("transA", 0):
        return True
    return rank < 2 or call.get("axis", -1) % rank == 0


@table.operators("Transpose")
def transpose(call: NodeCall, x: Any) -> Any:
    if isinstance(x, Places) and x.form != "ids" and call.get("perm", [1, 0]) == [1, 0]:
        return Places(x.mask, x.ids, "rows" if x.form == "columns" else "columns")
    perm = call.get("perm")
    if not isinstance(x, Selected) or perm is None or perm[0] != 0:
        raise UndecidedError("a transposed tensor whose length depends on the input")
    return Selected(x.mask, call.algebra.move(x.values, lambda data: data.transpose(perm)))


@table.operators("Squeeze", "Reshape")
def as_vector(call: NodeCall, x: Any, form: Value | None = None) -> Any:
    """Places of one axis as ids, and numbers as a vector."""
    wanted = None if form is None or isinstance(form, Selection) else integers(form, "a shape")
    if isinstance(x, Places) and x.form == "rows" and x.ids.shape[1] == 1 and wanted in ([1], [-1]):
        return Places(x.mask, x.ids, "ids")
    if isinstance(x, Selected) and call.operator == "Reshape":
        inner = shape_of(x.values)[1:]
        if wanted == [-1]:
            count = int(np.prod(inner))
            mask = call.algebra.move(x.mask, lambda data: np.repeat(data, count))
            return Selected(mask, call.algebra.move(x.values, lambda data: data.reshape(-1)))
        if wanted == [-1, *inner]:
            return x
    raise UndecidedError("another shape of a tensor whose length depends on the input")


@table.operators("Unsqueeze")
def as_rows(call: NodeCall, x: Any, axes: Value | None = None) -> Any:
    chosen = call.get("axes") if axes is None else integers(axes, "axes")
    if isinstance(x, Places) and x.form == "ids" and chosen in ([-1], [1]):
        return Places(x.mask, x.ids, "rows")
    raise UndecidedError("another shape of a tensor whose length depends on the input")


@table.operators("Shape")
def shape(call: NodeCall, x: Any) -> Any:
    start, end = call.get("start", 0), call.get("end")
    if isinstance(x, Selected) and start == 0 and end is None:
        return SelectedShape(x.mask, shape_of(x.values)[1:])
    if isinstance(x, Places) and x.form != "columns" and start == 0 and end is None:
        return SelectedShape(x.mask, x.ids.shape[1:] if x.form == "rows" else ())
    raise UndecidedError("the shape of a tensor whose length depends on the input")


@table.operators("Gather")
def gather(call: NodeCall, x: Any, ids: Any) -> Any:
    algebra, axis = call.algebra, call.get("axis", 0)
    if isinstance(x, SelectedShape):
        if not isinstance(ids, Term | Sizes) and np.ravel(ids).tolist() == [0]:
            return SelectedShape(x.mask)
    elif isinstance(ids, Places) and ids.form == "ids" and axis == 0 and _has_places(x, ids):
        return Selected(ids.mask, algebra.move(x, lambda data: data[ids.ids[:, 0]]))
    raise UndecidedError("an index whose length depends on the input")


@table.operators("GatherND")
def gather_places(call: NodeCall, x: Any, ids: Any) -> Any:
    if call.get("batch_dims", 0) or not isinstance(ids, Places) or ids.form != "rows":
        raise UndecidedError("an index whose length depends on the input")
    if not _has_places(x, ids):
        raise UndecidedError("the places of a mask of another shape")
    return Selected(ids.mask, call.algebra.move(x, lambda data: data[tuple(ids.ids.T)]))


def _has_places(x: Any, ids: Places) -> bool:
    """Whether the mask has the shape of the tensor: of a longer table, other inputs would read other rows."""
    if isinstance(x, Selection):
        return False
    return np.array_equal(ids.ids, chosen_rows.all_places(shape_of(x)[: ids.ids.shape[1]]))


@table.operators("ScatterND")
def scatter_places(call: NodeCall, x: Any, ids: Any, updates: Any) -> Value:
    """Numbers at the places where a mask holds; each place comes once."""
    algebra, reduction = call.algebra, call.get("reduction", "none")
    if not isinstance(ids, Places) or ids.form != "rows" or isinstance(x, Selection):
        raise UndecidedError("an index whose length depends on the input")
    axes = ids.ids.shape[1]
    sizes = shape_of(x)[:axes]
    if not _has_places(x, ids) or reduction not in ("none", "add"):
        raise UndecidedError("a write where a mask of another shape holds")
    if not isinstance(updates, Selected) or shape_of(updates.values)[1:] != shape_of(x)[axes:]:
        raise UndecidedError("a write of other numbers than one for each place of a mask")
    mask = algebra.move(ids.mask, lambda data: data.reshape(sizes))
    return chosen_rows.write_where(algebra, x, mask, updates, add=reduction == "add")


def sizes_of(values: Sequence[Value]) -> tuple[int, ...]:
    """The sizes in several parts of a shape, of which any may be empty."""
    parts = [integers(value, "a shape") for value in values if np.size(known(value, "a shape"))]
    return tuple(size for part in parts for size in part)


def counted_shape(call: NodeCall, *values: Value) -> SelectedShape | None:
    """A shape that begins with the number of true places of a mask; None for any other one."""
    mask = call.algebra.counts.get(values[0])
    if mask is None or shape_of(values[0]) != (1,):
        return None
    return SelectedShape(mask, sizes_of(values[1:]))


@table.operators("Concat")
def concatenate(call: NodeCall, *values: Any) -> Any:
    first, others = values[0], values[1:]
    if isinstance(first, Places) and first.form == "rows" and not others:
        return first
    if (
        not isinstance(first, SelectedShape)
        or first.rest
        or any(isinstance(value, Term | Selection) for value in others)
    ):
        raise UndecidedError("joins tensors of which one has a length that depends on the input")
    rest = [
        size for value in others for size in integers(value, "a shape") if np.size(known(value, "a shape"))
    ]
    return SelectedShape(first.mask, tuple(rest))


@table.operators("Expand")
def expand(call: NodeCall, x: Any, sizes: Any) -> Any:
    if isinstance(sizes, Term):
        sizes = counted_shape(call, sizes)
    if isinstance(x, Places) and isinstance(sizes, SelectedShape):
        if x.form == "ids" and sizes.rest == () and chosen_rows.is_same(x.mask, sizes.mask):
            return x
    elif isinstance(sizes, SelectedShape):
        count, rest = sizes.mask.shape[0], sizes.rest
        if isinstance(x, Selected):
            if not chosen_rows.is_same(x.mask, sizes.mask):
                raise UndecidedError("numbers where one mask holds in the shape of another one")
            x = x.values
        elif len(shape_of(x)) > len(rest) and shape_of(x)[0] != 1:
            raise UndecidedError("a number for each place where a mask of the input holds")
        if len(shape_of(x)) > 1 + len(rest):
            raise UndecidedError("numbers with more axes than their shape")
        return Selected(
            sizes.mask, call.algebra.move(x, lambda data: np.broadcast_to(data, (count, *rest)).copy())
        )
    raise UndecidedError("another shape of a tensor whose length depends on the input")


@table.operators("Slice")
def first_numbers(
    call: NodeCall, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Selected:
    if (
        isinstance(x, Selection)
        or not isinstance(ends, SelectedShape)
        or len(shape_of(x)) != 1
        or ends.rest
        or integers(starts, "a start") != [0]
        or (axes is not None and integers(axes, "an axis") != [0])
        or (steps is not None and integers(steps, "a step") != [1])
    ):
        raise UndecidedError("a part of a tensor with a length that depends on the input")
    return chosen_rows.select_first(call.algebra, x, ends.mask)


@table.operators("ReduceSum", "ReduceMean")
def reduce(call: NodeCall, x: Any, axes: Value | None = None) -> Value:
    chosen = call.get("axes") if axes is None else integers(axes, "the axes of a reduction")
    if not isinstance(x, Selected) or (not chosen and call.get("noop_with_empty_axes", 0)):
        raise UndecidedError("a sum of the places where a mask of the input holds")
    keep = bool(call.get("keepdims", 1))
    return chosen_rows.sum_of(call.algebra, x, chosen, keep, call.operator == "ReduceMean")
