"""Gates closed, opened or shifted on a caller's rows: what was asked for, and what the answers lost by it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.artifact.levers import SATURATING_SHIFT, override_biases
from service.artifact.manifest import Gate
from service.errors import RequestError
from service.inference_types import Array
from service.protocol.classification import probabilities

# what a body may have beside what an infer request has
LESION_KEYS = frozenset({"close", "open", "shift", "curve"})
# a curve runs all rows once for each layer
MOST_RUN_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class LesionRequest:
    """Gates to be closed, opened or shifted in one run, or none of it but a whole curve."""

    closed: tuple[Gate, ...] = ()
    opened: tuple[Gate, ...] = ()
    shifted: tuple[tuple[Gate, float], ...] = ()
    curve: bool = False

    def bias_overrides(self, biases: Mapping[str, Array]) -> dict[str, Array]:
        """What to feed beside the inputs; a RequestError says which gate is wanted in two ways."""
        try:
            return override_biases(biases, closed=self.closed, opened=self.opened, shifted=self.shifted)
        except ValueError as error:
            raise RequestError(f"close, open, shift: {error}") from error

    def to_json(self, gates: Iterable[Gate]) -> dict[str, Any]:
        """The gates that are moved, those too that share a bias with one that was asked for."""
        return {
            "closed": [gate.name for gate in _with_mates(self.closed, gates)],
            "open": [gate.name for gate in _with_mates(self.opened, gates)],
            "shifted": {mate.name: by for gate, by in self.shifted for mate in _with_mates([gate], gates)},
        }


def parse_lesion_request(asked: Mapping[str, Any], gates: Sequence[Gate]) -> LesionRequest:
    """The lesion that a request asks for; a RequestError says what there is in place of what there is not."""
    curve = asked.get("curve", False)
    if not isinstance(curve, bool):
        raise RequestError(f"curve: expected true or false, got {_shown(curve)}")
    others = [key for key in ("close", "open", "shift") if key in asked]
    if curve and others:
        raise RequestError(f"curve: expected it without {others[0]}, since it closes each layer in its turn")
    if not curve and not others:
        raise RequestError(
            "the body: expected close, open, shift or curve to say what to do, got none of them"
        )
    return LesionRequest(
        closed=_list("close", asked.get("close", []), gates),
        opened=_list("open", asked.get("open", []), gates),
        shifted=_shifts(asked.get("shift", {}), gates),
        curve=curve,
    )


def curve_layers(gates: Sequence[Gate], rows: int) -> list[tuple[int, tuple[Gate, ...]]]:
    """The layers of a curve with their gates: those of which every gate has a lever."""
    found = gates_by_layer(gates)
    able = [(layer, its) for layer, its in found.items() if all(gate.levers for gate in its)]
    if not able:
        raise RequestError("curve: expected a model with a layer that can be closed, and this one has none")
    if rows * len(able) > MOST_RUN_ROWS:
        raise RequestError(
            f"curve: expected at most {MOST_RUN_ROWS} rows times layers, got {rows} times {len(able)}"
        )
    return able


def gates_by_layer(gates: Iterable[Gate]) -> dict[int, tuple[Gate, ...]]:
    """The gates of each layer, at all its depths and times, in order."""
    found: dict[int, tuple[Gate, ...]] = {}
    for gate in gates:
        found[gate.layer] = (*found.get(gate.layer, ()), gate)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class LesionEffect:
    """By row: the class before and after, and how the probability of the one before has changed."""

    before: Array
    after: Array
    change: Array

    @property
    def flipped(self) -> Array:
        return self.before != self.after

    @property
    def is_finite(self) -> bool:
        """Whether the answers were numbers, before and after."""
        return bool(np.isfinite(self.change).all())

    def summary(self) -> dict[str, Any]:
        """Rows flipped, their share, and the mean change; None where there are no rows, or no numbers."""
        tells = self.is_finite and len(self.before) > 0
        return {
            "flipped": int(self.flipped.sum()) if self.is_finite else None,
            "share_flipped": float(self.flipped.mean()) if tells else None,
            "change": float(self.change.mean()) if tells else None,
        }

    def by_row(self, labels: Sequence[str]) -> dict[str, Any]:
        """The same, row by row, classes by their labels where there are any."""
        before, after = self.before.tolist(), self.after.tolist()
        named = {"before": [labels[n] for n in before], "after": [labels[n] for n in after]} if labels else {}
        return {
            "class": {"before": before, "after": after},
            **({"label": named} if named else {}),
            "flipped": self.flipped.tolist(),
            "change": self.change.tolist(),
        }


def lesion_effect(before: Array, after: Array, *, distribution: bool) -> LesionEffect:
    """What became of rows of logits or, where each is a `distribution`, of probabilities."""
    classes = before.argmax(1)
    at = np.arange(len(classes)), classes
    change = probabilities(after, distribution=distribution)[at]
    change = change - probabilities(before, distribution=distribution)[at]
    return LesionEffect(classes, after.argmax(1), change)


def _list(key: str, value: Any, gates: Sequence[Gate]) -> tuple[Gate, ...]:
    if not isinstance(value, list):
        raise RequestError(f"{key}: expected a list of layers or gates' names, got {_shown(value)}")
    if len(value) > 2 * len(gates):
        raise RequestError(f"{key}: expected at most {2 * len(gates)} layers and gates, got {len(value)}")
    found: dict[Gate, None] = {}
    for n, entry in enumerate(value):
        found |= dict.fromkeys(_find(f"{key}[{n}]", entry, gates))
    return tuple(found)


def _shifts(value: Any, gates: Sequence[Gate]) -> tuple[tuple[Gate, float], ...]:
    if not isinstance(value, dict):
        raise RequestError(f"shift: expected an object of layers or gates' names, got {_shown(value)}")
    if len(value) > 2 * len(gates):
        raise RequestError(f"shift: expected at most {2 * len(gates)} layers and gates, got {len(value)}")
    found = []
    for name, by in value.items():
        where = f"shift.{name[:80]}"
        if isinstance(by, bool) or not isinstance(by, int | float) or not abs(by) <= SATURATING_SHIFT:
            limits = f"-{SATURATING_SHIFT:g} to {SATURATING_SHIFT:g}"
            raise RequestError(f"{where}: expected a number from {limits}, got {_shown(by)}")
        # a key of JSON is a string, so a layer's number comes as one
        place = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name
        found += [(gate, float(by)) for gate in _find(where, place, gates)]
    return tuple(found)


def _find(where: str, entry: Any, gates: Sequence[Gate]) -> tuple[Gate, ...]:
    """The gates of a layer, at all its depths and times, or the one of a name."""
    if isinstance(entry, bool) or not isinstance(entry, int | str):
        raise RequestError(f"{where}: expected a layer or a gate's name, got {_shown(entry)}")
    found = tuple(gate for gate in gates if entry in (gate.name, gate.layer))
    if not found:
        raise RequestError(f"{where}: expected {_there(gates)}, got {_shown(entry)}")
    if not all(gate.levers for gate in found):
        able = [gate for gate in gates if gate.levers]
        there = f"one that can be moved, {_there(able)}" if able else "a model with gates that can be moved"
        raise RequestError(f"{where}: expected {there}, got {_shown(entry)}")
    return found


def _there(gates: Sequence[Gate]) -> str:
    """Which layers there are, in a few words."""
    numbers = sorted({gate.layer for gate in gates})
    if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
        listed = f"{numbers[0]} to {numbers[-1]}"
    else:
        listed = ", ".join(map(str, numbers))
    return f"a layer ({listed}) or a gate's name such as {gates[0].name!r}"


def _with_mates(moved: Iterable[Gate], gates: Iterable[Gate]) -> list[Gate]:
    """The gates whose biases are those of the moved ones, in the model's order."""
    levers = {(lever.tensor, lever.start) for gate in moved for lever in gate.levers}
    return [gate for gate in gates if any((lever.tensor, lever.start) in levers for lever in gate.levers)]


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return repr(value[:80]) if isinstance(value, str) else json.dumps(value)
