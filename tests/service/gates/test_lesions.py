"""Tests of lesions: which gates a request means, and the effect of moving them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from turnpike.service.artifact.levers import SATURATING_SHIFT
from turnpike.service.artifact.manifest import Gate, Lever
from turnpike.service.errors import RequestError
from turnpike.service.gates.lesions import MAX_CURVE_ROWS, curve_layers, lesion_effect, parse_lesion_request


def gate(name: str, layer: int, tensor: str | None = None, **more: Any) -> Gate:
    levers = () if tensor is None else (Lever(tensor=tensor, start=0, stop=2, sign=1),)
    return Gate(
        name=name, layer=layer, kind="coupled", carry="identity", unit_axis=-1, units=2, levers=levers, **more
    )


# a layer of two time steps with one bias, an ordinary layer, and a layer without a lever
GATES = (
    gate("layer00.time0.transform_gate", 0, "first", time=0),
    gate("layer00.time1.transform_gate", 0, "first", time=1),
    gate("layer01.transform_gate", 1, "second"),
    gate("layer02.transform_gate", 2),
)
BIASES = {"first": np.zeros(2, np.float32), "second": np.ones(2, np.float32)}


def test_layer_numbers_and_gate_names_select_gates() -> None:
    """A layer's number selects its gates at all times."""
    lesion = parse_lesion_request({"close": [0], "open": ["layer01.transform_gate"]}, GATES)
    assert [gate.name for gate in lesion.closed] == [gate.name for gate in GATES[:2]]
    assert lesion.opened == GATES[2:3]
    fed = lesion.bias_overrides(BIASES)
    assert fed["first"].tolist() == [-SATURATING_SHIFT, -SATURATING_SHIFT]
    assert fed["second"].tolist() == [1 + SATURATING_SHIFT, 1 + SATURATING_SHIFT]
    assert not lesion.curve
    assert parse_lesion_request({"shift": {"1": 0.5}}, GATES).bias_overrides(BIASES)["second"].tolist() == [
        1.5,
        1.5,
    ]


def test_a_layer_named_twice_is_moved_once() -> None:
    lesion = parse_lesion_request({"close": [1, "layer01.transform_gate", 1]}, GATES)
    assert lesion.closed == GATES[2:3]


def test_gates_that_share_a_bias_move_together() -> None:
    """The steps of a recurrent layer share their bias, so they move together; the response says so."""
    steps = [f"layer00.time{step}.transform_gate" for step in (0, 1)]
    lesion = parse_lesion_request({"close": steps[:1], "shift": {"1": -2}}, GATES)
    second = "layer01.transform_gate"
    assert lesion.to_json(GATES) == {"closed": steps, "open": [], "shifted": {second: -2.0}}
    lesion = parse_lesion_request({"open": [1], "shift": {steps[1]: 0.5}}, GATES)
    assert lesion.to_json(GATES) == {"closed": [], "open": [second], "shifted": dict.fromkeys(steps, 0.5)}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "expected close, open, shift or curve to say what to do, as in "),
        ({"curve": False}, "expected close, open, shift or curve"),
        ({"curve": "yes"}, "curve: expected true or false, got 'yes'"),
        ({"curve": True, "open": [1]}, "curve: expected it without open"),
        ({"close": 1}, "close: expected a list of layers or gates' names, got 1"),
        ({"close": [True]}, "close\\[0\\]: expected a layer or a gate's name, got true"),
        ({"close": [0, 1.0]}, "close\\[1\\]: expected a layer or a gate's name, got 1.0"),
        ({"close": [[0]]}, "close\\[0\\]: expected a layer or a gate's name, got a list"),
        ({"close": [7]}, "close\\[0\\]: expected a layer \\(0 to 2\\) or a gate's name such as '.*', got 7"),
        ({"open": ["nine"]}, "open\\[0\\]: expected a layer .*, got 'nine'"),
        ({"open": ["x" * 999]}, "got 'x{80}'$"),
        ({"close": [2]}, "close\\[0\\]: expected one that can be moved, a layer \\(0, 1\\) or .*, got 2"),
        ({"close": [0] * 9}, "close: expected at most 8 layers and gates, got 9"),
        ({"close": [0], "open": [0]}, "expected one change of its bias first, got two"),
        ({"shift": [1]}, "shift: expected an object of layers or gates' names, got a list"),
        ({"shift": {"1": "much"}}, "shift.1: expected a number from -10000 to 10000, got 'much'"),
        ({"shift": {"1": True}}, "shift.1: expected a number"),
        ({"shift": {"1": math.inf}}, "shift.1: expected a number from -10000 to 10000, got Infinity"),
        ({"shift": {"1": math.nan}}, "shift.1: expected a number from -10000 to 10000, got NaN"),
        ({"shift": {"1": 10**400}}, "shift.1: expected a number"),
        ({"shift": {"1": 10_001}}, "shift.1: expected a number from -10000 to 10000, got 10001"),
        ({"shift": {"-1": 1}}, "shift.-1: expected a layer"),
        ({"shift": {"9" * 50: 1}}, "shift.9{50}: expected a layer"),
        ({"shift": {str(n): 1 for n in range(9)}}, "shift: expected at most 8 layers and gates, got 9"),
    ],
)
def test_invalid_lesions_are_refused(parameters: dict[str, Any], message: str) -> None:
    """The message names the field, the valid values and the actual one."""
    with pytest.raises(RequestError, match=message):
        parse_lesion_request(parameters, GATES).bias_overrides(BIASES)


