"""Tests of the gate reader, against sums by hand and against NumPy in float64."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.support.gate_arrays import Dims, f32, gate, random_gates, signature
from turnpike.service.artifact.manifest import Gate
from turnpike.service.codec.gates_response import JsonSummaries
from turnpike.service.errors import NotFiniteError, expect_finite
from turnpike.service.gates.reader import DEFAULT_LEVELS, GateReader, unit_statistics
from turnpike.service.gates.statistics import MAX_FLOAT_SORT

Array = np.ndarray[Any, np.dtype[Any]]


def read(
    gates: list[Gate],
    arrays: dict[str, Array],
    rows: int,
    *,
    dims: Dims = ("batch", 2),
    splittable: frozenset[str] = frozenset(),
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The gates and the route of a summary."""
    reader = GateReader(gates, signature(dict.fromkeys(arrays, dims), splittable), None, JsonSummaries)
    assert set(reader.output_names) == set(arrays)
    (summary,) = reader.process(arrays, rows)
    summaries, route = map(json.loads, expect_finite(summary))
    return summaries, route


def test_a_response_worked_out_by_hand() -> None:
    """Two rows, three layers, two units: every number of the response."""
    arrays = {
        "a": f32([0.5, 1.0], [0.0, 0.0]),
        "b": f32([0.25, 0.5], [0.004, 0.0]),
        "c": f32([0.0, 0.0], [0.75, 0.25]),
    }
    gates, route = read([gate(name, n) for n, name in enumerate("abc")], arrays, 2)
    assert gates[0] == {
        "name": "a",
        "layer": 0,
        "kind": "coupled",
        "carry": "identity",
        "units": 2,
        "mean": 0.375,
        "sd": pytest.approx(0.414578, abs=1e-6),
        "quantiles": {"0.01": 0, "0.05": 0, "0.25": 0, "0.5": 0, "0.75": 0.5, "0.95": 1, "0.99": 1},
        "closed": 0.5,
        "open": 0.25,
        "carried": 0.625,
    }
    assert [gate["mean"] for gate in gates] == pytest.approx([0.375, 0.1885, 0.25])
    assert [gate["closed"] for gate in gates] == [0.5, 0.5, 0.5]
    assert route["per"] == "row"
    assert route["layers"] == 3
    # (0.5 * 0.75 * 1 + 0 * 0.5 * 1) / 2 and (1 * 0.996 * 0.25 + 1 * 1 * 0.75) / 2
    assert route["carried"] == pytest.approx([0.1875, 0.4995])
    assert route["effective_depth"] == pytest.approx([0.75 + 0.375 + 0, 0 + 0.002 + 0.5])
    assert route["longest_closed"] == [1, 2]


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_statistics_equal_those_of_double_precision(rows: int) -> None:
    """Quantiles of few and of many values are computed in different ways."""
    arrays = {f"g{n}": random_gates(rows, 9, seed=n) for n in range(4)}
    gates, route = read([gate(name, n) for n, name in enumerate(arrays)], arrays, rows, dims=("batch", 9))
    assert (rows * 9 > MAX_FLOAT_SORT) == (rows == 300)
    for summary, t in zip(gates, arrays.values(), strict=True):
        exact = t.astype(np.float64)
        assert summary["mean"] == pytest.approx(exact.mean(), abs=2e-6)
        assert summary["sd"] == pytest.approx(exact.std(), abs=2e-6)
        assert summary["closed"] == pytest.approx((exact < 0.01).mean(), abs=1e-6)
        assert summary["open"] == pytest.approx((exact > 0.99).mean(), abs=1e-6)
        assert summary["carried"] == pytest.approx((1 - exact).mean(), abs=2e-6)
        quantiles = np.quantile(exact, DEFAULT_LEVELS, method="inverted_cdf")
        assert list(summary["quantiles"].values()) == pytest.approx(quantiles.tolist(), abs=1e-5)
    every = np.stack([t.astype(np.float64) for t in arrays.values()])
    assert route["carried"] == pytest.approx((1 - every).prod(0).mean(1).tolist(), abs=1e-6)
    assert route["effective_depth"] == pytest.approx(every.mean(2).sum(0).tolist(), abs=1e-5)


