"""Decides whether an exported graph is the same function as its network, for every input."""

from __future__ import annotations

import secrets

import numpy as np
import onnx_ir as ir

from turnpike.export.errors import ParityError
from turnpike.export.gates.levers import drop_levers
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, HiddenOutput, InputShape, Verdict
from turnpike.export.network import Network
from turnpike.export.parity.batches import choose_sizes
from turnpike.export.parity.weight_origins import check_weights
from turnpike.export.prepared_graph import PreparedGraph

# Numbers of rows are drawn up to here, an odd number. A graph may not compute with them, so a few are enough.
MAX_ROWS = 5
# added to the ordinary size of other dimensions
MAX_LONGER = 4
# outputs that an error names
MAX_NAMES = 3


def decide_identity(network: Network, graph: PreparedGraph, model: ir.Model) -> Decision:
    """Decide whether a graph is the network's function in all outputs, gates and layers.

    It runs at three sets of sizes: one row, an odd number of rows, and any number.

    Args:
        network: The network.
        graph: The graph that was exported here from the network.
        model: The graph to decide about: that one, or one from a file.
    """
    reference = graph.traced.program if graph.traced is not None else _adopted_graph(network)
    hidden = {
        name: HiddenOutput(origin.value, origin.row_axis, origin.complement)
        for name, origin in graph.gates.origins.items()
    }
    return decide(reference, model, _draw_shapes(network), hidden, trusted=graph.model)


def _adopted_graph(network: Network) -> ir.Model:
    if network.graph is None:
        raise ValueError("expected a network with a traced program or a graph, got neither")
    model = ir.from_proto(network.graph)
    drop_levers(model)
    return model


def _draw_shapes(network: Network) -> list[list[InputShape]]:
    sizes = choose_sizes(network)
    others = [name for name in sizes.sizes if name != sizes.batch]
    shapes = []
    for rows in (1, 3 + 2 * secrets.randbelow(MAX_ROWS // 2), 2 + secrets.randbelow(MAX_ROWS - 1)):
        # the first set has the ordinary sizes, which every network accepts
        longer = {name: sizes.sizes[name] + secrets.randbelow(MAX_LONGER) for name in others if rows > 1}
        dims = sizes.with_rows(rows, **longer)
        shapes.append([InputShape(np.dtype(spec.dtype), spec.shape(**dims)) for spec in network.inputs])
    return shapes if sizes.batch is not None or others else shapes[:1]


def decide_file(what: str, network: Network, graph: PreparedGraph, model: ir.Model) -> Decision:
    """The decision about a graph from a file, which is not `different`; see `decide_identity`.

    Raises:
        ParityError: It is another function. The error names a weight that differs, if there is one.
    """
    differing_weight = None
    try:
        check_weights(network, graph.traced, model)
    except ParityError as error:
        differing_weight = error
    decision = decide_identity(network, graph, model)
    if differing_weight is not None and decision.verdict is not Verdict.IDENTICAL:
        raise differing_weight
    expect_not_different(decision, what)
    return decision


def expect_not_different(decision: Decision, what: str) -> None:
    """Raise a ParityError if a graph is another function than its network. `what` names it in the error."""
    if decision.verdict is not Verdict.DIFFERENT:
        return
    others = len(decision.different) - MAX_NAMES
    names = ", ".join(decision.different[:MAX_NAMES]) + (f" and {others} more" if others > 0 else "")
    place = (
        ""
        if decision.first_difference is None
        else f"; the first node that differs is {decision.first_difference}"
    )
    raise ParityError(
        f"{what}: expected the same function of every input as the network, got one that differs in "
        f"{names}{place}"
    )
