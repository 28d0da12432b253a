"""Lesions: what closing a layer does, against the same network computed without that layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from export.measure.accuracy import are_probabilities, score
from export.measure.lesion_curve import lesion_curve
from export.source import Rows
from tests.support.tiny_highway import Gated, highway


def rows_for(net: Gated, count: int = 300) -> Rows:
    """Rows whose classes are mostly what the network answers."""
    random = np.random.default_rng(1)
    x = random.normal(size=(count, 4)).astype(np.float32)
    classes = net.logits(x).argmax(1)
    classes[::10] = 0
    return Rows({"x": x}, classes)


@pytest.mark.parametrize("ending", ["logits", "softmax"])
def test_a_closed_layer_is_a_layer_left_out(ending: str) -> None:
    """Accuracy, loss and flips equal those of the network without the layer, for logits and probabilities."""
    net = highway(layers=4, ending=ending)
    rows = rows_for(net)
    assert rows.classes is not None
    curve = lesion_curve(net.open(), net.gates, rows, "logits", net.biases)
    assert curve is not None
    whole = net.logits(rows.inputs["x"])
    before = score(whole, rows.classes, probabilities=False)
    assert curve.rows == 300
    assert curve.accuracy == pytest.approx(before.accuracy, abs=1e-5)
    assert curve.loss == pytest.approx(before.loss, abs=1e-5)
    assert [lesion.layer for lesion in curve.layers] == [0, 1, 2, 3]
    for lesion in curve.layers:
        without = net.logits(rows.inputs["x"], frozenset({lesion.layer}))
        after = score(without, rows.classes, probabilities=False)
        assert lesion.accuracy == pytest.approx(after.accuracy, abs=1e-5)
        assert lesion.loss == pytest.approx(after.loss, abs=1e-5)
        assert lesion.flipped == pytest.approx((without.argmax(1) != whole.argmax(1)).mean(), abs=1e-5)
    assert any(lesion.flipped > 0 for lesion in curve.layers)


def test_layers_without_levers_are_left_out() -> None:
    """A layer that cannot be closed whole has no place in the curve."""
    net = highway()
    gates = (net.gates[0], net.gates[1].model_copy(update={"levers": ()}), net.gates[2])
    curve = lesion_curve(net.open(), gates, rows_for(net), "logits", net.biases)
    assert curve is not None
    assert [lesion.layer for lesion in curve.layers] == [0, 2]
    half = (net.gates[0], net.gates[1].model_copy(update={"layer": 0, "levers": ()}), net.gates[2])
    curve = lesion_curve(net.open(), half, rows_for(net), "logits", net.biases)
    assert curve is not None
    assert [lesion.layer for lesion in curve.layers] == [2]


def test_a_graph_of_one_fixed_batch_answers_each_row_once() -> None:
    """Rows that do not fill the last batch make no difference to the curve."""
    free, fixed = highway(), highway(batch=64)
    rows = rows_for(free)
    curves = [lesion_curve(net.open(), net.gates, rows, "logits", net.biases) for net in (free, fixed)]
    assert curves[0] is not None
    assert curves[0] == curves[1]


def test_what_gives_no_numbers_has_no_place() -> None:
    """A closed layer that makes answers NaN is left out; a network that answers NaN has no curve."""
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
    """Gates of one layer are closed at once, as if they were one."""
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
    """Rows without classes, and outputs that are no scores of them, give none."""
    net = highway()
    rows = rows_for(net)
    for other in (
        replace(rows, classes=None),
        replace(rows, classes=np.full(300, 3)),
        replace(rows, classes=np.full(300, -1)),
    ):
        assert lesion_curve(net.open(), net.gates, other, "logits", net.biases) is None


def test_scores_worked_out_by_hand() -> None:
    """Accuracy and mean cross entropy of two rows."""
    classes = np.array([0, 1])
    logits = np.array([[0.0, 0.0], [np.log(3.0), 0.0]], np.float32)
    found = score(logits, classes, probabilities=False)
    assert found.accuracy == 0.5
    assert found.loss == pytest.approx((np.log(2) + np.log(4)) / 2)
    shares = np.array([[0.5, 0.5], [1.0, 0.0]], np.float32)
    assert score(shares, classes, probabilities=True).loss == pytest.approx((np.log(2) + 87.33654) / 2)
    assert are_probabilities(shares)
    assert not are_probabilities(logits)
    assert not are_probabilities(np.array([[0.5, 0.4]]))
    assert not are_probabilities(np.array([[1.5, -0.5]]))
