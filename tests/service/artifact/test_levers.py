"""Levers: the values that are fed in place of a gate's bias. Other values do not change."""

from __future__ import annotations

import numpy as np
import pytest

from turnpike.service.artifact.levers import SATURATING_SHIFT, override_biases
from turnpike.service.artifact.manifest import Gate, Lever


def gate(name: str, *levers: Lever) -> Gate:
    return Gate(
        name=name, layer=0, kind="coupled", carry="identity", unit_axis=-1, units=2, levers=tuple(levers)
    )


def test_a_lever_changes_only_its_part_of_a_fused_bias() -> None:
    """A lever changes its own part of a copy of the tensor, in the direction of its sign."""
    biases = {"fused": np.arange(4, dtype=np.float32), "carry": np.zeros((1, 2), np.float32)}
    t = Lever(tensor="fused", start=2, stop=4, sign=1)
    c = Lever(tensor="carry", start=0, stop=2, sign=-1)
    feeds = override_biases(biases, closed=[gate("a", t, c)])
    assert feeds["fused"].tolist() == [0, 1, 2 - SATURATING_SHIFT, 3 - SATURATING_SHIFT]
    assert feeds["carry"].tolist() == [[SATURATING_SHIFT, SATURATING_SHIFT]]
    assert feeds["fused"].dtype == np.float32
    assert biases["fused"].tolist() == [0, 1, 2, 3]
    opened = override_biases(biases, opened=[gate("a", t)])["fused"]
    assert opened.tolist() == [0, 1, 2 + SATURATING_SHIFT, 3 + SATURATING_SHIFT]
    assert override_biases(biases, shifted=[(gate("a", c), 0.5)])["carry"].tolist() == [[-0.5, -0.5]]


def test_two_gates_of_one_tensor_can_both_change() -> None:
    """Parts of one fused bias are one override. Time steps that share a part change it once."""
    biases = {"fused": np.zeros(4, np.float32)}
    low, high = (Lever(tensor="fused", start=start, stop=start + 2, sign=1) for start in (0, 2))
    feeds = override_biases(
        biases, shifted=[(gate("a", low), 1.0), (gate("b", high), 2.0), (gate("c", low), 1.0)]
    )
    assert feeds["fused"].tolist() == [1, 1, 2, 2]


def test_impossible_changes_are_errors() -> None:
    """A gate without a lever, and one that is opened and closed at once, are named."""
    lever = Lever(tensor="b", start=0, stop=2, sign=1)
    biases = {"b": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match="lone: expected a gate with a bias"):
        override_biases(biases, closed=[gate("lone")])
    with pytest.raises(ValueError, match="twin: expected one change of its bias b, got two"):
        override_biases(biases, closed=[gate("one", lever)], opened=[gate("twin", lever)])
