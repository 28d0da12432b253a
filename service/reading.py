"""Gates read: arrays of T become a summary of each gate, and each row's route through the layers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

import numpy as np
import orjson

from service.errors import NotFinite
from service.manifest import Gate, Profile
from service.model import Signature
from service.request import Array

# where the file has no profile: T this near to 0 or 1 counts as closed or open
EPSILON = 0.01
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# more values than this sort far faster as whole numbers up to STEPS, and tell quantiles to 1e-5
FEW, STEPS = 512, 65535
ABOUT = {"name", "layer", "depth", "time", "kind", "carry", "units"}


@dataclass(frozen=True, slots=True)
class Route:
    """How each row went through the layers; the repeats of a layer over time count as one, their mean.

    `per` is `row`, or `request` where the gates cannot be told apart by row: then all rows count as one.
    `carried` is the product of C over the layers, unit by unit, and of that the mean; `effective_depth`
    the sum over layers of mean T; `longest_closed` the most layers on end whose mean T is below epsilon.
    """

    per: str
    layers: int
    carried: Array
    effective_depth: Array
    longest_closed: Array


@dataclass(frozen=True, slots=True)
class Reading:
    """The gates of one request: a JSON list, one object a gate, and the route."""

    gates: orjson.Fragment
    route: Route


class Reader:
    """Reads the gates of one model; `tensors` are the hidden outputs that it needs."""

    def __init__(self, gates: Sequence[Gate], signature: Signature, profile: Profile | None) -> None:
        carries = [gate.carry_gate for gate in gates if gate.carry_gate is not None]
        self.tensors = tuple(dict.fromkeys([gate.name for gate in gates] + carries))
        self._gates = tuple(gates)
        self._epsilon = EPSILON if profile is None else profile.epsilon
        self._levels = LEVELS if profile is None else profile.levels
        self._axes = [_row_axis(gate.name, signature) for gate in gates]
        layers: dict[tuple[int, int | None], list[int]] = {}
        for n, gate in enumerate(gates):
            layers.setdefault((gate.layer, gate.depth), []).append(n)
        self._layers = tuple(layers.values())
        # gates are read together where these agree, and their shapes on the rows at hand
        self._kinds = [
            (gate.name, (axis, gate.carry_gate is None, gate.time is None))
            for gate, axis in zip(gates, self._axes, strict=True)
        ]
        # filling a form takes a third of the time of building the objects
        self._form = f"[{','.join(_form(gate, self._levels) for gate in gates)}]"

    def read(self, arrays: Mapping[str, Array], rows: int) -> Reading:
        """The summary of `tensors`; NotFinite where a gate is NaN on some row."""
        by_row = rows == 1 or None not in self._axes
        per, depth = "row" if by_row else "request", len(self._layers)
        if rows == 0:
            none = np.zeros(0, np.float32)
            empty = self._form.replace("%.7g", "null").replace("%%", "%")
            return Reading(orjson.Fragment(empty), Route(per, depth, none, none, none))
        count = rows if by_row else 1
        groups: dict[Any, list[int]] = {}
        for n, (name, kind) in enumerate(self._kinds):
            groups.setdefault((arrays[name].shape, kind), []).append(n)
        parts = [self._read_alike(members, arrays, count) for members in groups.values()]
        figures, means, carried = parts[0]
        if len(parts) > 1:
            order = np.argsort([n for members in groups.values() for n in members])
            figures = np.concatenate([part[0] for part in parts], axis=1)[:, order]
            means = np.concatenate([part[1] for part in parts])[order]
            carried = np.multiply.reduce([part[2] for part in parts])
        if depth < len(means):
            means = np.stack([means[members].mean(0) for members in self._layers])
        route = Route(per, depth, carried, np.add.reduce(means), _longest(means < self._epsilon))
        return Reading(orjson.Fragment(self._form % tuple(figures.T.ravel().tolist())), route)

    def _read_alike(
        self, members: Sequence[int], arrays: Mapping[str, Array], rows: int
    ) -> tuple[Array, Array, Array]:
        """Of gates of one shape: figures, one gate a column; means of T by row; what a row carries."""
        gates = [self._gates[n] for n in members]
        axis = self._axes[members[0]]
        t = _lay_out([arrays[gate.name] for gate in gates], axis, rows)
        flat = t.reshape(len(gates), -1)
        size = flat.shape[1]
        means = np.add.reduce(t, axis=2) / np.float32(t.shape[2])
        mean = np.add.reduce(means, axis=1) / np.float32(rows)
        if not isfinite(np.add.reduce(mean)):
            name = gates[int(np.isfinite(mean).argmin())].name
            raise NotFinite(f"gates: expected rows on which every gate is a number, got NaN in {name!r}")
        # one room for all that is only on the way: fresh memory costs more than the sums
        room = np.empty_like(t)
        flat_room = room.reshape(flat.shape)
        if gates[0].carry_gate is None:
            c, share = np.subtract(1, t, out=room), 1 - mean
        else:
            c = _carry_gates([arrays[gate.carry_gate] for gate in gates if gate.carry_gate], axis, t.shape)
            share = c.mean((1, 2))
        carried = _product(c, [gate.time for gate in gates])
        figures = np.empty((5 + len(self._levels), len(gates)), np.float32)
        figures[0] = mean
        apart = np.subtract(flat, mean[:, None], out=flat_room)
        figures[1] = np.sqrt(np.vecdot(apart, apart) / np.float32(size))
        # a product with ones counts twice as fast as a sum of truths
        ones = np.ones(size, np.float32)
        figures[-3] = np.less(flat, self._epsilon, out=flat_room) @ ones / np.float32(size)
        figures[-2] = np.greater(flat, 1 - self._epsilon, out=flat_room) @ ones / np.float32(size)
        figures[-1] = share
        figures[2:-3] = _quantiles(flat, flat_room, self._levels)
        return figures, means, carried


def unit_figures(gate: Gate, t: Array) -> tuple[Array, Array]:
    """Mean and deviation of each unit's T over rows and places; a unit that never varies is a fixed route."""
    by_unit = np.moveaxis(t, gate.unit_axis, -1).reshape(-1, t.shape[gate.unit_axis]).astype(np.float64)
    return by_unit.mean(0).astype(np.float32), by_unit.std(0).astype(np.float32)


