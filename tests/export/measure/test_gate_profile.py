"""Gate profiles: statistics of T over rows, compared with plain formulas and a case worked out by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.tiny_highway import highway
from turnpike.export.errors import SourceError
from turnpike.export.measure.gate_profile import EPSILON, FINE_BINS, QUANTILE_LEVELS, profile_gates
from turnpike.export.network import Rows
from turnpike.service.artifact.limits import MAX_ROWS
from turnpike.service.artifact.manifest import Gate
from turnpike.service.artifact.runtime import Runtime, open_model


def rows_of(count: int, inputs: int = 4, seed: int = 1) -> Rows:
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, inputs)).astype(np.float32)
    return Rows({"x": x}, (x[:, 0] > 0).astype(np.int64))


def sigmoid_of(*dims: int | str) -> Runtime:
    """A graph whose one gate is the sigmoid of its input, so that a test can choose every T."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    t = helper.make_tensor_value_info("t", TensorProto.FLOAT, dims)
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["t"])], "g", [x], [t])
    opset = [helper.make_opsetid("", 20)]
    return open_model(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


def gate(name: str = "t", unit_axis: int = -1) -> Gate:
    return Gate(name=name, layer=0, kind="coupled", carry="identity", unit_axis=unit_axis, units=None)


def logit(t: object) -> np.ndarray:
    t = np.asarray(t, np.float64)
    return np.log(t / (1 - t)).astype(np.float32)


def test_statistics_equal_those_of_all_rows_together() -> None:
    """Over three batches they equal the plain formulas over all rows."""
    net = highway()
    rows = rows_of(2 * MAX_ROWS + 37)
    profile = profile_gates(net.open(), net.gates, rows)
    assert (profile.rows, profile.levels, profile.epsilon) == (len(rows), QUANTILE_LEVELS, EPSILON)
    for layer, t, expected_gate in zip(
        profile.layers, net.gate_values(rows.inputs["x"]), net.gates, strict=True
    ):
        assert layer.gate == expected_gate.name
        assert layer.mean == pytest.approx(t.mean(), abs=1e-6)
        assert layer.sd == pytest.approx(t.std(), abs=1e-6)
        assert layer.units == pytest.approx(t.mean(0).tolist(), abs=1e-6)
        assert layer.units_sd == pytest.approx(t.std(0).tolist(), abs=1e-6)
        assert layer.histogram == pytest.approx((np.histogram(t, 20, (0, 1))[0] / t.size).tolist(), abs=1e-3)
        assert layer.quantiles == pytest.approx(np.quantile(t, QUANTILE_LEVELS).tolist(), abs=0.01)


def test_a_profile_worked_out_by_hand() -> None:
    t = np.array([[0.001, 0.5], [0.001, 0.5], [0.001, 0.995], [0.001, 0.995]])
    layer = profile_gates(sigmoid_of("batch", 2), [gate()], Rows({"x": logit(t)})).layers[0]
    assert layer.units == pytest.approx((0.001, 0.7475), abs=1e-6)
    assert layer.units_sd == pytest.approx((0.0, 0.2475), abs=1e-6)
    assert layer.mean == pytest.approx(0.37425, abs=1e-6)
    assert layer.sd == pytest.approx(t.std(), abs=1e-6)
    assert (layer.closed, layer.open) == (0.5, 0.25)
    assert layer.histogram == (0.5, *[0.0] * 9, 0.25, *[0.0] * 8, 0.25)
    assert sum(layer.histogram) == 1
    assert layer.quantiles[0] == pytest.approx(0.001, abs=1 / FINE_BINS)
    assert layer.quantiles[3] == pytest.approx(0.001, abs=1 / FINE_BINS)
    assert layer.quantiles[-1] == pytest.approx(0.995, abs=1 / FINE_BINS)


def test_a_deviation_far_below_the_mean_is_exact() -> None:
    """The difference of two large sums would lose it."""
    x = np.zeros((3 * MAX_ROWS, 1), np.float32)
    x[::2] = np.float32(1e-6)
    layer = profile_gates(sigmoid_of("batch", 1), [gate()], Rows({"x": x})).layers[0]
    t = sigmoid_of("batch", 1).run({"x": x})[0].astype(np.float64)
    assert layer.units_sd[0] == pytest.approx(t.std(), rel=1e-4)
    assert 0 < layer.units_sd[0] < 1e-6


def test_quantiles_are_within_the_observed_range() -> None:
    """A constant gate has its value at every level, not the middle of a bin."""
    x = np.full((7, 1), logit(0.30001), np.float32)
    layer = profile_gates(sigmoid_of("batch", 1), [gate()], Rows({"x": x})).layers[0]
    assert layer.quantiles == pytest.approx((0.30001,) * len(QUANTILE_LEVELS), abs=1e-6)


def test_channels_are_units_and_pixels_are_positions() -> None:
    random = np.random.default_rng(0)
    t = random.uniform(0.01, 0.99, size=(5, 3, 2, 4))
    layer = profile_gates(sigmoid_of("batch", 3, 2, 4), [gate(unit_axis=-3)], Rows({"x": logit(t)})).layers[0]
    assert layer.units == pytest.approx(t.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert layer.units_sd == pytest.approx(t.std((0, 2, 3)).tolist(), abs=1e-6)


def test_a_graph_of_one_fixed_batch_counts_each_row_once() -> None:
    """Five rows in batches of two: the repeated row that fills the last batch does not count."""
    t = np.array([[0.1], [0.2], [0.3], [0.4], [0.9]])
    layer = profile_gates(sigmoid_of(2, 1), [gate()], Rows({"x": logit(t)})).layers[0]
    assert layer.mean == pytest.approx(t.mean(), abs=1e-6)


def test_the_contrast_is_by_class() -> None:
    """E[T given class] - E[T]; a class without rows is 0."""
    t = np.array([[0.1], [0.2], [0.6]])
    rows = Rows({"x": logit(t)}, np.array([0, 0, 2]))
    contrast = profile_gates(sigmoid_of("batch", 1), [gate()], rows, ("a", "b", "c", "d")).contrast
    assert contrast[0] == pytest.approx((-0.15, 0.0, 0.3, 0.0), abs=1e-6)
    assert profile_gates(sigmoid_of("batch", 1), [gate()], Rows({"x": logit(t)}), ("a", "b")).contrast == ()


def test_rows_may_be_along_another_axis() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 2))
    t = helper.make_tensor_value_info("t", TensorProto.FLOAT, (2, "batch", 1))
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Transpose", ["s"], ["transposed"]),
        helper.make_node("Unsqueeze", ["transposed", "axes"], ["t"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, (1,), [2])
    graph = helper.make_graph(nodes, "g", [x], [t], [axes])
    opset = [helper.make_opsetid("", 20)]
    runtime = open_model(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())
    values = np.array([[0.1, 0.3], [0.5, 0.7]])
    profile = profile_gates(runtime, [gate()], Rows({"x": logit(values)}, np.array([0, 1])))
    assert profile.contrast[0] == pytest.approx((-0.2, 0.2), abs=1e-6)


def test_a_profile_is_reproducible() -> None:
    """Other rows have another digest."""
    net = highway()
    first, repeated = (profile_gates(net.open(), net.gates, rows_of(50)) for _ in range(2))
    assert first == repeated
    assert profile_gates(net.open(), net.gates, rows_of(50, seed=2)).digest != first.digest


def test_large_maps_get_fewer_rows() -> None:
    """The work is limited: gates with a value for each of many pixels are measured on the first rows only."""
    rows = rows_of(50, inputs=8)
    profile = profile_gates(sigmoid_of("batch", 8), [gate()], rows, max_values=64, min_rows=1)
    assert profile.rows == 8


def test_a_gate_with_nan_is_named() -> None:
    """The error also names its rows. Otherwise every average would be NaN."""
    x = np.zeros((4, 1), np.float32)
    x[2] = np.nan
    with pytest.raises(SourceError, match="rows 0 to 3: .* got NaN or infinity in t"):
        profile_gates(sigmoid_of("batch", 1), [gate()], Rows({"x": x}))
