"""Reductions of ONNX."""

from __future__ import annotations

from turnpike.export.identity.algebra import reductions
from turnpike.export.identity.algebra.arithmetic.terms import Term, UndecidedError, Value, shape_of
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable, integers

table = OperatorTable()

REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp"]

# of one number, these are the number itself
PLAIN_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


@table.operators(*(f"Reduce{name}" for name in REDUCTIONS))
def reduce(call: NodeCall, x: Value, axes: Value | None = None) -> Value:
    algebra = call.algebra
    chosen = call.get("axes") if axes is None else integers(axes, "the axes of a reduction")
    if not chosen and call.get("noop_with_empty_axes", 0):
        if call.operator not in PLAIN_REDUCTIONS:
            raise UndecidedError(f"{call.operator} along no axis")
        return x
    keep = bool(call.get("keepdims", 1))
    match call.operator:
        case "ReduceSum":
            total = reductions.sum_of(algebra, x, chosen, keepdims=keep)
            if isinstance(x, Term) and isinstance(total, Term) and x.is_binary and total.data[0].size == 1:
                algebra.counts.add(total, algebra.move(x, lambda data: data.reshape(-1)))
            return total
        case "ReduceMean":
            return reductions.mean(algebra, x, chosen, keepdims=keep)
        case "ReduceMax":
            return reductions.maximum_of(algebra, x, chosen, keepdims=keep)
        case "ReduceMin":
            return reductions.minimum_of(algebra, x, chosen, keepdims=keep)
        case "ReduceProd":
            return reductions.product_of(algebra, x, chosen, keepdims=keep)
        case "ReduceSumSquare":
            return reductions.sum_of(algebra, algebra.multiply(x, x), chosen, keepdims=keep)
        case "ReduceLogSum":
            return algebra.log(reductions.sum_of(algebra, x, chosen, keepdims=keep))
        case "ReduceLogSumExp":
            return reductions.log_sum_exp(algebra, x, chosen, keepdims=keep)
    return reductions.norm(algebra, x, float(call.operator[-1]), chosen, keepdims=keep)


@table.operators("ArgMax", "ArgMin")
def argmax(call: NodeCall, x: Value) -> Value:
    if call.get("select_last_index", 0):
        raise UndecidedError(f"{call.operator} of the last index")
    signed = x if call.operator == "ArgMax" else call.algebra.negate(x)
    keep = bool(call.get("keepdims", 1))
    return reductions.argmax(call.algebra, signed, call.get("axis", 0), keepdims=keep)


@table.operators("TopK")
def largest(call: NodeCall, x: Value, count: Value) -> list[Value]:
    (number,) = integers(count, "the number of TopK")
    axis = call.get("axis", -1) % len(shape_of(x))
    if not call.get("sorted", 1):
        raise UndecidedError("TopK that is not sorted")
    is_largest = bool(call.get("largest", 1))
    return list(reductions.largest_of(call.algebra, x, number, axis, largest=is_largest))


@table.operators("CumSum")
def cumulative_sum(call: NodeCall, x: Value, axis: Value) -> Value:
    if call.get("exclusive", 0) or call.get("reverse", 0):
        raise UndecidedError("CumSum that is exclusive or reversed")
    (number,) = integers(axis, "the axis of CumSum")
    return reductions.cumulative_sum(call.algebra, x, number)


@table.operators("Softmax", "LogSoftmax")
def softmax(call: NodeCall, x: Value) -> Value:
    if call.opset < 13:
        raise UndecidedError(f"{call.operator} before opset 13")
    run = reductions.softmax if call.operator == "Softmax" else reductions.log_softmax
    return run(call.algebra, x, call.get("axis", -1))


@table.operators("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: NodeCall, x: Value) -> Value:
    run = reductions.mean if call.operator == "GlobalAveragePool" else reductions.maximum_of
    return run(call.algebra, x, range(2, len(shape_of(x))), keepdims=True)


@table.operators("Size")
def size(call: NodeCall, x: Value) -> Value:
    return reductions.product_of(call.algebra, call.algebra.sizes_of(x))
