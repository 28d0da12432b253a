"""Runs a model on OpenVINO, and on the CPU's own provider what OpenVINO would compute wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from service.inference_types import Array

# runs a session: the outputs of these names, from these feeds
SessionRun = Callable[[Sequence[str], dict[str, Array]], list[Array]]


class OpenVinoRun:
    """Runs a model that is open in three sessions.

    OpenVINO ignores tensors that override weights, without an error, so runs that override levers take place
    on the CPU's own provider. OpenVINO computes all outputs of a graph, also those that are not requested, so
    predictions have a graph without hidden outputs. Public outputs always come from this graph, since the
    other one may compute other last bits.

    Args:
        on_cpu: Runs the whole graph on the CPU's own provider.
        without_gates: Runs the graph without hidden outputs on OpenVINO.
        with_gates: Runs the graph with hidden outputs on OpenVINO.
        public: The names of the public outputs.
        levers: The names of the weights that may be overridden.
    """

    def __init__(
        self,
        on_cpu: SessionRun,
        without_gates: SessionRun,
        with_gates: SessionRun,
        public: Collection[str],
        levers: Collection[str],
    ) -> None:
        self._on_cpu, self._without_gates, self._with_gates = on_cpu, without_gates, with_gates
        self._public, self._levers = frozenset(public), frozenset(levers)

    def __call__(self, names: Sequence[str], feeds: dict[str, Array]) -> list[Array]:
        if not self._levers.isdisjoint(feeds):
            return self._on_cpu(names, feeds)
        if self._public.issuperset(names):
            return self._without_gates(names, feeds)
        public = [name for name in names if name in self._public]
        hidden = [name for name in names if name not in self._public]
        arrays = dict(zip(hidden, self._with_gates(hidden, feeds), strict=True))
        if public:
            arrays.update(zip(public, self._without_gates(public, feeds), strict=True))
        return [arrays[name] for name in names]
