"""Reads the gates of a run: statistics of each gate, and the route of each row through the layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from math import ceil
from typing import Any, Generic

import numpy as np

from turnpike.service.artifact.manifest import Gate, Profile
from turnpike.service.artifact.signature import Signature
from turnpike.service.errors import NotFiniteError
from turnpike.service.gates.answers import RunStatistics, SummaryT
from turnpike.service.gates.statistics import (
    carried_product,
    gate_statistics,
    longest_run,
    mean_of_last_axis,
    stack_carry_gates,
    stack_gates,
)
from turnpike.service.inference_types import Array

# used if the file has no profile: T this close to 0 or 1 counts as closed or open; levels of the quantiles
DEFAULT_EPSILON = 0.01
DEFAULT_LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# values of T that are read in one pass (a request with more of them takes one by itself): more would not stay
# in the caches of the CPU
MAX_VALUES_PER_PASS = 2**18
# values of T that are worth a thread: they take ten times as long to read as to hand over
MIN_VALUES_PER_THREAD = 2**16

# Encodes the statistics of a run: for each of its requests the summary, or the error that takes its place.
# It is called by several threads at a time.
Encode = Callable[[RunStatistics], list[SummaryT | NotFiniteError]]
# makes the encoder for a model with these gates and these levels of the quantiles
MakeEncoder = Callable[[Sequence[Gate], Sequence[float]], Encode[SummaryT]]


class GateReader(Generic[SummaryT]):
    """Reads the gates of one model; an `OutputProcessor` that the batcher calls for all requests of a run.

    If a gate's rows cannot be separated, all rows of a request count as one.

    Args:
        gates: The model's gates.
        signature: The model's tensors.
        profile: The gate profile of the export, whose epsilon and quantile levels are used.
        make_encoder: Makes the encoder of the transport.
        threads: The number of threads among which large batches are divided; NumPy releases the GIL.
        max_values_per_pass: The number of values of T that are read in one pass.
        min_values_per_thread: The number of values of T that are worth a thread.
    """

    def __init__(
        self,
        gates: Sequence[Gate],
        signature: Signature,
        profile: Profile | None,
        make_encoder: MakeEncoder[SummaryT],
        threads: int = 1,
        max_values_per_pass: int = MAX_VALUES_PER_PASS,
        min_values_per_thread: int = MIN_VALUES_PER_THREAD,
    ) -> None:
        carry_names = [gate.carry_gate for gate in gates if gate.carry_gate is not None]
        self.output_names = tuple(dict.fromkeys([gate.name for gate in gates] + carry_names))
        self._gates = tuple(gates)
        self._epsilon = DEFAULT_EPSILON if profile is None else profile.epsilon
        self._levels = DEFAULT_LEVELS if profile is None else profile.levels
        self._row_axes = [_row_axis(gate.name, signature) for gate in gates]
        # indices of the gates of each layer: one, or one for each time step of a recurrent layer
        layers: dict[tuple[int, int | None], list[int]] = {}
        for index, gate in enumerate(gates):
            layers.setdefault((gate.layer, gate.depth), []).append(index)
        self._layers = tuple(layers.values())
        # gates that agree in these, and in the shape of their values, are summarized in one pass
        self._kinds = [
            (gate.name, (axis, gate.carry_gate is None, gate.time is None))
            for gate, axis in zip(gates, self._row_axes, strict=True)
        ]
        self._encode = make_encoder(self._gates, self._levels)
        self._threads = threads
        self._max_values_per_pass = max_values_per_pass
        self._min_values_per_thread = min_values_per_thread
        # the threads start when there is work for them, and end when the reader is dropped
        self._pool = ThreadPoolExecutor(threads, "gates")

    def process(
        self, arrays: Mapping[str, Array], rows: int, requests: int = 1
    ) -> list[SummaryT | NotFiniteError]:
        """Return the summary of each of `requests` requests of `rows` rows.

        It is a NotFiniteError for a request with a gate that is NaN. The rows of the requests follow one
        another along axis 0 of all `output_names`.
        """
        if rows == 0:
            none = np.empty((requests, 0), np.float32)
            return self._encode(RunStatistics("row", none, none, none, none))

        # read few values here and now; cut many into parts
        if requests == 1:
            return self._read_part(arrays, rows, 1)
        size = sum([arrays[name].size for name in self.output_names])
        parts = min(
            requests,
            max(
                ceil(size / self._max_values_per_pass),
                min(size // self._min_values_per_thread, self._threads),
            ),
        )
        if parts <= 1:
            return self._read_part(arrays, rows, requests)

        def read_part(part: int) -> list[SummaryT | NotFiniteError]:
            start, stop = requests * part // parts, requests * (part + 1) // parts
            own = {name: _slice_requests(arrays[name], start, stop, requests) for name in self.output_names}
            return self._read_part(own, rows, stop - start)

        if self._threads > 1:
            try:
                return list(chain.from_iterable(self._pool.map(read_part, range(parts))))
            except RuntimeError:
                # The system has no thread left: read here, since late is better than never. The pool is
                # replaced because it keeps the parts that it could not start.
                self._pool = ThreadPoolExecutor(self._threads, "gates")
        return list(chain.from_iterable(map(read_part, range(parts))))

    def _read_part(
        self, arrays: Mapping[str, Array], rows: int, requests: int
    ) -> list[SummaryT | NotFiniteError]:
        """`process` in one pass. A NaN affects the statistics of its own request only."""
        by_row = rows == 1 or None not in self._row_axes
        with np.errstate(all="ignore"):
            table, means, carried = self._statistics(arrays, rows if by_row else 1, requests)
            statistics = RunStatistics(
                "row" if by_row else "request",
                table,
                carried,
                np.add.reduce(means, axis=1),
                self._longest_closed(means),
            )
            return self._encode(statistics)

    def _statistics(
        self, arrays: Mapping[str, Array], rows: int, requests: int
    ) -> tuple[Array, Array, Array]:
        """Statistics of all gates in order; means of T by layer and row; the share that each row carries."""
        groups: dict[Any, list[int]] = {}
        for index, (name, kind) in enumerate(self._kinds):
            groups.setdefault((arrays[name].shape, kind), []).append(index)
        parts = [self._group_statistics(members, arrays, rows, requests) for members in groups.values()]
        table, means, carried = parts[0]
        if len(parts) > 1:
            order = np.argsort([index for members in groups.values() for index in members])
            table = np.concatenate([part[0] for part in parts], axis=1)[:, order]
            means = np.concatenate([part[1] for part in parts], axis=1)[:, order]
            carried = np.multiply.reduce([part[2] for part in parts])
        if len(self._layers) < len(self._gates):
            # the time steps of a recurrent layer count as one: their mean
            means = np.stack([means[:, members].mean(1) for members in self._layers], axis=1)
        return table, means, carried

    def _group_statistics(
        self, members: Sequence[int], arrays: Mapping[str, Array], rows: int, requests: int
    ) -> tuple[Array, Array, Array]:
        """The same for gates of one shape and kind."""
        gates = [self._gates[index] for index in members]
        axis = self._row_axes[members[0]]
        t = stack_gates([arrays[gate.name] for gate in gates], axis, requests, rows)
        means = mean_of_last_axis(t)
        mean = means[:, :, 0] if rows == 1 else mean_of_last_axis(means)
        if gates[0].carry_gate is None:
            table = gate_statistics(t, mean, None, self._epsilon, self._levels)
            c = np.subtract(1, t, out=t)
        else:
            carry_gates = [arrays[gate.carry_gate] for gate in gates if gate.carry_gate]
            c = stack_carry_gates(carry_gates, axis, t.shape)
            carried = mean_of_last_axis(c.reshape(*mean.shape, -1))
            table = gate_statistics(t, mean, carried, self._epsilon, self._levels)
        return table, means, carried_product(c, [gate.time for gate in gates])

    def _longest_closed(self, means: Array) -> Array:
        """The most consecutive layers that are closed: requests x rows."""
        requests, _, rows = means.shape
        if np.minimum.reduce(means, axis=None) >= self._epsilon:
            return np.zeros((requests, rows), np.int64)
        return longest_run(means < self._epsilon)


def unit_statistics(gate: Gate, t: Array) -> tuple[Array, Array]:
    """Mean and deviation of T by unit, over rows and positions. A unit that never varies is a fixed route."""
    by_unit = np.moveaxis(t, gate.unit_axis, -1).reshape(-1, t.shape[gate.unit_axis]).astype(np.float64)
    return by_unit.mean(0).astype(np.float32), by_unit.std(0).astype(np.float32)


def _row_axis(name: str, signature: Signature) -> int | None:
    """The axis of a hidden output along which its rows are in order; None if there is no such axis."""
    if name in signature.splittable:
        return 0
    dims = signature.hidden[name].dims
    return dims.index(signature.batch) if signature.batch is not None and signature.batch in dims else None


def _slice_requests(array: Array, start: int, stop: int, requests: int) -> Array:
    """The part of an output that belongs to requests `start` to `stop`."""
    per_request = len(array) // requests
    return array[start * per_request : stop * per_request]
