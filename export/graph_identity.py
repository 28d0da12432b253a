"""Decides whether an exported graph is the same function as its network, for every input."""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from turnpike.export.errors import ParityError
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import (
    Decision,
    HiddenOutput,
    InputShape,
    RowDecision,
    RowVerdict,
    Verdict,
)
from turnpike.export.identity.levers import decide_levers
from turnpike.export.identity.rows import decide_rows
from turnpike.export.network import Network
from turnpike.export.parity.batches import choose_sizes
from turnpike.export.parity.weight_origins import check_weights
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.witness.find_witness import find_witness
from turnpike.service.artifact.runtime import Runtime

# Numbers of rows are drawn up to here. A graph may not compute with them, so a few are enough.
MAX_ROWS = 4
# rows that levers are decided on: two show a lever that works in the first one only
LEVER_ROWS = 2
# added to the ordinary size of other dimensions
MAX_LONGER = 4
# outputs that an error names
MAX_NAMES = 3
NO_WITNESS = (
    "No input that shows it was found: rounding hides many differences, and not all inputs were tried."
)


def decide_identity(network: Network, graph: PreparedGraph, model: ir.Model) -> Decision:
    """Decide whether a graph is the network's function in all outputs, gates and layers, and its levers work.

    If it is, also decide whether each row of a batch is answered alone.

    It runs at three sets of sizes: one row, an odd number of rows, and any number. A graph whose levers do
    not do what its gates say is different. Levers that are not decided leave the verdict as it is.

    Args:
        network: The network.
        graph: The graph that was exported here from the network.
        model: The graph to decide about: that one, or one from a file.
    """
    reference = graph.traced.program if graph.traced is not None else _adopted_graph(network)
    hidden = {
        name: HiddenOutput(origin.value, origin.row_axis, origin.scale, origin.offset)
        for name, origin in graph.gates.origins.items()
    }
    shapes = _draw_shapes(network)
    decision = decide(reference, model, shapes, hidden, trusted=graph.model)
    if decision.verdict is not Verdict.IDENTICAL:
        return decision
    decision = replace(decision, rows=decide_row_independence(network, graph))
    gates = graph.gates.gates
    if not gates:
        return decision
    levers = decide_levers(model, gates, _input_shapes(network, LEVER_ROWS), graph.model)
    decision = replace(
        decision, levers=levers, error_bound=min(1.0, decision.error_bound + levers.error_bound)
    )
    if levers.verdict is not Verdict.DIFFERENT:
        return decision
    return replace(
        decision, verdict=Verdict.DIFFERENT, different=levers.different, first_difference=levers.reason
    )


def decide_row_independence(network: Network, graph: PreparedGraph) -> RowDecision:
    """Decide whether the network answers each row of a batch alone, in its outputs, gates and layers."""
    sizes = choose_sizes(network)
    if sizes.batch is None:
        return RowDecision(RowVerdict.NOT_DECIDED, reason="the network takes one number of rows only")
    axes = [sizes.row_axis(spec) for spec in network.inputs]
    return decide_rows(graph.model, _input_shapes(network, 1), axes, graph.gates.origins.keys())


def _adopted_graph(network: Network) -> ir.Model:
    if network.graph is None:
        raise ValueError("expected a network with a traced program or a graph, got neither")
    # nodes that lead to no output stay: hidden outputs are compared with them
    return ir.from_proto(network.graph)


def _draw_shapes(network: Network) -> list[list[InputShape]]:
    sizes = choose_sizes(network)
    others = [name for name in sizes.sizes if name != sizes.batch]
    shapes = []
    for rows in (1, 3, 2 + secrets.randbelow(MAX_ROWS - 1)):
        # the first set has the ordinary sizes, which every network accepts
        longer = {name: sizes.sizes[name] + 1 + secrets.randbelow(MAX_LONGER) for name in others if rows > 1}
        shapes.append(_input_shapes(network, rows, **longer))
    return shapes if sizes.batch is not None or others else shapes[:1]


def _input_shapes(network: Network, rows: int, **longer: int) -> list[InputShape]:
    """The shapes of the inputs for a number of rows, and other sizes than the ordinary ones."""
    dims = choose_sizes(network).with_rows(rows, **longer)
    return [InputShape(np.dtype(spec.dtype), spec.shape(**dims)) for spec in network.inputs]


def decide_file(
    what: str, network: Network, graph: PreparedGraph, model: ir.Model, runtime: Runtime
) -> Decision:
    """The decision about a graph, which is not `different`; see `decide_identity`.

    Args:
        what: The name of the graph in errors.
        network: The network.
        graph: The graph that was exported here from the network.
        model: The graph to decide about.
        runtime: That graph, open.

    Raises:
        ParityError: It is another function. The error names a weight that differs, if there is one; if not,
            the outputs that differ, and an input that shows it, if one is found.
    """
    differing_weight = None
    if model is not graph.model:
        try:
            check_weights(network, graph.traced, model)
        except ParityError as error:
            differing_weight = error
    decision = decide_identity(network, graph, model)
    if differing_weight is not None and decision.verdict is not Verdict.IDENTICAL:
        raise differing_weight
    if decision.verdict is Verdict.DIFFERENT:
        message = f"{what}: {_difference(decision)}"
        if decision.levers is not None:  # the same function, as long as nobody moves a lever
            raise ParityError(message)
        raise ParityError(
            f"{message}. {find_witness(network, graph, model, runtime, decision) or NO_WITNESS}"
        )
    return decision


def _difference(decision: Decision) -> str:
    """What differs, in words."""
    others = len(decision.different) - MAX_NAMES
    names = ", ".join(decision.different[:MAX_NAMES]) + (f" and {others} more" if others > 0 else "")
    if decision.levers is not None and decision.levers.verdict is Verdict.DIFFERENT:
        expected = "expected levers that move their own gates alone, and layers that carry when closed"
        return f"{expected}: {decision.levers.reason}"
    place = decision.first_difference
    return (
        f"expected the same function of every input as the network, got one that differs in {names}"
        f"{'' if place is None else f'; the first node that differs is {place}'}"
    )
