"""Lesion curves: closing a layer, compared with the same network computed without that layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tiny_highway import Gated, highway
from turnpike.export.measure.accuracy import are_probabilities, score
from turnpike.export.measure.lesion_curve import MAX_LESION_ROWS, flipped_row, lesion_curve
from turnpike.export.measure.run_rows import spread_rows
from turnpike.export.network import Rows


def rows_for(net: Gated, count: int = 300) -> Rows:
    """Rows whose classes are mostly the network's answers."""
    random = np.random.default_rng(1)
    x = random.normal(size=(count, 4)).astype(np.float32)
    classes = net.logits(x).argmax(1)
    classes[::10] = 0
    return Rows({"x": x}, classes)


@pytest.mark.parametrize("ending", ["logits", "softmax"])
def test_closing_a_layer_equals_leaving_it_out(ending: str) -> None:
    """Accuracy, loss and changed answers equal those of the network without the layer."""
    net = highway(layers=4, ending=ending)
    rows = rows_for(net)
    assert rows.classes is not None
    curve = lesion_curve(net.open(), net.gates, rows, "logits", net.biases)
    assert curve is not None
    intact = net.logits(rows.inputs["x"])
    before = score(intact, rows.classes, probabilities=False)
    assert curve.rows == 300
    assert curve.accuracy == pytest.approx(before.accuracy, abs=1e-5)
    assert curve.loss == pytest.approx(before.loss, abs=1e-5)
    assert [lesion.layer for lesion in curve.layers] == [0, 1, 2, 3]
    for lesion in curve.layers:
        without = net.logits(rows.inputs["x"], frozenset({lesion.layer}))
        after = score(without, rows.classes, probabilities=False)
        assert lesion.accuracy == pytest.approx(after.accuracy, abs=1e-5)
        assert lesion.loss == pytest.approx(after.loss, abs=1e-5)
        assert lesion.flipped == pytest.approx((without.argmax(1) != intact.argmax(1)).mean(), abs=1e-5)
    assert any(lesion.flipped > 0 for lesion in curve.layers)


def test_the_flipped_row_is_right_until_a_layer_is_closed() -> None:
    """Its answer changes more clearly than that of any other row, in a table of more rows than are run."""
    net = highway(layers=4)
    rows = rows_for(net, 2 * MAX_LESION_ROWS)
    assert rows.classes is not None
    curve = lesion_curve(net.open(), net.gates, rows, "logits", net.biases)
    assert curve is not None
    row = flipped_row(net.open(), net.gates, rows, "logits", net.biases, curve)
    assert row is not None
    layer = max(curve.layers, key=lambda lesion: lesion.flipped).layer
    intact = net.logits(rows.inputs["x"])
    closed = net.logits(rows.inputs["x"], frozenset({layer}))
    assert intact[row].argmax() == rows.classes[row] != closed[row].argmax()
    margins = np.take_along_axis(closed, intact.argmax(1)[:, None], 1)[:, 0] - closed.max(1)
    margins[intact.argmax(1) != rows.classes] = 0
    assert margins[row] == pytest.approx(margins[::2].min(), abs=1e-5)


def test_no_row_is_flipped_if_closing_a_layer_changes_no_right_answer() -> None:
    net = highway(layers=2)
    x = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    wrong = Rows({"x": x}, (net.logits(x).argmax(1) + 1) % 3)
    curve = lesion_curve(net.open(), net.gates, wrong, "logits", net.biases)
    assert curve is not None
    assert flipped_row(net.open(), net.gates, wrong, "logits", net.biases, curve) is None
    numbers = Rows({"x": x}, numbers=x[:, 0])
    assert flipped_row(net.open(), net.gates, numbers, "logits", net.biases, curve) is None
    none = curve.model_copy(update={"layers": ()})
    assert flipped_row(net.open(), net.gates, wrong, "logits", net.biases, none) is None