def test_a_model_without_movable_gates_is_refused() -> None:
    with pytest.raises(RequestError, match="expected a model with gates that can be moved, got 2"):
        parse_lesion_request({"close": [2]}, GATES[3:])
    with pytest.raises(RequestError, match="expected a model with a layer that can be closed"):
        curve_layers(GATES[3:], 1)


def test_a_curve_closes_each_layer_that_can_be_closed() -> None:
    assert curve_layers(GATES[::-1], 5) == [(0, GATES[1::-1]), (1, GATES[2:3])]
    assert parse_lesion_request({"curve": True}, GATES).curve
    most = MAX_CURVE_ROWS // 2
    assert len(curve_layers(GATES, most)) == 2
    with pytest.raises(
        RequestError, match=f"expected at most 65536 rows times layers, got {most + 1} times 2"
    ):
        curve_layers(GATES, most + 1)


def test_a_layer_moves_only_if_all_its_gates_do() -> None:
    """Moving some of its gates would not be a lesion of the layer. Its movable gates can be named."""
    half = (*GATES[:3], gate("layer02.transform_gate", 2, "third"), gate("layer02.carry_gate", 2))
    assert [layer for layer, _ in curve_layers(half, 1)] == [0, 1]
    with pytest.raises(RequestError, match="expected one that can be moved, .*, got 2"):
        parse_lesion_request({"close": [2]}, half)
    assert parse_lesion_request({"close": ["layer02.transform_gate"]}, half).closed == half[3:4]


def test_an_effect_worked_out_by_hand() -> None:
    before = np.log(np.array([[0.5, 0.25, 0.25], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]], np.float32))
    after = np.log(np.array([[0.25, 0.5, 0.25], [0.2, 0.7, 0.1], [0.2, 0.2, 0.6]], np.float32))
    effect = lesion_effect(before, after, distribution=False)
    assert effect.change.tolist() == pytest.approx([-0.25, 0, -0.2], abs=1e-6)
    assert effect.summary() == {
        "flipped": 1,
        "share_flipped": pytest.approx(1 / 3),
        "change": pytest.approx(-0.15),
    }
    by_row = effect.by_row(("ash", "birch", "cedar"))
    assert by_row["class"] == {"before": [0, 1, 2], "after": [1, 1, 2]}
    assert by_row["label"] == {"before": ["ash", "birch", "cedar"], "after": ["birch", "birch", "cedar"]}
    assert by_row["flipped"] == [True, False, False]
    assert "label" not in effect.by_row(())


def test_probabilities_are_not_normalized_again() -> None:
    """A second softmax would change them."""
    before, after = np.array([[0.9, 0.1]], np.float32), np.array([[0.6, 0.4]], np.float32)
    assert lesion_effect(before, after, distribution=True).change.tolist() == pytest.approx([-0.3], abs=1e-6)


def test_without_rows_or_with_nan_the_effect_is_none() -> None:
    """There is no mean over no rows, or over NaN."""
    none = np.zeros((0, 3), np.float32)
    assert lesion_effect(none, none, distribution=False).summary() == {
        "flipped": 0,
        "share_flipped": None,
        "change": None,
    }
    row = np.array([[1.0, 2.0]], np.float32)
    effect = lesion_effect(row, np.array([[np.nan, 2.0]], np.float32), distribution=False)
    assert not effect.is_finite
    assert effect.summary() == {"flipped": None, "share_flipped": None, "change": None}
