"""Bias tensors to feed to a model so that gates are closed, opened or shifted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from turnpike.service.artifact.manifest import Gate
from turnpike.service.inference_types import Array

# added to the logit of T to saturate it: the sigmoid of this is exactly 0 or 1, even in half precision
SATURATING_SHIFT = 1e4


def override_biases(
    biases: Mapping[str, Array],
    *,
    closed: Iterable[Gate] = (),
    opened: Iterable[Gate] = (),
    shifted: Iterable[tuple[Gate, float]] = (),
) -> dict[str, Array]:
    """The lever tensors to feed to the model, with the changes applied.

    Gates that share a lever (the steps of a recurrent layer) move together.

    Args:
        biases: The values that the file has for the lever tensors, by tensor name.
        closed: Gates whose T becomes 0.
        opened: Gates whose T becomes 1.
        shifted: Gates with the number to add to the logit of their T.

    Raises:
        ValueError: A gate has no lever, or two different changes to one lever were requested.
    """
    changes = [
        *((gate, -SATURATING_SHIFT) for gate in closed),
        *((gate, SATURATING_SHIFT) for gate in opened),
        *shifted,
    ]
    shifts: dict[tuple[str, int, int], float] = {}
    for gate, shift in changes:
        if not gate.levers:
            raise ValueError(f"{gate.name}: expected a gate with a bias that can be overridden, got none")
        for lever in gate.levers:
            span = (lever.tensor, lever.start, lever.stop)
            if shifts.setdefault(span, lever.sign * shift) != lever.sign * shift:
                raise ValueError(f"{gate.name}: expected one change of its bias {lever.tensor}, got two")
    feeds: dict[str, Array] = {}
    for (tensor, start, stop), shift in shifts.items():
        feeds.setdefault(tensor, biases[tensor].copy()).reshape(-1)[start:stop] += shift
    return feeds
