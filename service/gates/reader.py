"""Gates read: arrays of T become a summary of each gate, and each row's route through the layers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from math import ceil
from typing import Any

import numpy as np
import orjson

from service.artifact.manifest import Gate, Profile
from service.artifact.runtime import Signature
from service.errors import NotFiniteError
from service.gates.json_template import JsonTemplate
from service.gates.statistics import gate_statistics, lay_out, lay_out_carry, longest, mean_of_last, product
from service.inference_types import Array

# where the file has no profile: T this near to 0 or 1 counts as closed or open
EPSILON = 0.01
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# so many values of T are read at once, those of as many requests as that is; more would leave the caches
AT_ONCE = 2**18
# and so many are worth another thread: they take ten times as long as to hand them over
SHARE = 2**16
ABOUT = {"name", "layer", "depth", "time", "kind", "carry", "units"}
ROUTE = b'%%b,"route":{"per":"%b","layers":%d,"carried":[%%b],"effective_depth":[%%b],"longest_closed":[%%b]}'

# the `gates` and the `route` of a request, members of a JSON object; or why there are none
GateSummary = bytes | NotFiniteError


class GateReader:
    """Reads the gates of one model (docs/reference/gates.md); `tensors` are the hidden outputs that it needs.

    Where rows cannot be told apart in a gate, all rows of a request count as one. Many requests are shared
    out among `threads`, as NumPy lets go of the interpreter's lock.
    """

    def __init__(
        self, gates: Sequence[Gate], signature: Signature, profile: Profile | None, threads: int = 1
    ) -> None:
        carries = [gate.carry_gate for gate in gates if gate.carry_gate is not None]
        self.output_names = tuple(dict.fromkeys([gate.name for gate in gates] + carries))
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
        # filling a form takes a small part of the time of building the objects
        self._form = _form(gates, self._levels)
        self._threads = threads
        # they start when there is work for them, and end when the reader is dropped
        self._pool = ThreadPoolExecutor(threads, "gates")
        self._routes = {per: ROUTE % (per, len(layers)) for per in (b"row", b"request")}

    def read(self, arrays: Mapping[str, Array], rows: int, requests: int = 1) -> list[GateSummary]:
        """What is read of each of several requests of so many rows, NotFinite where a gate is NaN on one.

        The rows of several requests lie one after the other along the first axis of all `tensors`.
        """
        if rows == 0:
            none = self._form.written([b"null"] * len(self._gates) * (5 + len(self._levels)))
            return [self._routes[b"row"] % (none, b"", b"", b"")] * requests
        if requests == 1:
            return self._read(arrays, rows, 1)
        size = sum([arrays[name].size for name in self.output_names])
        parts = min(requests, max(ceil(size / AT_ONCE), min(size // SHARE, self._threads)))
        if parts <= 1:
            return self._read(arrays, rows, requests)

        def part(n: int) -> list[GateSummary]:
            start, stop = requests * n // parts, requests * (n + 1) // parts
            some = {name: _part(arrays[name], start, stop, requests) for name in self.output_names}
            return self._read(some, rows, stop - start)

        if self._threads > 1:
            try:
                return list(chain.from_iterable(self._pool.map(part, range(parts))))
            except RuntimeError:
                # no thread is to be had, and late is better than never; a new pool: this one kept the parts
                self._pool = ThreadPoolExecutor(self._threads, "gates")
        return list(chain.from_iterable(map(part, range(parts))))

    def _read(self, arrays: Mapping[str, Array], rows: int, requests: int) -> list[GateSummary]:
        """A NaN makes NaN of the figures of its own request alone."""
        per, count = (b"row", rows) if rows == 1 or None not in self._axes else (b"request", 1)
        with np.errstate(all="ignore"):
            table, means, carried = self._figures(arrays, count, requests)
            texts = self._form.filled(table.reshape(requests, -1))
            ways = orjson.dumps((carried, np.add.reduce(means, axis=1)), option=orjson.OPT_SERIALIZE_NUMPY)
        # a list of lists for each of the two
        by_carried, by_depth = [part.split(b"],[") for part in ways[3:-3].split(b"]],[[")]
        told: list[GateSummary] = []
        for n, (text, run) in enumerate(zip(texts, self._longest(means), strict=True)):
            if text is None:
                name = self._gates[int(np.isfinite(table[n]).all(1).argmin())].name
                said = f"gates: expected rows on which every gate is a number, got NaN in {name!r}"
                told.append(NotFiniteError(said))
            else:
                told.append(self._routes[per] % (text, by_carried[n], by_depth[n], run))
        return told

    def _figures(self, arrays: Mapping[str, Array], rows: int, requests: int) -> tuple[Array, Array, Array]:
        """Figures of all gates in order; means of T by layer and row; what each row carries."""
        groups: dict[Any, list[int]] = {}
        for n, (name, kind) in enumerate(self._kinds):
            groups.setdefault((arrays[name].shape, kind), []).append(n)
        parts = [self._figures_alike(members, arrays, rows, requests) for members in groups.values()]
        table, means, carried = parts[0]
        if len(parts) > 1:
            order = np.argsort([n for members in groups.values() for n in members])
            table = np.concatenate([part[0] for part in parts], axis=1)[:, order]
            means = np.concatenate([part[1] for part in parts], axis=1)[:, order]
            carried = np.multiply.reduce([part[2] for part in parts])
        if len(self._layers) < len(self._gates):
            # the repeats of a layer over time count as one, their mean
            means = np.stack([means[:, members].mean(1) for members in self._layers], axis=1)
        return table, means, carried

    def _figures_alike(
        self, members: Sequence[int], arrays: Mapping[str, Array], rows: int, requests: int
    ) -> tuple[Array, Array, Array]:
        """The same of gates of one shape and kind."""
        gates = [self._gates[n] for n in members]
        axis = self._axes[members[0]]
        t = lay_out([arrays[gate.name] for gate in gates], axis, requests, rows)
        means = mean_of_last(t)
        mean = means[:, :, 0] if rows == 1 else mean_of_last(means)
        if gates[0].carry_gate is None:
            table = gate_statistics(t, mean, None, self._epsilon, self._levels)
            c = np.subtract(1, t, out=t)
        else:
            own = [arrays[gate.carry_gate] for gate in gates if gate.carry_gate]
            c = lay_out_carry(own, axis, t.shape)
            carried = mean_of_last(c.reshape(*mean.shape, -1))
            table = gate_statistics(t, mean, carried, self._epsilon, self._levels)
        return table, means, product(c, [gate.time for gate in gates])

    def _longest(self, means: Array) -> list[bytes]:
        """Of each request, row by row, the most layers on end that are closed."""
        requests, _, rows = means.shape
        if np.minimum.reduce(means, axis=None) >= self._epsilon:
            return [b",".join([b"0"] * rows)] * requests
        runs = longest(means < self._epsilon).tolist()
        return [b",".join([b"%d" % run for run in line]) for line in runs]


def unit_figures(gate: Gate, t: Array) -> tuple[Array, Array]:
    """Mean and deviation of each unit's T over rows and places; a unit that never varies is a fixed route."""
    by_unit = np.moveaxis(t, gate.unit_axis, -1).reshape(-1, t.shape[gate.unit_axis]).astype(np.float64)
    return by_unit.mean(0).astype(np.float32), by_unit.std(0).astype(np.float32)


def _form(gates: Sequence[Gate], levels: Sequence[float]) -> JsonTemplate:
    """The JSON list of gates, with places for mean, sd, quantiles, closed, open and carried of each."""
    pieces: list[str] = []
    before = '"gates":['
    for gate in gates:
        about = gate.model_dump(include=ABOUT, exclude_none=True)
        pieces.append(f'{before}{json.dumps(about, separators=(",", ":"))[:-1]},"mean":')
        pieces.append(',"sd":')
        opening = ',"quantiles":{'
        for level in levels:
            pieces.append(f'{opening}"{level:g}":')
            opening = ","
        pieces += ['},"closed":', ',"open":', ',"carried":']
        before = "},"
    return JsonTemplate([piece.encode() for piece in (*pieces, "}]")])


def _row_axis(name: str, signature: Signature) -> int | None:
    """The axis of a hidden output along which its rows lie, in order; None where there is none."""
    if name in signature.splittable:
        return 0
    dims = signature.hidden[name].dims
    return dims.index(signature.batch) if signature.batch is not None and signature.batch in dims else None


def _part(array: Array, start: int, stop: int, requests: int) -> Array:
    """What belongs to some of the requests."""
    each = len(array) // requests
    return array[start * each : stop * each]