def test_gates_at_zero_and_one_are_exact() -> None:
    for rows in (1, 400):
        (shut, wide), _ = read(
            [gate("a", 0), gate("b", 1)],
            {"a": np.zeros((rows, 2), "f4"), "b": np.ones((rows, 2), "f4")},
            rows,
        )
        assert set(shut["quantiles"].values()) == {0.0}
        assert set(wide["quantiles"].values()) == {1.0}
        assert (shut["closed"], wide["open"], shut["sd"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("dims", "shape", "axis"),
    [
        (("batch", 3, "h", "w"), (5, 3, 2, 4), 0),
        (("steps", "batch", 3), (4, 5, 3), 1),
        ((2, 3, "batch"), (2, 3, 5), 2),
    ],
)
def test_the_route_is_per_row_whatever_the_row_axis(dims: Dims, shape: tuple[int, ...], axis: int) -> None:
    """Pixels and steps belong to their row, whatever its axis."""
    arrays = {"a": random_gates(*shape), "b": random_gates(*shape, seed=1)}
    _, route = read([gate("a", 0), gate("b", 1)], arrays, 5, dims=dims)
    every = np.moveaxis(np.stack([arrays["a"], arrays["b"]]), axis + 1, 1).reshape(2, 5, -1)
    assert route["per"] == "row"
    assert route["carried"] == pytest.approx((1 - every).prod(0).mean(1).tolist(), abs=1e-6)
    assert route["effective_depth"] == pytest.approx(every.mean(2).sum(0).tolist(), abs=1e-6)


def test_splittable_outputs_give_a_route_per_row() -> None:
    """Words of one row follow one another if the probe found the output splittable."""
    t = random_gates(6, 2)
    dims: Dims = ("words*batch", 2)
    _, route = read([gate("a", 0)], {"a": t}, 3, dims=dims, splittable=frozenset({"a"}))
    assert route["effective_depth"] == pytest.approx(t.reshape(3, 4).mean(1).tolist())


def test_unsplittable_outputs_give_a_route_per_request() -> None:
    """The route of a single row is that of the row."""
    t = random_gates(6, 2)
    gates, route = read([gate("a", 0)], {"a": t}, 3, dims=("words*batch", 2))
    assert route["per"] == "request"
    assert route["effective_depth"] == pytest.approx([t.mean()])
    assert gates[0]["mean"] == pytest.approx(t.mean(), abs=1e-6)
    _, route = read([gate("a", 0)], {"a": t}, 1, dims=("words*batch", 2))
    assert route["per"] == "row"


def test_gates_of_several_widths_keep_their_order() -> None:
    """Layers of equal width are summarized together, but the response keeps the order of the layers."""
    shapes = {"a": (4, 2), "b": (4, 5), "c": (4, 2), "d": (4, 5)}
    arrays = {name: random_gates(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}
    gates, route = read([gate(name, n) for n, name in enumerate(arrays)], arrays, 4, dims=("batch", "n"))
    assert [gate["name"] for gate in gates] == list("abcd")
    assert [gate["mean"] for gate in gates] == pytest.approx([t.mean() for t in arrays.values()], abs=1e-6)
    narrow = ((1 - arrays["a"]) * (1 - arrays["c"])).mean(1)
    wide = ((1 - arrays["b"]) * (1 - arrays["d"])).mean(1)
    assert route["carried"] == pytest.approx((narrow * wide).tolist(), abs=1e-6)
    means = np.stack([t.mean(1) for t in arrays.values()])
    assert route["effective_depth"] == pytest.approx(means.sum(0).tolist(), abs=1e-6)


def test_recurrent_layers_count_once() -> None:
    """Two layers of two depths count as four layers, and `carried` is the mean over three steps."""
    places = [(layer, depth, time) for time in range(3) for layer in range(2) for depth in range(2)]
    arrays = {
        f"{layer}.{depth}.{time}": random_gates(5, 2, seed=n) for n, (layer, depth, time) in enumerate(places)
    }
    gates = [gate(name, int(name[0]), depth=int(name[2]), time=int(name[4])) for name in arrays]
    summaries, route = read(gates, arrays, 5)
    assert route["layers"] == 4
    every = np.stack(list(arrays.values())).reshape(3, 4, 5, 2)
    assert route["effective_depth"] == pytest.approx(every.mean((0, 3)).sum(0).tolist(), abs=1e-6)
    assert route["carried"] == pytest.approx((1 - every).prod(1).mean((0, 2)).tolist(), abs=1e-6)
    assert (summaries[5]["layer"], summaries[5]["depth"], summaries[5]["time"]) == (0, 1, 1)


def test_steps_may_be_in_any_order() -> None:
    """Gates in the file need not be sorted by time step."""
    arrays = {name: random_gates(3, 2, seed=n) for n, name in enumerate(("0.0", "0.1", "1.0", "1.1"))}
    gates = [gate(name, int(name[0]), time=int(name[2])) for name in arrays]
    _, route = read(gates, arrays, 3)
    first = (1 - arrays["0.0"]) * (1 - arrays["1.0"])
    second = (1 - arrays["0.1"]) * (1 - arrays["1.1"])
    assert route["carried"] == pytest.approx(((first + second) / 2).mean(1).tolist(), abs=1e-6)


def test_layers_with_and_without_steps_are_combined() -> None:
    arrays = {name: random_gates(3, 2, seed=n) for n, name in enumerate(("plain", "0", "1"))}
    gates = [gate("plain", 0), gate("0", 1, time=0), gate("1", 1, time=1)]
    _, route = read(gates, arrays, 3)
    steps = ((1 - arrays["0"]) + (1 - arrays["1"])).mean(1) / 2
    assert route["layers"] == 2
    assert route["carried"] == pytest.approx(((1 - arrays["plain"]).mean(1) * steps).tolist(), abs=1e-6)


@pytest.mark.parametrize("carry_shape", [(4, 2), (4, 1)])
def test_an_independent_carry_gate_is_read(carry_shape: tuple[int, ...]) -> None:
    """C is read if it is a gate of its own, even if it has one value for all units."""
    arrays = {"t": random_gates(4, 2), "c": random_gates(*carry_shape, seed=9)}
    gates, route = read([gate("t", 0, kind="independent", carry_gate="c")], arrays, 4, dims=("batch", "n"))
    assert gates[0]["carried"] == pytest.approx(arrays["c"].mean(), abs=1e-6)
    assert route["carried"] == pytest.approx(arrays["c"].mean(1).tolist(), abs=1e-6)
    assert gates[0]["mean"] == pytest.approx(arrays["t"].mean(), abs=1e-6)


def test_the_longest_run_of_closed_layers_is_counted() -> None:
    runs = [[1, 1, 0, 1, 0], [0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 1, 1]]
    means = 0.5 * (1 - f32(*runs)).T
    arrays = {f"g{n}": np.repeat(column[:, None], 2, axis=1) for n, column in enumerate(means)}
    _, route = read([gate(name, n) for n, name in enumerate(arrays)], arrays, 5)
    assert route["longest_closed"] == [2, 3, 5, 0, 2]


def test_a_gate_with_nan_is_named() -> None:
    arrays = {"a": random_gates(2, 2), "b": f32([0.5, np.nan], [0.1, 0.2])}
    with pytest.raises(NotFiniteError, match="every gate is a number, got NaN in 'b'"):
        read([gate("a", 0), gate("b", 1)], arrays, 2)


def test_without_rows_statistics_are_null() -> None:
    gates, route = read([gate("100%", 0)], {"100%": np.zeros((0, 2), np.float32)}, 0)
    assert gates[0]["name"] == "100%"
    assert gates[0]["mean"] is gates[0]["quantiles"]["0.5"] is None
    assert route["carried"] == route["effective_depth"] == route["longest_closed"] == []


def test_names_are_escaped_in_json() -> None:
    name = 'größe"%s\\'
    gates, _ = read([gate(name, 0)], {name: random_gates(2, 2)}, 2)
    assert gates[0]["name"] == name


def test_float16_gates_are_summarized_in_float32() -> None:
    """Means of float16 values are computed in float32."""
    t = random_gates(64, 2).astype(np.float16)
    gates, _ = read([gate("a", 0)], {"a": t}, 64)
    assert gates[0]["mean"] == pytest.approx(t.astype(np.float64).mean(), abs=1e-6)


def test_reading_does_not_change_the_arrays() -> None:
    """The arrays are also returned to the client, so reading must not change them."""
    arrays = {"a": random_gates(400, 2), "b": random_gates(400, 2, seed=1)}
    before = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array.setflags(write=False)
    read([gate("a", 0)], {"a": arrays["a"]}, 400)
    read([gate(name, n) for n, name in enumerate(arrays)], arrays, 400)
    assert all((arrays[name] == array).all() for name, array in before.items())


def test_infinite_gates_cause_no_numpy_warning() -> None:
    """Infinity is an error like NaN, and NumPy's warnings are not logged."""
    for width in (2, MAX_FLOAT_SORT + 1):
        t = np.full((1, width), np.inf, np.float32)
        with pytest.raises(NotFiniteError, match="got NaN in 'a'"):
            read([gate("a", 0)], {"a": t}, 1, dims=("batch", width))


def test_unit_statistics_worked_out_by_hand() -> None:
    t = f32([[[0.0, 1.0]], [[0.5, 0.5]]], [[[1.0, 0.0]], [[0.5, 0.5]]])
    mean, sd = unit_statistics(gate("a", 0, unit_axis=-3), t)
    assert mean.tolist() == [0.5, 0.5]
    assert sd.tolist() == [0.5, 0.0]
    assert mean.dtype == np.float32
