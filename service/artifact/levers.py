"""Gates closed, opened or shifted from outside: what to feed in place of their biases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from service.artifact.manifest import Gate
from service.inference_types import Array

# added to what T is the sigmoid of: at this distance T is exactly 0 or 1, even in half precision
SATURATING_SHIFT = 1e4


def override_biases(
    biases: Mapping[str, Array],
    *,
    closed: Iterable[Gate] = (),
    opened: Iterable[Gate] = (),
    shifted: Iterable[tuple[Gate, float]] = (),
) -> dict[str, Array]:
    """The tensors to feed so that gates are closed, opened, or T's logit is shifted by d.

    `biases` are the values that the file has for the levers' tensors. Gates that share a lever (the steps
    of a recurrent layer) move together. A ValueError says which gate has no lever, or is asked for
    two things at once.
    """
    asked = [
        *((gate, -SATURATING_SHIFT) for gate in closed),
        *((gate, SATURATING_SHIFT) for gate in opened),
        *shifted,
    ]
    shifts: dict[tuple[str, int, int], float] = {}
    for gate, by in asked:
        if not gate.levers:
            raise ValueError(f"{gate.name}: expected a gate with a bias that can be overridden, got none")
        for lever in gate.levers:
            place = (lever.tensor, lever.start, lever.stop)
            if shifts.setdefault(place, lever.sign * by) != lever.sign * by:
                raise ValueError(f"{gate.name}: expected one wish for its bias {lever.tensor}, got two")
    fed: dict[str, Array] = {}
    for (tensor, start, stop), by in shifts.items():
        fed.setdefault(tensor, biases[tensor].copy()).reshape(-1)[start:stop] += by
    return fed
