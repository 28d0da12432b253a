"""Searches one graph for highways: the whole one, or the body of a loop in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from turnpike.export.gates.algebra.logits import LogitTracer
from turnpike.export.gates.graph.inner_graphs import InnerGraph, unshown_graphs
from turnpike.export.gates.graph.shapes import infer_shapes
from turnpike.export.gates.graph.unstacked_forms import UnstackedForms
from turnpike.export.gates.graph.view import GraphView
from turnpike.export.gates.highways.highway import Highway, HighwayFinder
from turnpike.export.gates.highways.other_gates import OtherGate, OtherGateFinder


@dataclass(frozen=True, eq=False)
class SearchedGraph:
    """What was found in one graph: the whole one, or the body of a loop, which is detached until `finish`.

    Attributes:
        graph: The graph that was searched.
        body: The loop that the graph is the body of; None for the whole graph.
        view: The order of its nodes.
        logits: The logits of its gates.
        highways: Those whose gates can be outputs.
        unshown: Why the other gates cannot be outputs.
        other_gates: Sigmoids that multiply something and belong to no highway.
        unstacked: The nodes that the search added.
    """

    graph: ir.Graph
    body: InnerGraph | None
    view: GraphView
    logits: LogitTracer
    highways: tuple[Highway, ...]
    unshown: dict[ir.Value, str]
    other_gates: tuple[OtherGate, ...]
    unstacked: UnstackedForms

    def finish(self) -> None:
        """Remove what nothing uses, and put a body back into the graph around it."""
        self.unstacked.remove_unused()
        if self.body is not None:
            self.body.attach()


def search_graph(model: ir.Model, body: InnerGraph | None = None, batch: str | None = None) -> SearchedGraph:
    """Search the graph of a model, or the body of a loop in it; `batch` is the name of the rows."""
    graph = model.graph if body is None else body.graph
    if body is not None:
        body.detach()
        graph.opset_imports.update(model.opset_imports)
    alone = model if body is None else ir.Model(graph, ir_version=model.ir_version)
    infer_shapes(alone)
    opset = model.opset_imports.get("") or 0
    unstacked = UnstackedForms(graph, opset)
    infer_shapes(alone)
    finder = HighwayFinder(graph, unstacked, {} if body is None else body.states, opset)
    found = finder.find()
    reasons = {highway: _why_unshown(highway, body, batch) for highway in found}
    return SearchedGraph(
        graph,
        body,
        finder.view,
        finder.logits,
        highways=tuple(highway for highway, reason in reasons.items() if reason is None),
        unshown={highway.transform.gate: reason for highway, reason in reasons.items() if reason is not None},
        other_gates=tuple(OtherGateFinder(finder, found).find()),
        unstacked=unstacked,
    )


def _why_unshown(highway: Highway, body: InnerGraph | None, batch: str | None) -> str | None:
    """Why a gate cannot be an output; None if it can."""
    for value in (highway.output, highway.transform.gate):
        if value.shape is None:
            return "the number of dimensions depends on the input"
        if body is not None:
            sizes = [size if isinstance(size, int) else size.value for size in value.shape]
            has_rows = len(sizes) > 1 and (batch is None or sizes[0] in (batch, None))
            if not has_rows or (batch is not None and body.step_count == batch):
                return "the rows are not the first axis at a step of the loop"
    return None


def unshown_sentences(searched: SearchedGraph, places: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each reason, with the first gate that it is true of."""
    for reason in dict.fromkeys(searched.unshown.values()):
        gates = [str(gate.name) for gate, why in searched.unshown.items() if why == reason]
        more = f" and {len(gates) - 1} more" if len(gates) > 1 else ""
        yield f"gates that are not in the file: {places.get(gates[0], gates[0])}{more}: {reason}"


def search_unshown_bodies(model: ir.Model, places: Mapping[str, str]) -> tuple[list[str], list[OtherGate]]:
    """Search the graphs inside the graph whose gates cannot be outputs: branches, and loops inside loops.

    Returns:
        A sentence for each operator that has gates inside, and the sigmoids inside that belong to no highway.
    """
    counts: Counter[str] = Counter()
    other_gates: list[OtherGate] = []
    for body in unshown_graphs(model.graph):
        searched = search_graph(model, body)
        searched.finish()
        other_gates += searched.other_gates
        if searched.highways:
            node = body.node
            inside = "a branch" if node.op_type == "If" else "an inner loop"
            name = f"the {node.op_type} {node.name or node.outputs[0].name}"
            counts[f"{inside}: {places.get(str(node.outputs[0].name), name)}"] += len(searched.highways)
    sentences = [f"gates that are not in the file: {count} in {where}" for where, count in counts.items()]
    return sentences, other_gates
