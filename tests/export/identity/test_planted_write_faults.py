"""Writes that go elsewhere, combine otherwise or come in another order are never called identical."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tests.export.identity.planting import Plant
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, InputShape, Verdict
from turnpike.export.trace.trace_network import clean_up

Function = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
IDS = torch.tensor([1, 3])
ROWS = 5


class Net(nn.Module):
    """A function of two tensors of (rows, 6), ids of (rows, 2) and a mask of (rows, 6)."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor, n: Tensor, b: Tensor) -> Tensor:
        return self.function(x, y, n, b)


def exported(function: Function) -> tuple[ExportedProgram, ir.Model]:
    inputs = (torch.rand(3, 6), torch.rand(3, 6), torch.zeros(3, 2).long(), torch.rand(3, 6) > 0.5)
    shapes = tuple({0: Dim.DYNAMIC} for _ in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Net(function), inputs, dynamic_shapes=shapes, strict=False)
        graph = torch.onnx.export(program, dynamo=True, opset_version=20, verbose=False, optimize=False)
    assert graph is not None
    assert graph.exported_program is not None
    clean_up(graph.model)
    return graph.exported_program, graph.model


def decided(program: ExportedProgram, model: ir.Model) -> Decision:
    shapes = [
        InputShape(np.dtype(dtype), (ROWS, width))
        for dtype, width in (("float32", 6), ("float32", 6), ("int64", 2), ("bool", 6))
    ]
    return decide(program, model, [shapes])


def written(key: Any, value: Callable[..., Any]) -> Function:
    def function(x: Tensor, y: Tensor, n: Tensor, b: Tensor) -> Tensor:
        x = x.clone()
        x[key] = value(x, y)
        return x

    return function


def in_turn(first: int, second: int) -> Function:
    """Two writes that overlap."""

    def function(x: Tensor, y: Tensor, n: Tensor, b: Tensor) -> Tensor:
        x = x.clone()
        for start in (first, second):
            x[:, start : start + 3] = y[:, :3] * (start + 1)
        return x

    return function


