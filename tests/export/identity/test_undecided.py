"""What hides a fault from the sizes, numbers and positions of a run: each defence, in the smallest graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from tests.export.identity.planting import Array, Operand, Plant
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, InputShape, Verdict
from turnpike.export.identity.numbers.residues import Residues
from turnpike.export.identity.onnx.run_graph import run_graph

Build = Callable[[Plant, ir.Value], ir.Value]
SHAPES = [[InputShape(np.dtype(np.float32), (rows, 4))] for rows in (1, 5, 3)]
END = 2**63 - 1


def graph(build: Build) -> ir.Model:
    """A graph that answers what `build` computes from x, and has a lever."""
    x = ir.Value(name="x", shape=ir.Shape(["batch", 4]), type=ir.TensorType(ir.DataType.FLOAT))
    relu = ir.node("Relu", [x])
    answer = ir.node("Identity", [relu.outputs[0]])
    for value, name in ((relu.outputs[0], "relu"), (answer.outputs[0], "answer")):
        value.name, value.shape, value.type = name, x.shape, x.type
    body = ir.Graph([x], answer.outputs, nodes=[relu, answer], opset_imports={"": 20}, name="graph")
    model = ir.Model(body, ir_version=10)
    plant = Plant(model)
    lever = ir.Value(name="lever", const_value=ir.tensor(np.ones(4, np.float32), name="lever"))
    lever.shape, lever.type = ir.Shape([4]), x.type
    body.register_initializer(lever)
    body.inputs.append(lever)
    plant.wrap("relu", lambda v: build(plant, plant.Add(v, lever)))
    return model


def plain(p: Plant, v: ir.Value) -> ir.Value:
    return v


def decided(build: Build) -> Decision:
    return decide(graph(plain), graph(build), SHAPES)


def ones(p: Plant, dtype: type = np.int64) -> ir.Value:
    return p.ConstantOfShape(p.size(), value=ir.tensor(np.ones(1, dtype)))


def count(p: Plant, limit: Operand = None) -> ir.Value:
    rows = p.Squeeze(p.size()) if limit is None else limit
    return p.Range(np.array(0, np.int64), rows, np.array(1, np.int64))


def added(p: Plant, v: ir.Value, number: ir.Value) -> ir.Value:
    """A value plus 1 where a condition on integers holds."""
    return p.Add(v, p.Cast(number, to=1))


def triangle(p: Plant, v: ir.Value, diagonal: int) -> ir.Value:
    pairs = p.ConstantOfShape(p.Concat(p.size(), p.size(), axis=0), value=ir.tensor(np.ones(1, np.float32)))
    return p.Add(v, p.MatMul(p.Trilu(pairs, np.array(diagonal, np.int64), upper=1), v))


def counted(p: Plant, v: ir.Value) -> ir.Value:
    """Adds 1 if a loop over the rows has 40 steps or more."""
    zero = p.constant(np.array(0, np.int64))
    steps = p.loop(p.Squeeze(p.size()), zero, lambda state: p.Add(state, np.array(1, np.int64)))
    return added(p, v, p.GreaterOrEqual(steps, np.array(40, np.int64)))


def row_table(p: Plant, v: ir.Value) -> ir.Value:
    """Adds 1 to the rows from 50 on, by a table of zeros and ones."""
    table = np.repeat(np.array([0, 1], np.float32), 50)[:, None]
    return p.Add(v, p.Slice(table, [0], p.size(), [0]))


def row_table_by_ids(p: Plant, v: ir.Value) -> ir.Value:
    return p.Add(v, p.Gather(np.repeat(np.array([0, 1], np.float32), 50)[:, None], count(p)))


def wide(p: Plant, v: ir.Value) -> ir.Value:
    """Each row plus the row 9 after it."""
    rows = p.Unsqueeze(p.Transpose(v, perm=[1, 0]), [1])
    kernel = np.array([[[0, 1, 1]]], np.float32)
    mixed = p.Conv(rows, kernel, dilations=[9], pads=[9, 9], kernel_shape=[3])
    return p.Transpose(p.Squeeze(mixed, [1]), perm=[1, 0])


def delayed(p: Plant, v: ir.Value) -> ir.Value:
    """Each row plus the row 9 before it."""
    return p.Add(v, p.Slice(p.Pad(v, [9, 0, 0, 0]), [0], p.size(), [0]))


def counted_roots(p: Plant, v: ir.Value) -> ir.Value:
    """Adds a polynomial in the number of rows that is 0 for up to 5 of them."""
    total = p.ReduceSum(ones(p), keepdims=1)
    product = total
    for root in range(1, 6):
        product = p.Mul(product, p.Sub(total, [root]))
    return added(p, v, product)


SIZE_FAULTS: dict[str, Build] = {
    "rows from 100 on": lambda p, v: p.Add(
        v, p.Cast(p.Unsqueeze(p.GreaterOrEqual(count(p), [100]), [1]), to=1)
    ),
    "positions up to 40": lambda p, v: p.Gather(v, p.Min(count(p), np.array(40, np.int64))),
    "sum of ones": lambda p, v: added(p, v, p.Equal(p.ReduceSum(ones(p), keepdims=1), [11])),
    "polynomial in a sum of ones": counted_roots,
    "running sum of ones": lambda p, v: added(
        p, v, p.Unsqueeze(p.Equal(p.CumSum(ones(p), np.array(0, np.int64)), [11]), [1])
    ),
    "largest position": lambda p, v: added(p, v, p.Greater(p.ReduceMax(count(p), keepdims=1), [50])),
    "size of ones": lambda p, v: added(p, v, p.Greater(p.Shape(ones(p)), [50])),
    "size of float ones": lambda p, v: added(p, v, p.Greater(p.Shape(ones(p, np.float32)), [50])),
    "size through int8": lambda p, v: added(
        p, v, p.Sub(p.Cast(p.Cast(p.size(), to=3), to=1), p.Cast(p.size(), to=1))
    ),
    "far diagonal": lambda p, v: triangle(p, v, 9),
    "wide convolution": wide,
    "far pad": delayed,
    "steps of a loop": counted,
    "table cut by size": row_table,
    "table read at positions": row_table_by_ids,
}


@pytest.mark.parametrize("name", SIZE_FAULTS)
def test_what_larger_sizes_alone_show_is_not_decided(name: str) -> None:
    decision = decided(SIZE_FAULTS[name])
    assert decision.verdict is Verdict.NOT_DECIDED, decision
    assert decision.reason is not None
    assert "sizes" in decision.reason or "bound" in decision.reason, decision


@pytest.mark.parametrize("name", SIZE_FAULTS)
def test_a_reference_may_have_it(name: str) -> None:
    decision = decide(graph(SIZE_FAULTS[name]), graph(SIZE_FAULTS[name]), SHAPES)
    assert decision.verdict is Verdict.IDENTICAL, decision


def number(value: float) -> Array:
    return np.array(value, np.float32)


NOT_FINITE: dict[str, Build] = {
    "Log": lambda p, v: p.Log(number(-1)),
    "Sqrt": lambda p, v: p.Sqrt(p.Sub(number(1), number(2))),
    "Reciprocal": lambda p, v: p.Reciprocal(number(0)),
    "Div": lambda p, v: p.Div(number(1), number(0)),
}


@pytest.mark.parametrize("operator", NOT_FINITE)
def test_a_constant_that_is_not_finite_is_not_decided(operator: str) -> None:
    """The field has a number for it, which a product with 0 drops."""
    build: Build = lambda p, v: p.Add(v, p.Mul(NOT_FINITE[operator](p, v), 0.0))  # noqa: E731
    decision = decided(build)
    assert decision.verdict is Verdict.NOT_DECIDED, decision
    assert f"= {operator}: a constant that is not finite" in str(decision)
    assert decide(graph(build), graph(build), SHAPES).verdict is Verdict.IDENTICAL


NEVER_FINITE: dict[str, Build] = {
    "a product with an infinity": lambda p, v: p.Add(v, p.Mul(p.Mul(v, 0.0), float("inf"))),
    "a division by a value that is always 0": lambda p, v: p.Add(v, p.Div(p.Sub(v, v), p.Mul(v, 0.0))),
}


@pytest.mark.parametrize("what", NEVER_FINITE)
def test_a_value_that_is_never_finite_is_not_decided(what: str) -> None:
    assert what in str(decided(NEVER_FINITE[what]))
    build = NEVER_FINITE[what]
    assert decide(graph(build), graph(build), SHAPES).verdict is Verdict.IDENTICAL


def test_a_degree_that_is_too_large_for_the_bound_is_not_decided() -> None:
    def squared(p: Plant, v: ir.Value, times: int) -> ir.Value:
        for _ in range(times):
            v = p.Mul(v, v)
        return v

    for times, verdict in ((5, Verdict.IDENTICAL), (20, Verdict.NOT_DECIDED), (2000, Verdict.NOT_DECIDED)):
        model = graph(lambda p, v, times=times: squared(p, v, times))  # type: ignore[misc]
        decision = decide(model, model.clone(), SHAPES)
        assert decision.verdict is verdict, (times, decision)
        if verdict is Verdict.NOT_DECIDED:
            assert str(decision).startswith("not decided: the programs are too large: the chance of an error")


@pytest.mark.parametrize(
    "build",
    [
        lambda p, v: p.Expand(v, [2**40, 1, 1]),
        lambda p, v: p.Tile(v, [2**40, 1]),
        lambda p, v: p.ConstantOfShape([2**40]),
    ],
    ids=["Expand", "Tile", "ConstantOfShape"],
)
def test_more_numbers_than_memory_holds_are_not_decided(build: Build) -> None:
    assert "expected at most 134,217,728 computed numbers, got " in str(decided(build))


def test_a_run_counts_all_numbers_that_it_computes() -> None:
    algebra = Algebra(Residues())
    x = algebra.term(np.ones((3, 4), np.float32))
    # the sum with the lever, and the answer
    run_graph(graph(plain), algebra, [x], max_elements=36)
    with pytest.raises(UndecidedError, match="expected at most 35 computed numbers, got 36"):
        run_graph(graph(plain), algebra, [x], max_elements=35)


# ---- the interface


def interface(change: Callable[[Plant], object]) -> str:
    trusted = graph(plain)
    model = trusted.clone()
    change(Plant(model))
    return str(decide(trusted, model, SHAPES, trusted=trusted))


def test_names_dtypes_and_defaults_are_those_of_the_trusted_graph() -> None:
    double = ir.TensorType(ir.DataType.DOUBLE)
    assert interface(lambda p: None).startswith("identical")
    assert (
        interface(lambda p: setattr(p["x"], "name", "y"))
        == "different: inputs[0]: expected x (FLOAT), got y (FLOAT)"
    )
    assert (
        interface(lambda p: setattr(p["x"], "type", double))
        == "different: inputs[0]: expected x (FLOAT), got x (DOUBLE)"
    )
    assert (
        interface(lambda p: setattr(p["answer"], "name", "y"))
        == "different: outputs[0]: expected answer (FLOAT), got y (FLOAT)"
    )
    assert (
        interface(lambda p: setattr(p["answer"], "type", double))
        == "different: outputs[0]: expected answer (FLOAT), got answer (DOUBLE)"
    )
    assert (
        interface(lambda p: p.model.graph.inputs.pop())
        == "different: levers[0]: expected lever (FLOAT), got none"
    )
    assert (
        interface(lambda p: p.weight("lever", lambda array: array * 2))
        == "different: the default of the lever lever"
    )
    assert "the input x has the shape [3,4], expected [batch,4]" in interface(
        lambda p: setattr(p["x"], "shape", ir.Shape([3, 4]))
    )