def _form(gate: Gate, levels: Sequence[float]) -> str:
    """The JSON of a gate, with places for mean, sd, quantiles, closed, open and carried."""
    about = json.dumps(gate.model_dump(include=ABOUT, exclude_none=True)).replace("%", "%%")
    quantiles = ", ".join(f'"{level:g}": %.7g' for level in levels)
    return (
        f'{about[:-1]}, "mean": %.7g, "sd": %.7g, "quantiles": {{{quantiles}}}, '
        '"closed": %.7g, "open": %.7g, "carried": %.7g}'
    )


def _row_axis(name: str, signature: Signature) -> int | None:
    """The axis of a hidden output along which its rows lie, in order; None where there is none."""
    dims = signature.hidden[name].dims
    if signature.batch is not None and signature.batch in dims:
        return dims.index(signature.batch)
    return 0 if name in signature.splittable else None


def _lay_out(arrays: Sequence[Array], axis: int | None, rows: int) -> Array:
    """Arrays of one shape as gates x rows x what belongs to a row."""
    flat = np.concatenate([array.reshape(-1) for array in arrays], dtype=np.float32)
    if axis:
        flat = np.moveaxis(flat.reshape(len(arrays), *arrays[0].shape), axis + 1, 1)
    return flat.reshape(len(arrays), rows, -1)


def _carry_gates(arrays: Sequence[Array], axis: int | None, shape: tuple[int, ...]) -> Array:
    """Carry gates laid out as their transform gates; ones of other shapes stand at their rows' means."""
    if len({array.shape for array in arrays}) == 1:
        c = _lay_out(arrays, axis, shape[1])
        if c.shape == shape:
            return c
    means = [_lay_out([array], axis, shape[1]).mean(2, keepdims=True) for array in arrays]
    return np.concatenate(means)


def _quantiles(flat: Array, room: Array, levels: Sequence[float]) -> Array:
    """Of each gate the smallest T that so great a share of all its T does not exceed, one level a line."""
    size = flat.shape[1]
    places = [min(max(ceil(level * size), 1), size) - 1 for level in levels]
    if size <= FEW:
        return np.sort(flat, axis=1)[:, places].T
    np.multiply(flat, np.float32(STEPS), out=room)
    room += np.float32(0.5)
    whole = room.astype(np.uint16)
    # of 16 bits a stable sort counts and need not compare
    whole.sort(axis=1, kind="stable")
    return whole[:, places].T / np.float32(STEPS)


def _product(c: Array, times: Sequence[int | None]) -> Array:
    """What is carried past all layers, by row: their product, and its mean over units and times."""
    if times[0] is None:
        product = np.multiply.reduce(c, axis=0)
        return np.add.reduce(product, axis=1) / np.float32(product.shape[1])
    steps = np.array(times)
    order = np.argsort(steps, kind="stable")
    starts = np.flatnonzero(np.diff(steps[order], prepend=-1))
    return np.multiply.reduceat(c[order], starts, axis=0).mean((0, 2))


def _longest(closed: Array) -> Array:
    """The length of the longest run of true down each column."""
    if not closed.any():
        return np.zeros(closed.shape[1], np.int64)
    at = np.arange(1, len(closed) + 1)[:, None]
    last_open = np.maximum.accumulate(np.where(closed, 0, at), axis=0)
    return (at - last_open).max(0)
