"""Levers: which numbers are fed in place of a gate's bias, and that no others are touched."""

from __future__ import annotations

import numpy as np
import pytest

from service.artifact.levers import SATURATING_SHIFT, override_biases
from service.artifact.manifest import Gate, Lever


def gate(name: str, *levers: Lever) -> Gate:
    return Gate(
        name=name, layer=0, kind="coupled", carry="identity", unit_axis=-1, units=2, levers=tuple(levers)
    )


def test_only_the_gates_part_of_a_fused_bias_is_moved() -> None:
    """A lever moves its own stretch of the tensor, in the direction of its sign, and a copy of it."""
    biases = {"fused": np.arange(4, dtype=np.float32), "carry": np.zeros((1, 2), np.float32)}
    t = Lever(tensor="fused", start=2, stop=4, sign=1)
    c = Lever(tensor="carry", start=0, stop=2, sign=-1)
    fed = override_biases(biases, closed=[gate("a", t, c)])
    assert fed["fused"].tolist() == [0, 1, 2 - SATURATING_SHIFT, 3 - SATURATING_SHIFT]
    assert fed["carry"].tolist() == [[SATURATING_SHIFT, SATURATING_SHIFT]]
    assert fed["fused"].dtype == np.float32
    assert biases["fused"].tolist() == [0, 1, 2, 3]
    assert override_biases(biases, opened=[gate("a", t)])["fused"].tolist() == [
        0,
        1,
        2 + SATURATING_SHIFT,
        3 + SATURATING_SHIFT,
    ]
    assert override_biases(biases, shifted=[(gate("a", c), 0.5)])["carry"].tolist() == [[-0.5, -0.5]]


def test_two_gates_of_one_tensor_are_both_moved() -> None:
    """Stretches of one fused bias add up to one override, and steps of time that share one move once."""
    biases = {"fused": np.zeros(4, np.float32)}
    low, high = (Lever(tensor="fused", start=at, stop=at + 2, sign=1) for at in (0, 2))
    fed = override_biases(
        biases, shifted=[(gate("a", low), 1.0), (gate("b", high), 2.0), (gate("c", low), 1.0)]
    )
    assert fed["fused"].tolist() == [1, 1, 2, 2]


def test_wishes_that_cannot_be_granted_are_refused() -> None:
    """A gate without a lever, and one that is to be open and closed, are named."""
    lever = Lever(tensor="b", start=0, stop=2, sign=1)
    biases = {"b": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match="lone: expected a gate with a bias"):
        override_biases(biases, closed=[gate("lone")])
    with pytest.raises(ValueError, match="twin: expected one change of its bias b, got two"):
        override_biases(biases, closed=[gate("one", lever)], opened=[gate("twin", lever)])
