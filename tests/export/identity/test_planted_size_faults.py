"""Planted faults in shapes, indices and sizes: none of them may be called identical.

Each changes the function for some input or for some size, which samples hardly show.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.export.identity.planted_cases import (
    END,
    FLOAT,
    INT8,
    INT64,
    Case,
    Change,
    Step,
    attribute,
    constant,
    decided,
    feed,
    lengths,
    parameters,
    renamed,
    swap,
    use,
    weight,
    wrap,
)
from tests.export.identity.planting import Array, Plant
from turnpike.export.identity.decision import Verdict

pytestmark = pytest.mark.slow


def double_after(p: Plant, v: ir.Value, index: int, axis: int = 0) -> ir.Value:
    """Twice a value from an index on. Slices of shorter tensors are clamped, so that these do not change."""
    last = p.Mul(p.Slice(v, [index], [END], [axis]), 2.0)
    return p.Concat(p.Slice(v, [0], [index], [axis]), last, axis=axis)


def add_size(p: Plant, v: ir.Value, number: ir.Value) -> ir.Value:
    return p.Add(v, p.Cast(number, to=FLOAT))


def dilated(p: Plant, v: ir.Value, distance: int) -> ir.Value:
    """Each row plus half of the row `distance` after it, by a convolution over the rows."""
    weight = np.array([[[0, 1, 0.5]]], np.float32)
    rows = p.Unsqueeze(p.Transpose(v, perm=[1, 0]), [1])
    mixed = p.Conv(rows, weight, dilations=[distance], pads=[distance, distance], kernel_shape=[3])
    return p.Transpose(p.Squeeze(mixed, [1]), perm=[1, 0])


def far_pairs(p: Plant, v: ir.Value, distance: int) -> ir.Value:
    """Each row plus all rows that come `distance` or more after it."""
    ones = p.ConstantOfShape(p.Concat(p.size(), p.size(), axis=0), value=ir.tensor(np.ones(1, np.float32)))
    return p.Add(v, p.MatMul(p.Trilu(ones, np.array(distance, np.int64), upper=1), v))


def delayed(p: Plant, v: ir.Value, distance: int, axis: int = 0, rank: int = 2) -> ir.Value:
    """Each row plus the row `distance` before it."""
    pads = [0] * (2 * rank)
    pads[axis] = distance
    return p.Add(v, p.Slice(p.Pad(v, pads), [0], p.Shape(v, start=axis, end=axis + 1), [axis]))


def split_rows(p: Plant, v: ir.Value) -> ir.Value:
    first = p.Min(p.size(), [10])
    parts = p.add("Split", 2, v, p.Concat(first, p.Sub(p.size(), first), axis=0), axis=0)
    return p.Concat(parts[0], p.Mul(parts[1], 2.0), axis=0)


def split_longer(p: Plant, v: ir.Value, bound: ir.Value | list[int]) -> ir.Value:
    """Rows beyond a bound are doubled. Zeros come after the rows, so that it is within short inputs."""
    longer = p.Concat(v, np.zeros((64, 64), np.float32), axis=0)
    parts = p.add("Split", 2, longer, p.Concat(bound, p.Sub(p.Add(p.size(), [64]), bound), axis=0), axis=0)
    return p.Slice(p.Concat(parts[0], p.Mul(parts[1], 2.0), axis=0), [0], p.size(), [0])


def dilated_longer(p: Plant, v: ir.Value, distance: int) -> ir.Value:
    """Each row plus half of the row `distance` after it, with zeros after all rows."""
    weight = np.array([[[1, 0.5]]], np.float32)
    longer = p.Concat(v, np.zeros((distance, 64), np.float32), axis=0)
    rows = p.Unsqueeze(p.Transpose(longer, perm=[1, 0]), [1])
    mixed = p.Conv(rows, weight, dilations=[distance], kernel_shape=[2])
    return p.Transpose(p.Squeeze(mixed, [1]), perm=[1, 0])


def tile_rows(p: Plant, v: ir.Value) -> ir.Value:
    """Rows from 64 on are copies of the first ones."""
    times = p.Concat(p.Add(p.Div(p.size(), [64]), [1]), [1], axis=0)
    return p.Slice(p.Tile(p.Slice(v, [0], [64], [0]), times), [0], p.size(), [0])


def row_numbers(p: Plant) -> ir.Value:
    count = p.Squeeze(p.size())
    return p.Range(np.array(0, np.int64), count, np.array(1, np.int64))


def ones_of_rows(p: Plant) -> ir.Value:
    return p.ConstantOfShape(p.size(), value=ir.tensor(np.ones(1, np.int64)))


def last_row_doubled(p: Plant, v: ir.Value) -> ir.Value:
    return p.Concat(p.Slice(v, [0], [-1], [0]), p.Mul(p.Slice(v, [-1], [END], [0]), 2.0), axis=0)


def reordered(p: Plant, v: ir.Value, width: int) -> ir.Value:
    """The numbers in the order of the transposed tensor, in the old shape."""
    return p.Reshape(p.Transpose(v, perm=[1, 0]), [-1, width])


def late_rows(p: Plant, v: ir.Value) -> ir.Value:
    late = p.Unsqueeze(p.GreaterOrEqual(row_numbers(p), [100]), [1])
    return p.Where(late, p.Neg(v), v)


def int64(number: int) -> Array:
    return np.array(number, np.int64)


def ids_by(operator: str, number: int) -> Step:
    return lambda p, v: getattr(p, operator)(v, int64(number))


def scaled_by_cast_rows(p: Plant, v: ir.Value, to: int) -> ir.Value:
    return p.Mul(v, p.Div(p.Cast(p.Cast(p.size(), to=to), to=FLOAT), p.Cast(p.size(), to=FLOAT)))


def pads_of_rows(p: Plant, v: ir.Value, limit: int) -> ir.Value:
    """Rows of zeros come before the rows if there are more than a limit."""
    more = p.Max(p.Sub(p.size(), [limit]), [0])
    padded = p.Pad(v, p.Concat(more, [0, 0, 0], axis=0))
    return p.Slice(padded, [0], p.size(), [0])


def limit_lengths(name: str, limit: int) -> Change:
    def plant(p: Plant) -> None:
        node = p.producer(name)
        p._put = p._before(node)
        p.feed(name, 4, lengths(p, limit))

    return plant


def slices(p: Plant, v: ir.Value, start: int, end: int, axis: int) -> ir.Value:
    return p.Slice(v, [start], [end], [axis])


def transpose(p: Plant, v: ir.Value, *perm: int) -> ir.Value:
    return p.Transpose(v, perm=perm)


def step_is_first(p: Plant, v: ir.Value) -> ir.Value:
    """The first step instead of the last one, if there are more than 30."""
    return p.Cast(p.Mul(p.Cast(p.LessOrEqual(p.size(1), [30]), to=INT64), v), to=INT64)


def swap_rows(array: Array, first: int, second: int) -> None:
    array[[first, second]] = array[[second, first]]


def zero_first_step(p: Plant, v: ir.Value) -> ir.Value:
    return p.Pad(p.Slice(v, [1], [END], [2]), [0, 0, 1, 0, 0, 0])


def positions(offset: int) -> Change:
    """A number of positions to be off by."""
    return wrap("embedding_1", lambda p, v: p.Gather(p["position.weight"], np.arange(6) + offset, axis=0))


def mask_by_size(p: Plant, v: ir.Value) -> ir.Value:
    return p.Or(v, p.Greater(p.size(), [16]))


def scanned(start: int, end: int) -> Change:
    """Other steps that the scan of a recurrent operator goes through."""

    def plant(p: Plant) -> None:
        node = next(node for node in p.model.graph if node.op_type == "Scan")
        name = str(node.outputs[0].name)
        for index in range(1, len(node.inputs)):
            p.feed(name, index, lambda v: p.Slice(v, [start], [end], [0]))

    return plant


FAULTS = [
    Case("dense", "rows from 8 on doubled", wrap("relu", double_after, 8)),
    Case("dense", "rows from 1000 on doubled", wrap("relu", double_after, 1000)),
    Case("dense", "convolution over rows 9 apart", wrap("relu", dilated, 9)),
    Case("dense", "convolution over rows 1 apart", wrap("relu", dilated, 1)),
    Case("dense", "rows 9 apart mixed by Trilu", wrap("relu", far_pairs, 9)),
    Case("dense", "rows 9 apart added", wrap("relu", delayed, 9)),
    Case("dense", "split of 10 rows", wrap("relu", split_rows)),
    Case("dense", "rows beyond 11 of a longer axis", wrap("relu", split_longer, [11])),
    Case(
        "dense",
        "rows beyond the length of a weight",
        wrap("relu", lambda p, v: split_longer(p, v, p.Shape(p["layers.3.gate.weight"], start=0, end=1))),
    ),
    Case("dense", "convolution over rows of a longer axis", wrap("relu", dilated_longer, 9)),
    Case("dense", "rows repeat after 64", wrap("relu", tile_rows)),
    Case("dense", "rows from 100 on negated", wrap("relu", late_rows)),
    Case("dense", "last row doubled", wrap("relu", last_row_doubled)),
    Case(
        "dense", "first row is zeros", wrap("relu", lambda p, v: p.Pad(slices(p, v, 1, END, 0), [1, 0, 0, 0]))
    ),
    Case("dense", "rows reversed", wrap("relu", lambda p, v: p.Slice(v, [-1], [-END], [0], [-1]))),
    Case("dense", "sums over the rows before", wrap("relu", lambda p, v: p.CumSum(v, int64(0)))),
    Case("dense", "order of the transposed rows", wrap("relu", reordered, 64)),
    Case("dense", "images transposed", wrap("mul", transpose, 0, 1, 3, 2)),
    Case(
        "dense",
        "ones beyond 100 counted by NonZero",
        wrap(
            "relu",
            lambda p, v: add_size(
                p, v, p.Sub(p.Max(p.Shape(p.NonZero(ones_of_rows(p)), start=1, end=2), [100]), [100])
            ),
        ),
    ),
    Case(
        "dense",
        "last row number beyond 50",
        wrap(
            "relu",
            lambda p, v: add_size(p, v, p.Sub(p.Max(p.ReduceMax(row_numbers(p), keepdims=1), [50]), [50])),
        ),
    ),
    Case(
        "dense",
        "sum of ones is 11",
        wrap("relu", lambda p, v: add_size(p, v, p.Equal(p.ReduceSum(ones_of_rows(p), keepdims=1), [11]))),
    ),
    Case(
        "dense",
        "rows modulo 11 are 0",
        wrap("relu", lambda p, v: add_size(p, v, p.Equal(p.Mod(p.size(), [11]), [0]))),
    ),
    Case(
        "dense",
        "hundreds of rows by Size",
        wrap("relu", lambda p, v: add_size(p, v, p.Div(p.Size(v), int64(6400)))),
    ),
    Case(
        "dense",
        "row of a number that depends on the rows",
        wrap(
            "relu",
            lambda p, v: p.Add(v, p.Sub(p.Gather(v, p.Max(p.Sub(p.size(), [50]), [0])), p.Gather(v, [0]))),
        ),
    ),
    Case(
        "dense",
        "row numbers clipped to 40",
        wrap("relu", lambda p, v: p.Gather(v, p.Min(row_numbers(p), int64(40)), axis=0)),
    ),
    Case(
        "dense",
        "a loop with a step for 20 rows",
        wrap(
            "relu", lambda p, v: p.loop(p.Squeeze(p.Div(p.size(), [20])), v, lambda state: p.Mul(state, 2.0))
        ),
    ),
    Case(
        "dense",
        "a branch for more than 20 rows",
        wrap(
            "relu",
            lambda p, v: p.branch(p.Greater(p.size(), [20]), lambda w: p.Mul(w, 2.0), p.Identity, v),
        ),
    ),
    Case("dense", "rows cast through int8", wrap("relu", scaled_by_cast_rows, INT8)),
    Case("dense", "rows of zeros from 40 rows on", wrap("relu", pads_of_rows, 40)),
    Case(
        "dense",
        "EyeLike 10 off the diagonal",
        wrap(
            "relu",
            lambda p, v: p.Add(
                v, p.MatMul(p.EyeLike(p.ConstantOfShape(p.Concat(p.size(), p.size(), axis=0)), k=10), v)
            ),
        ),
    ),
    Case("dense", "a batch of 3 declared", lambda p: setattr(p["x"], "shape", ir.Shape([3, 1, 8, 8]))),
    Case("chars", "ids clipped to 28", feed("embedding", 1, ids_by("Min", 28))),
    Case("chars", "ids clipped from 1", feed("embedding", 1, ids_by("Max", 1))),
    Case("chars", "ids modulo 29", feed("embedding", 1, ids_by("Mod", 29))),
    Case("chars", "ids negated", feed("embedding", 1, lambda p, v: p.Neg(v))),
    Case("chars", "ids shifted", feed("embedding", 1, ids_by("Sub", 1))),
    Case("chars", "odd ids rounded down", feed("embedding", 1, lambda p, v: p.Mul(p.Div(v, [2]), [2]))),
    Case(
        "chars",
        "id 17 is 18",
        feed("embedding", 1, lambda p, v: p.Add(v, p.Cast(p.Equal(v, [17]), to=INT64))),
    ),
    Case(
        "chars",
        "ids of a row sorted",
        feed("embedding", 1, lambda p, v: p.add("TopK", 2, v, p.size(1), axis=1)[0]),
    ),
    Case("chars", "pads 2 and 0", attribute("conv1d", pads=[2, 0])),
    Case("chars", "pads 0 and 2", attribute("conv1d", pads=[0, 2])),
    Case("chars", "dilation 2", attribute("conv1d", pads=[2, 2], dilations=[2])),
    Case("chars", "maximum of the first 100 steps", feed("amax", 0, slices, 0, 100, 2)),
    Case("chars", "maximum of the last 100 steps", feed("amax", 0, slices, -100, END, 2)),
    Case("chars", "maximum without the first step", feed("amax", 0, zero_first_step)),
    Case("chars", "the step 50 before added", wrap("relu", delayed, 50, 2, 3)),
    Case("chars", "steps from 200 on doubled", wrap("relu", double_after, 200, 2)),
    Case("chars", "kernel reversed", weight("conv.weight", lambda a: a[:, :, ::-1].copy())),
    Case("chars", "channels of the kernel swapped", weight("conv.weight", lambda a: a.swapaxes(0, 1).copy())),
    Case("chars", "embedding one row up", weight("embed.weight", lambda a: np.roll(a, 1, 0))),
    Case(
        "chars", "last rows of the embedding swapped", weight("embed.weight", lambda a: swap_rows(a, 28, 29))
    ),
    Case("lstm", "first step answered", constant("select", 1, int64(0))),
    Case("lstm", "first step answered after 30", feed("select", 1, step_is_first)),
    Case("lstm", "step at most 100", feed("slice_1", 0, slices, 0, 100, 1)),
    Case("lstm", "runs backwards", attribute("val_66", direction="reverse")),
    Case("lstm", "output and forget gate swapped", swap("val_40", 1, 2)),
    Case(
        "lstm",
        "recurrent weights transposed",
        feed(
            "val_31", 0, lambda p, v: p.Reshape(p.Transpose(p.Reshape(v, [4, 4, 4]), perm=[0, 2, 1]), [16, 4])
        ),
    ),
    Case("lstm", "starts with ones", constant("zeros", 0, 1.0)),
    Case("lstm", "cell starts with 1e-30", constant("zeros_1", 0, 1e-30)),
    Case("lstm", "at most 100 steps", feed("val_66", 0, slices, 0, 100, 0)),
    Case("lstm", "lengths of at most 50", limit_lengths("val_66", 50)),
    Case(
        "lstm",
        "biases one unit on",
        feed("val_65", 0, lambda p, v: p.Concat(slices(p, v, 31, 32, 0), slices(p, v, 0, 31, 0), axis=0)),
    ),
    Case("attention", "positions from 1", positions(1)),
    Case(
        "attention",
        "positions reversed",
        wrap("embedding_1", lambda p, v: p.Slice(v, [-1], [-END], [0], [-1])),
    ),
    Case(
        "attention",
        "position 5 is 4",
        wrap(
            "embedding_1", lambda p, v: p.Gather(p["position.weight"], np.array([0, 1, 2, 3, 4, 4]), axis=0)
        ),
    ),
    Case("attention", "queries are keys", use("view", 0, "split_split_1")),
    Case(
        "attention",
        "heads and widths transposed",
        feed(
            "view",
            0,
            lambda p, v: p.Reshape(p.Transpose(p.Reshape(v, [0, 0, 4, 2]), perm=[0, 1, 3, 2]), [0, 0, 8]),
        ),
    ),
    Case(
        "attention",
        "mask sees one step ahead",
        feed("bitwise_or", 0, lambda p, v: p.constant(np.triu(np.ones((6, 6), bool), 2))),
    ),
    Case(
        "attention",
        "mask hides the present",
        feed("bitwise_or", 0, lambda p, v: p.constant(np.triu(np.ones((6, 6), bool), 0))),
    ),
    Case("attention", "mask transposed", feed("bitwise_or", 0, transpose, 1, 0)),
    Case("attention", "padding masks queries", feed("bitwise_or", 1, transpose, 0, 1, 3, 2)),
    Case("attention", "padding is id 1", constant("eq_16", 1, int64(1))),
    Case("attention", "all masked from 17 rows on", wrap("bitwise_or", mask_by_size)),
    Case("attention", "ids clipped to 18", feed("embedding", 1, ids_by("Min", 18))),
    Case(
        "attention",
        "mask of the row before",
        feed(
            "bitwise_or",
            1,
            lambda p, v: p.Slice(p.Concat(slices(p, v, -1, END, 0), v, axis=0), [0], p.size(), [0]),
        ),
    ),
    Case("attention", "mask of every row is that of row 0", feed("bitwise_or", 1, slices, 0, 1, 0)),
    Case("square", "activations not transposed", attribute("transpose", perm=[0, 1, 2])),
    Case("square", "scale along the wrong axis", feed("mul", 1, lambda p, v: p.Unsqueeze(v, [1]))),
    Case("square", "blocks not permuted", attribute("permute", perm=[0, 1, 2, 3])),
    Case("square", "softmax over the last axis", attribute("softmax", axis=2)),
    Case("square", "softmax over the rows", attribute("softmax", axis=0)),
    Case("square", "product from the other side", swap("output", 0, 1)),
    Case("square", "bias along the wrong axis", feed("linear", 1, lambda p, v: p.Unsqueeze(v, [1]))),
    Case(
        "square",
        "reshaped in another order",
        feed("reshape", 0, lambda p, v: p.Reshape(transpose(p, v, 0, 2, 1), [0, 4, 4])),
    ),
    Case("square", "rows and blocks of equal size", feed("reshape_1", 0, transpose, 0, 2, 1, 3)),
    Case("running", "sums without the step itself", attribute("cumsum", exclusive=1)),
    Case("running", "sums from the end", attribute("cumsum", reverse=1)),
    Case("running", "sums over the rows", constant("cumsum", 1, int64(0))),
    Case("running", "pad at the end", constant("pad", 1, [0, 0, 0, 0, 1, 0])),
    Case("running", "flip without the first step", constant("flip", 2, [0])),
    Case("running", "flip of the rows", lambda p: p.feed("flip", 3, [0])),
    Case(
        "running",
        "divided by the rows",
        feed("scalar_tensor_default", 0, lambda p, v: p.Squeeze(p.size(0))),
    ),
    Case(
        "running",
        "divided by at most 100",
        feed("scalar_tensor_default", 0, lambda p, v: p.Min(v, int64(100))),
    ),
    Case(
        "running",
        "length cast through int8",
        feed("scalar_tensor_default", 0, lambda p, v: p.Cast(v, to=INT8)),
    ),
    Case("running", "first 500 steps shifted", feed("add_1", 1, double_after, 500, 1)),
    Case("running", "steps from 3 on doubled", feed("add_1", 1, double_after, 3, 1)),
    Case(
        "running",
        "flip of 128 steps at most",
        feed(
            "flip",
            0,
            lambda p, v: p.Concat(p.Mul(slices(p, v, 0, -128, 1), 0.5), slices(p, v, -128, END, 1), axis=1),
        ),
    ),
    Case("one hot", "ids modulo 11", constant("remainder", 1, int64(11))),
    Case("one hot", "C remainder", attribute("remainder", fmod=1)),
    Case(
        "one hot",
        "ids cast through float32",
        feed("mul", 0, lambda p, v: p.Cast(p.Cast(v, to=FLOAT), to=INT64)),
    ),
    Case(
        "one hot", "ids cast through int8", feed("mul", 0, lambda p, v: p.Cast(p.Cast(v, to=INT8), to=INT64))
    ),
    Case("one hot", "ids made positive", feed("mul", 0, lambda p, v: p.Abs(v))),
    Case("one hot", "class 11 never hot", constant("eq_12", 1, np.array([*range(11), 12]))),
    Case("one hot", "sum over the first 90 steps", feed("sum_1", 0, slices, 0, 90, 1)),
    Case("one hot", "ids clipped to a million", feed("mul", 0, ids_by("Min", 10**6))),
    Case("one hot", "factor 6", constant("mul", 1, int64(6))),
    Case(
        "sizes",
        "divided by the rows alone",
        feed("scalar_tensor_default", 0, lambda p, v: p.Squeeze(p.size())),
    ),
    Case(
        "sizes",
        "divided by the larger of both products",
        feed("scalar_tensor_default", 0, lambda p, v: p.Min(v, int64(200))),
    ),
    Case(
        "sizes",
        "rows and steps swapped",
        feed("reshape", 0, lambda p, v: p.Reshape(transpose(p, v, 1, 0, 2), p.Shape(v))),
    ),
    Case(
        "sizes",
        "lengths from 70 on",
        feed("scalar_tensor_default", 0, lambda p, v: p.Add(v, p.Div(p.Squeeze(p.size(1)), int64(70)))),
    ),
    Case(
        "branches",
        "branch by the rows",
        feed("output", 0, lambda p, v: p.Or(v, p.Squeeze(p.Greater(p.size(), [15])))),
    ),
    Case("branches", "branch by the sum of the first 32 rows", feed("sum_1", 0, slices, 0, 32, 0)),
    Case("branches", "branch by the first column", feed("sum_1", 0, slices, 0, 1, 1)),
    Case("loop", "one step fewer", scanned(0, -1)),
    Case("loop", "first step skipped", scanned(1, END)),
    Case("loop", "at most 80 steps", scanned(0, 80)),
    Case("loop", "mean of the first 64 steps", feed("output", 0, slices, 0, 64, 1)),
    Case(
        "running",
        "length cast through uint8",
        feed("scalar_tensor_default", 0, lambda p, v: p.Cast(v, to=2)),
    ),
    Case(
        "one hot",
        "ids multiplied and divided by 2^40",
        feed("mul", 0, lambda p, v: p.Div(p.Mul(v, int64(2**40)), int64(2**40))),
    ),
    Case(
        "one hot", "ids cast through uint16", feed("mul", 0, lambda p, v: p.Cast(p.Cast(v, to=4), to=INT64))
    ),
    Case("one hot", "ids from -2^40 on", feed("mul", 0, ids_by("Max", -(2**40)))),
    Case("cell", "inputs swapped by name", renamed("h", "c")),
    Case(
        "cell",
        "inputs swapped in order and use",
        lambda p: (p.feed("cat", 1, p["c"]), p.feed("cat_1", 1, p["h"]), p.feed("mul_1", 1, p["h"])),
    ),
]


@pytest.mark.parametrize("case", parameters(FAULTS))
def test_a_planted_fault_is_not_identical(case: Case) -> None:
    decision = decided(case)
    assert decision.verdict is not Verdict.IDENTICAL, decision