def test_sorted_rows_are_measured_everywhere() -> None:
    """The network is right about the second half of a table alone."""
    net = highway()
    x = np.random.default_rng(1).normal(size=(3 * MAX_LESION_ROWS, 4)).astype(np.float32)
    classes = net.logits(x).argmax(1)
    classes[: len(classes) // 2] += 1
    rows = Rows({"x": x}, classes % 3)
    curve = lesion_curve(net.open(), net.gates, rows, "logits", net.biases)
    assert curve is not None
    assert (curve.rows, curve.accuracy) == (MAX_LESION_ROWS, pytest.approx(0.5, abs=0.001))


def test_rows_are_spread_evenly() -> None:
    rows = Rows({"x": np.arange(10)}, np.arange(10), tuple("abcdefghij"))
    some = spread_rows(rows, 4)
    assert some.inputs["x"].tolist() == [0, 2, 5, 7]
    assert some.classes is not None
    assert (some.classes.tolist(), some.texts) == ([0, 2, 5, 7], tuple("acfh"))
    assert spread_rows(rows, 10) is rows


def test_layers_without_levers_are_left_out() -> None:
    """A layer of which only some gates have levers is left out too."""
    net = highway()
    gates = (net.gates[0], net.gates[1].model_copy(update={"levers": ()}), net.gates[2])
    curve = lesion_curve(net.open(), gates, rows_for(net), "logits", net.biases)
    assert curve is not None
    assert [lesion.layer for lesion in curve.layers] == [0, 2]
    partial = (net.gates[0], net.gates[1].model_copy(update={"layer": 0, "levers": ()}), net.gates[2])
    curve = lesion_curve(net.open(), partial, rows_for(net), "logits", net.biases)
    assert curve is not None
    assert [lesion.layer for lesion in curve.layers] == [2]


def test_a_graph_of_one_fixed_batch_answers_each_row_once() -> None:
    dynamic, fixed = highway(), highway(batch=64)
    rows = rows_for(dynamic)
    curves = [lesion_curve(net.open(), net.gates, rows, "logits", net.biases) for net in (dynamic, fixed)]
    assert curves[0] is not None
    assert curves[0] == curves[1]


def test_layers_that_give_nan_are_left_out() -> None:
    """A layer whose closing gives NaN is left out; a network that answers NaN has no curve."""
    net = highway()
    rows = rows_for(net)
    biases = {**net.biases, "layers.1.gate.bias": np.full(6, np.nan, np.float32)}
    curve = lesion_curve(net.open(), net.gates, rows, "logits", biases)
    assert curve is not None
    assert [lesion.layer for lesion in curve.layers] == [0, 2]
    x = rows.inputs["x"].copy()
    x[3, 0] = np.nan
    assert lesion_curve(net.open(), net.gates, replace(rows, inputs={"x": x}), "logits", net.biases) is None


def test_all_depths_of_a_layer_close_together() -> None:
    net = highway(layers=3)
    rows = rows_for(net)
    gates = tuple(gate.model_copy(update={"layer": 0}) for gate in net.gates)
    curve = lesion_curve(net.open(), gates, rows, "logits", net.biases)
    assert curve is not None
    assert rows.classes is not None
    without = score(net.logits(rows.inputs["x"], frozenset({0, 1, 2})), rows.classes, probabilities=False)
    assert len(curve.layers) == 1
    assert curve.layers[0].loss == pytest.approx(without.loss, abs=1e-5)


def test_without_classes_there_is_no_curve() -> None:
    """There is none either if the output has no column for some class."""
    net = highway()
    rows = rows_for(net)
    for unsuitable in (
        replace(rows, classes=None),
        replace(rows, classes=np.full(300, 3)),
        replace(rows, classes=np.full(300, -1)),
    ):
        assert lesion_curve(net.open(), net.gates, unsuitable, "logits", net.biases) is None


def test_scores_worked_out_by_hand() -> None:
    classes = np.array([0, 1])
    logits = np.array([[0.0, 0.0], [np.log(3.0), 0.0]], np.float32)
    result = score(logits, classes, probabilities=False)
    assert result.accuracy == 0.5
    assert result.loss == pytest.approx((np.log(2) + np.log(4)) / 2)
    probabilities = np.array([[0.5, 0.5], [1.0, 0.0]], np.float32)
    assert score(probabilities, classes, probabilities=True).loss == pytest.approx((np.log(2) + 87.33654) / 2)
    assert are_probabilities(probabilities)
    assert not are_probabilities(logits)
    assert not are_probabilities(np.array([[0.5, 0.4]]))
    assert not are_probabilities(np.array([[1.5, -0.5]]))