def masked(value: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    def function(x: Tensor, y: Tensor, n: Tensor, b: Tensor) -> Tensor:
        x = x.clone()
        x[b] = value(x, y, b)
        return x

    return function


def rows(value: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Function:
    def function(x: Tensor, y: Tensor, n: Tensor, b: Tensor) -> Tensor:
        x, rows = x.clone(), b[:, 0]
        x[rows] = value(x, y, rows)
        return x

    return function


every = slice(None)
# a function, and functions that are not the same
FAULTS: dict[str, tuple[Function, ...]] = {
    "a slice": (
        written((every, slice(1, 4)), lambda x, y: y[:, :3]),
        written((every, slice(2, 5)), lambda x, y: y[:, :3]),
        written((every, slice(1, 6, 2)), lambda x, y: y[:, :3]),
        written((every, slice(1, 4)), lambda x, y: y[:, 1:4]),
        written((every, slice(1, 4)), lambda x, y: y[:, :3].flip(-1)),
    ),
    "a slice of rows": (
        written((slice(1, None), 0), lambda x, y: y[:-1, 0]),
        written((slice(None, -1), 0), lambda x, y: y[:-1, 0]),
        written((slice(1, None), 1), lambda x, y: y[:-1, 0]),
    ),
    "a column": (
        written((every, 2), lambda x, y: y[:, 0]),
        written((every, -2), lambda x, y: y[:, 0]),
        written((every, 2), lambda x, y: 0.0),
    ),
    "the order of writes": (in_turn(0, 2), in_turn(2, 0)),
    "chosen columns": (
        written((every, IDS), lambda x, y: y[:, :2]),
        written((every, IDS.flip(0)), lambda x, y: y[:, :2]),
        written((every, IDS), lambda x, y: x[:, IDS] + y[:, :2]),
        written((every, IDS + 1), lambda x, y: y[:, :2]),
    ),
    "equal ids": (
        lambda x, y, n, b: x.index_add(1, torch.tensor([1, 1, 2]), y[:, :3]),
        lambda x, y, n, b: x.index_add(1, torch.tensor([1, 2, 2]), y[:, :3]),
        lambda x, y, n, b: x.index_add(1, torch.tensor([1, 1, 2]), y[:, :3], alpha=2),
        lambda x, y, n, b: x.index_add(1, torch.tensor([1, 2]), y[:, 1:3]),
    ),
    "ids of the input": (
        lambda x, y, n, b: x.scatter(1, n, y[:, :2]),
        lambda x, y, n, b: x.scatter(1, n.flip(-1), y[:, :2]),
        lambda x, y, n, b: x.scatter(1, n, y[:, 1:3]),
        lambda x, y, n, b: x.scatter_add(1, n, y[:, :2]),
        lambda x, y, n, b: x.scatter(1, n[:, :1], y[:, :1]),
        lambda x, y, n, b: x.scatter(1, n + 1, y[:, :2]),
        # of equal ids, the first one counts
        lambda x, y, n, b: x.scatter(1, n[:, 1:], y[:, 1:2]).scatter(1, n[:, :1], y[:, :1]),
    ),
    "reductions at ids of the input": (
        lambda x, y, n, b: x.scatter_reduce(1, n, y[:, :2], "amax"),
        lambda x, y, n, b: x.scatter_reduce(1, n, y[:, :2], "amin"),
        lambda x, y, n, b: x.scatter_reduce(1, n, y[:, :2], "prod"),
        lambda x, y, n, b: x.scatter_reduce(1, n, y[:, :2], "sum"),
        lambda x, y, n, b: x.scatter(1, n, y[:, :2]),
    ),
    "rows at ids of the input": (
        lambda x, y, n, b: torch.zeros(4, 6).index_add(0, n[:, 0], y),
        lambda x, y, n, b: torch.zeros(4, 6).index_add(0, n[:, 1], y),
        lambda x, y, n, b: torch.zeros(4, 6).index_copy(0, n[:, 0], y),
        lambda x, y, n, b: torch.ones(4, 6).index_add(0, n[:, 0], y),
    ),
    "places at ids of the input": (
        lambda x, y, n, b: x.index_put((n[:, 0], n[:, 1]), y[:, 0]),
        lambda x, y, n, b: x.index_put((n[:, 1], n[:, 0]), y[:, 0]),
        lambda x, y, n, b: x.index_put((n[:, 0], n[:, 1]), y[:, 0], accumulate=True),
        lambda x, y, n, b: x.index_put((torch.arange(x.shape[0]), n[:, 1]), y[:, 0]),
    ),
    "a mask": (
        masked(lambda x, y, b: torch.tensor(2.0)),
        masked(lambda x, y, b: torch.tensor(3.0)),
        lambda x, y, n, b: masked(lambda x, y, b: torch.tensor(2.0))(x, y, n, ~b),
        lambda x, y, n, b: masked(lambda x, y, b: torch.tensor(2.0))(x, y, n, b.flip(-1)),
        lambda x, y, n, b: x * b + 2.0 * ~b,
    ),
    "numbers of a mask": (
        masked(lambda x, y, b: torch.sigmoid(y[b])),
        masked(lambda x, y, b: torch.sigmoid(x[b])),
        masked(lambda x, y, b: torch.tanh(y[b])),
        masked(lambda x, y, b: torch.sigmoid(y[b]) + y[b].sum()),
        lambda x, y, n, b: torch.sigmoid(y),
    ),
    "rows of a mask": (
        rows(lambda x, y, rows: y[rows] @ torch.ones(6, 6).triu()),
        rows(lambda x, y, rows: y[rows] @ torch.ones(6, 6).tril()),
        rows(lambda x, y, rows: y[rows].softmax(-1)),
        rows(lambda x, y, rows: y[rows].mean(0)),
        rows(lambda x, y, rows: y[0]),
    ),
    "sums of a mask": (
        lambda x, y, n, b: x + y[b].sum(),
        lambda x, y, n, b: x + y.sum(),
        lambda x, y, n, b: x + x[b].sum(),
        lambda x, y, n, b: x + y[b].mean(),
        lambda x, y, n, b: x + y[~b].sum(),
    ),
    "numbers in turn": (
        lambda x, y, n, b: x.masked_scatter(b, y),
        lambda x, y, n, b: x.masked_scatter(b, y.flip(0)),
        lambda x, y, n, b: x.masked_scatter(~b, y),
        lambda x, y, n, b: torch.where(b, y, x),
    ),
    "windows": (
        lambda x, y, n, b: fold(x, stride=1),
        lambda x, y, n, b: fold(x, stride=1).flip(-1),
        lambda x, y, n, b: fold(x.flip(-1), stride=1),
    ),
    "a diagonal": (
        lambda x, y, n, b: (x[:, :, None] * y[:, None]).diagonal(0, 1, 2),
        lambda x, y, n, b: (x[:, :, None] * y[:, None]).flip(1).diagonal(0, 1, 2),
        lambda x, y, n, b: (x[:, :, None] * x[:, None]).diagonal(0, 1, 2),
    ),
}


def fold(x: Tensor, stride: int) -> Tensor:
    columns = torch.cat([x, x * 2], -1)[:, :8].view(-1, 4, 2)
    return nn.functional.fold(columns, (2, 3), 2, stride=stride).flatten(1)


@cache
def honest(name: str) -> tuple[ExportedProgram, ir.Model]:
    return exported(FAULTS[name][0])


@pytest.mark.parametrize("name", FAULTS)
def test_an_honest_write_is_identical(name: str) -> None:
    assert decided(*honest(name)).verdict is Verdict.IDENTICAL, decided(*honest(name))


CASES = [(name, number) for name in FAULTS for number in range(1, len(FAULTS[name]))]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_another_write_is_not_identical(name: str, number: int) -> None:
    _, model = exported(FAULTS[name][number])
    decision = decided(honest(name)[0], model)
    assert decision.verdict is not Verdict.IDENTICAL, decision


def answered(p: Plant, change: Callable[[Plant, ir.Value], ir.Value]) -> None:
    output = p.model.graph.outputs[0]
    p.answer(str(output.name), lambda v: change(p, v))


# faults that PyTorch does not write
PLANTED: dict[str, tuple[str, Callable[[Plant, ir.Value], ir.Value]]] = {
    "places compared with a number": (
        "a mask",
        lambda p, v: p.Add(v, p.Cast(p.ReduceMax(p.Greater(p.NonZero(p["b"]), [40])), to=1)),
    ),
    "the number of true places": (
        "a mask",
        lambda p, v: p.Add(v, p.Cast(p.Greater(p.Gather(p.Shape(p.NonZero(p["b"])), [1]), [99]), to=1)),
    ),
    "a write behind all places": (
        "a mask",
        lambda p, v: p.ScatterND(v, p.Transpose(p.NonZero(p["b"]), perm=[1, 0]), p.Expand(2.0, [1])),
    ),
    "a write of other numbers": (
        "a mask",
        lambda p, v: p.ScatterND(
            v,
            p.Transpose(p.NonZero(p["b"]), perm=[1, 0]),
            p.GatherND(p["x"], p.Transpose(p.NonZero(p["b"]), perm=[1, 0])),
        ),
    ),
    "a write to transposed places": (
        "a mask",
        lambda p, v: p.ScatterND(
            v, p.Transpose(p.NonZero(p.Transpose(p["b"], perm=[1, 0])), perm=[1, 0]), p.Expand(2.0, [1])
        ),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_not_identical(name: str) -> None:
    source, change = PLANTED[name]
    program, model = honest(source)
    model = model.clone()
    answered(Plant(model), change)
    decision = decided(program, model)
    assert decision.verdict is not Verdict.IDENTICAL, decision


def chosen_of_table(table: np.ndarray[Any, Any]) -> Callable[[Plant, ir.Value], ir.Value]:
    """The rows of a table at the places of a mask, which are as many as the input has rows."""

    def change(p: Plant, v: ir.Value) -> ir.Value:
        mask = p.Gather(p["b"], np.array(0), axis=1)
        rows = p.Transpose(p.NonZero(mask), perm=[1, 0])
        return p.ScatterND(v, rows, p.GatherND(table, rows))

    return change


def test_a_table_is_not_read_at_the_places_of_a_mask() -> None:
    """Longer inputs would read rows that no run has read."""
    _, model = honest("a mask")
    table = np.random.default_rng(0).random((ROWS + 9, 6)).astype(np.float32)
    first, other = model.clone(), model.clone()
    answered(Plant(first), chosen_of_table(table))
    table = table.copy()
    table[-1] += 1
    answered(Plant(other), chosen_of_table(table))
    shapes = [
        InputShape(np.dtype(kind), (ROWS, width))
        for kind, width in (("f4", 6), ("f4", 6), ("i8", 2), ("?", 6))
    ]
    assert decide(first, other, [shapes]).verdict is not Verdict.IDENTICAL


def test_a_stack_of_products_is_not_a_product_of_chosen_rows() -> None:
    program, _ = honest("rows of a mask")
    _, model = exported(rows(lambda x, y, rows: (y[rows] @ torch.ones(1, 6, 6).triu())[0]))
    assert decided(program, model).verdict is not Verdict.IDENTICAL


def test_a_write_to_the_first_places_alone_is_not_identical() -> None:
    """With numbers for places, a graph could leave out those of longer inputs."""
    program, _ = exported(lambda x, y, n, b: y[:, 0].scatter(0, n[:1, 0], x[:1, 0]))
    _, model = exported(lambda x, y, n, b: y[:, 0].scatter(0, n[:1, 0], x[:1, 0]))
    assert decided(program, model).verdict is Verdict.IDENTICAL
    output = model.graph.outputs[0]
    p = Plant(model)
    first = p.Slice(p["n"], [0], [1], [0])
    hit = p.Equal(p.Reshape(p.Slice(first, [0], [1], [1]), [1]), np.arange(ROWS))
    column = p.Reshape(p.Slice(p["y"], [0], [1], [1]), [-1])
    number = p.Reshape(p.Slice(p.Slice(p["x"], [0], [1], [0]), [0], [1], [1]), [1])
    p.answer(str(output.name), lambda v: p.Where(hit, number, column))
    assert decided(program, model).verdict is not Verdict.IDENTICAL
