"""A graph with its proof, and what is written of it: its bytes in fp32 or in a lower precision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from turnpike.export.errors import ParityError
from turnpike.export.graph_identity import decide_file
from turnpike.export.identity.decision import MAX_ERROR_BOUND, Decision, Verdict
from turnpike.export.network import Network, Rows
from turnpike.export.optimized.served_graph import ALL_OPTIMIZERS, ServedGraph, choose_optimizers
from turnpike.export.options import PrecisionOptions
from turnpike.export.output.model_bytes import weights_digest
from turnpike.export.output.repository import PLAIN_FILE, PlainTwin
from turnpike.export.parity.rounding import Rounding, measure_rounding
from turnpike.export.precision.compare import Comparison, compare, require_agreement
from turnpike.export.precision.lower import lower
from turnpike.export.prepared_graph import PreparedGraph, open_on_all_devices
from turnpike.export.steps import Steps
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.proof_records import Identity, RoundedConstant
from turnpike.service.artifact.runtime import Runtime, open_model


@dataclass(frozen=True)
class ProvedGraph:
    """A graph that was compared with its network in fp32, and what is written of it.

    Attributes:
        graph: The graph.
        runtime: The graph in fp32, open on the CPU.
        identity: Whether it is the network's function of every input; never `different`.
        proof: How far its rounding strays on batches of rows.
        data: The bytes to write: those of the graph, or of a variant of lower precision.
        comparison: How the variant compares with fp32.
        served: The optimizers that the service leaves out.
    """

    graph: PreparedGraph
    runtime: Runtime
    identity: Decision
    proof: Rounding
    data: bytes
    comparison: Comparison | None = None
    served: ServedGraph = ALL_OPTIMIZERS

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the graph, its proof and its precision."""
        compared = () if self.comparison is None else self.comparison.warnings
        return (*self.graph.warnings, *self.proof.warnings, *self.served.warnings, *compared)

    @property
    def manifest_fields(self) -> dict[str, Any]:
        """The manifest's fields about the proof and the precision."""
        return {
            "identity": identity_record(self.identity),
            "parity": self.proof.parity,
            "batch_coupled": self.proof.batch_coupled,
            "disabled_optimizers": self.served.disabled_optimizers,
            "variant": None if self.comparison is None else self.comparison.variant,
            "weights": weights_digest(self.graph.model),
        }


def identity_record(decision: Decision) -> Identity:
    """The manifest's record of a decision. Equal graphs have equal ones, whatever sizes were drawn."""
    if decision.verdict is Verdict.NOT_DECIDED:
        return Identity(verdict="not decided", reason=decision.reason or "")
    return Identity(
        verdict="identical",
        compared=len(decision.compared),
        runs=decision.runs,
        error_bound=MAX_ERROR_BOUND,
        rounded=tuple(
            RoundedConstant(name=constant.node, ulp=constant.ulp)
            for constant in decision.folded
            if constant.ulp > 0
        ),
        levers=0 if decision.levers is None else len(decision.levers.moved),
        carried=0 if decision.levers is None else len(decision.levers.carried),
        rows="not decided" if decision.rows is None else decision.rows.verdict.value,
    )


def prove_graph(graph: PreparedGraph, network: Network, seed: int, steps: Steps) -> ProvedGraph:
    """Decide that the graph is the network's function, and measure its rounding on every device."""
    served = choose_optimizers(graph.data)
    runtimes = open_on_all_devices(graph.data, served.disabled_optimizers)
    identity = decide_file("the exported graph", network, graph, graph.model, runtimes[0])
    rounding = _measure(
        graph,
        network,
        runtimes,
        seed,
        steps,
        decided=identity.verdict is Verdict.IDENTICAL,
        coupled=identity.coupled,
    )
    return ProvedGraph(graph, runtimes[0], identity, rounding, graph.data, served=served)


def prove_first(graphs: Sequence[PreparedGraph], network: Network, seed: int, steps: Steps) -> ProvedGraph:
    """Try the graphs in order, and return the first that is proved.

    A graph before the last is taken only if it is the network's function, answers each row alone, and its
    rounding keeps all bounds, which is measured first.
    """
    *preferred, last = graphs
    for graph in preferred:
        with suppress(ParityError):
            served = choose_optimizers(graph.data)
            runtimes = open_on_all_devices(graph.data, served.disabled_optimizers)
            rounding = _measure(graph, network, runtimes, seed, steps, decided=True, coupled=None)
            if not rounding.keeps_bounds:
                continue
            identity = decide_file("the exported graph", network, graph, graph.model, runtimes[0])
            if identity.verdict is Verdict.IDENTICAL and identity.coupled is None:
                return ProvedGraph(graph, runtimes[0], identity, rounding, graph.data, served=served)
    return prove_graph(last, network, seed, steps)


def _measure(
    graph: PreparedGraph,
    network: Network,
    runtimes: Sequence[Runtime],
    seed: int,
    steps: Steps,
    *,
    decided: bool,
    coupled: str | None,
) -> Rounding:
    return measure_rounding(
        network,
        graph.traced,
        graph.model,
        graph.gates.origins,
        runtimes=runtimes,
        seed=seed,
        progress=steps.listener.advanced,
        decided=decided,
        coupled=coupled,
    )


def lower_precision(proved: ProvedGraph, rows: Rows | None, options: PrecisionOptions) -> ProvedGraph:
    """The graph in the precision of the options, within their limits; the same graph if that is fp32.

    Without rows, it is compared with fp32 on the random rows of the proof.
    """
    if options.precision == "fp32":
        return proved
    graph = proved.graph
    data = lower(graph.data, options.precision)
    # the lower precision has other operators, of which the optimizer makes others
    served = choose_optimizers(data)
    comparison = compare(
        proved.runtime,
        open_model(data, disabled_optimizers=served.disabled_optimizers),
        rows or proved.proof.random_rows,
        precision=options.precision,
        gates=graph.gates.gates,
        sizes=(len(graph.data), len(data)),
        drawn=rows is None,
    )
    require_agreement(comparison, options)
    return replace(proved, data=data, comparison=comparison, served=served)


def plain_twin(proved: ProvedGraph, manifest: Manifest) -> PlainTwin:
    """The file without gates, and its manifest, given that of the file with gates."""
    fields = {"plain": True, "gates": (), "profile": None, "lesion": None, **proved.manifest_fields}
    return PlainTwin(manifest.model_copy(update=fields), proved.data)


def new_warnings(twin: ProvedGraph, proved: ProvedGraph) -> tuple[str, ...]:
    """The warnings of the twin's proof that the proof of the file with gates does not have."""
    return tuple(f"{PLAIN_FILE}: {text}" for text in twin.proof.warnings if text not in proved.proof.warnings)
