"""Lesions: gates closed, opened or shifted on a client's rows, and the effect on the predicted classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnpike.service.artifact.levers import SATURATING_SHIFT, override_biases
from turnpike.service.artifact.manifest import Gate
from turnpike.service.classification import probabilities
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array

# keys that move gates, in the body of a request for a lesion or for gates
MOVE_KEYS = frozenset({"close", "open", "shift"})
# keys of a lesion request's body, in addition to those of an infer request
LESION_KEYS = MOVE_KEYS | {"curve"}
# rows times layers of a lesion curve, which runs all rows once for each layer
MAX_CURVE_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class LesionRequest:
    """Gates to close, open or shift in one run; or, with `curve`, each layer to close in turn."""

    closed: tuple[Gate, ...] = ()
    opened: tuple[Gate, ...] = ()
    shifted: tuple[tuple[Gate, float], ...] = ()
    curve: bool = False

    def bias_overrides(self, biases: Mapping[str, Array]) -> dict[str, Array]:
        """The tensors to feed beside the inputs. Raises RequestError if a gate is moved in two ways."""
        try:
            return override_biases(biases, closed=self.closed, opened=self.opened, shifted=self.shifted)
        except ValueError as error:
            raise RequestError(f"close, open, shift: {error}") from error

    def to_json(self, gates: Iterable[Gate]) -> dict[str, Any]:
        """The gates that move, including those that share a bias with a requested one."""
        return {
            "closed": [gate.name for gate in _sharing_biases(self.closed, gates)],
            "open": [gate.name for gate in _sharing_biases(self.opened, gates)],
            "shifted": {
                moved.name: shift for gate, shift in self.shifted for moved in _sharing_biases([gate], gates)
            },
        }


def parse_lesion_request(parameters: Mapping[str, Any], gates: Sequence[Gate]) -> LesionRequest:
    """Parse the keys of a lesion request. Errors name the layers and gates that the model has."""
    curve = parameters.get("curve", False)
    if not isinstance(curve, bool):
        raise RequestError(f"curve: expected true or false, got {_shown(curve)}")
    moves = [key for key in ("close", "open", "shift") if key in parameters]
    if curve and moves:
        raise RequestError(f"curve: expected it without {moves[0]}, since it closes each layer in its turn")
    if not curve and not moves:
        raise RequestError(
            'body: expected close, open, shift or curve to say what to do, as in {"inputs": [...], '
            '"close": [0]}, got none of them'
        )
    return LesionRequest(
        closed=_parse_gates("close", parameters.get("close", []), gates),
        opened=_parse_gates("open", parameters.get("open", []), gates),
        shifted=_parse_shifts(parameters.get("shift", {}), gates),
        curve=curve,
    )


def curve_layers(gates: Sequence[Gate], rows: int) -> list[tuple[int, tuple[Gate, ...]]]:
    """The layers of a lesion curve with their gates: the layers in which every gate can be closed."""
    closable = [
        (layer, members)
        for layer, members in gates_by_layer(gates).items()
        if all(gate.levers for gate in members)
    ]
    if not closable:
        raise RequestError("curve: expected a model with a layer that can be closed, and this one has none")
    if rows * len(closable) > MAX_CURVE_ROWS:
        raise RequestError(
            f"curve: expected at most {MAX_CURVE_ROWS} rows times layers, got {rows} times {len(closable)}"
        )
    return closable


def gates_by_layer(gates: Iterable[Gate]) -> dict[int, tuple[Gate, ...]]:
    """The gates of each layer, at all its depths and times, in order of the layers."""
    layers: dict[int, tuple[Gate, ...]] = {}
    for gate in gates:
        layers[gate.layer] = (*layers.get(gate.layer, ()), gate)
    return dict(sorted(layers.items()))


@dataclass(frozen=True, slots=True)
class LesionEffect:
    """For each row: the class before and after, and the change in probability of the class before."""

    before: Array
    after: Array
    change: Array

    @property
    def flipped(self) -> Array:
        return self.before != self.after

    @property
    def is_finite(self) -> bool:
        """Whether the outputs were free of NaN and Inf, before and after."""
        return bool(np.isfinite(self.change).all())

    def summary(self) -> dict[str, Any]:
        """Number and share of flipped rows, and the mean change; None without rows or with NaN or Inf."""
        has_means = self.is_finite and len(self.before) > 0
        return {
            "flipped": int(self.flipped.sum()) if self.is_finite else None,
            "share_flipped": float(self.flipped.mean()) if has_means else None,
            "change": float(self.change.mean()) if has_means else None,
        }

    def by_row(self, labels: Sequence[str]) -> dict[str, Any]:
        """The effect on each row; with labels, classes are named as well."""
        before, after = self.before.tolist(), self.after.tolist()
        named = (
            {"before": [labels[index] for index in before], "after": [labels[index] for index in after]}
            if labels
            else {}
        )
        return {
            "class": {"before": before, "after": after},
            **({"label": named} if named else {}),
            "flipped": self.flipped.tolist(),
            "change": self.change.tolist(),
        }


def lesion_effect(before: Array, after: Array, *, distribution: bool) -> LesionEffect:
    """Compare outputs before and after: rows of logits, or of probabilities if they are a `distribution`."""
    classes = before.argmax(1)
    cells = np.arange(len(classes)), classes
    change = probabilities(after, distribution=distribution)[cells]
    change = change - probabilities(before, distribution=distribution)[cells]
    return LesionEffect(classes, after.argmax(1), change)


def _parse_gates(key: str, value: Any, gates: Sequence[Gate]) -> tuple[Gate, ...]:
    if not isinstance(value, list):
        raise RequestError(f"{key}: expected a list of layers or gates' names, got {_shown(value)}")
    if len(value) > 2 * len(gates):
        raise RequestError(f"{key}: expected at most {2 * len(gates)} layers and gates, got {len(value)}")
    named: dict[Gate, None] = {}
    for index, entry in enumerate(value):
        named |= dict.fromkeys(_find_gates(f"{key}[{index}]", entry, gates))
    return tuple(named)


def _parse_shifts(value: Any, gates: Sequence[Gate]) -> tuple[tuple[Gate, float], ...]:
    if not isinstance(value, dict):
        raise RequestError(f"shift: expected an object of layers or gates' names, got {_shown(value)}")
    if len(value) > 2 * len(gates):
        raise RequestError(f"shift: expected at most {2 * len(gates)} layers and gates, got {len(value)}")
    shifts = []
    for name, shift in value.items():
        where = f"shift.{name[:80]}"
        is_number = isinstance(shift, int | float) and not isinstance(shift, bool)
        if not is_number or not abs(shift) <= SATURATING_SHIFT:
            raise RequestError(
                f"{where}: expected a number from -{SATURATING_SHIFT:g} to {SATURATING_SHIFT:g}, "
                f"got {_shown(shift)}"
            )
        # keys of JSON objects are strings, so the number of a layer comes as one
        entry = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name
        shifts += [(gate, float(shift)) for gate in _find_gates(where, entry, gates)]
    return tuple(shifts)


def _find_gates(where: str, entry: Any, gates: Sequence[Gate]) -> tuple[Gate, ...]:
    """The gates of a layer, at all its depths and times, or the one gate of a name."""
    if isinstance(entry, bool) or not isinstance(entry, int | str):
        raise RequestError(f"{where}: expected a layer or a gate's name, got {_shown(entry)}")
    matches = tuple(gate for gate in gates if entry in (gate.name, gate.layer))
    if not matches:
        raise RequestError(f"{where}: expected {_describe(gates)}, got {_shown(entry)}")
    if not all(gate.levers for gate in matches):
        movable = [gate for gate in gates if gate.levers]
        expected = (
            f"one that can be moved, {_describe(movable)}"
            if movable
            else "a model with gates that can be moved"
        )
        raise RequestError(f"{where}: expected {expected}, got {_shown(entry)}")
    return matches


def _describe(gates: Sequence[Gate]) -> str:
    """The valid layers and names, for an error message."""
    layers = sorted({gate.layer for gate in gates})
    if layers == list(range(layers[0], layers[-1] + 1)) and len(layers) > 2:
        numbers = f"{layers[0]} to {layers[-1]}"
    else:
        numbers = ", ".join(map(str, layers))
    return f"a layer ({numbers}) or a gate's name such as {gates[0].name!r}"


def _sharing_biases(moved: Iterable[Gate], gates: Iterable[Gate]) -> list[Gate]:
    """All gates whose biases are those of the moved gates, in the model's order."""
    levers = {(lever.tensor, lever.start) for gate in moved for lever in gate.levers}
    return [gate for gate in gates if any((lever.tensor, lever.start) in levers for lever in gate.levers)]


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return repr(value[:80]) if isinstance(value, str) else json.dumps(value)
