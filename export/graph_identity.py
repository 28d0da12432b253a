"""Decides whether an exported graph is the same function as its network, for every input."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import torch

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
from turnpike.export.identity.samples import ROW_SETS
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Network
from turnpike.export.parity.batches import DimensionSizes, choose_sizes
from turnpike.export.parity.weights import expect_same_weights
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.witness.find_witness import find_witness
from turnpike.service.artifact.runtime import Runtime

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

    It runs at three sets of sizes: one, four and three rows. A graph whose levers do not do what its gates
    say is different. Levers that are not decided leave the verdict as it is.

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
    sizes = choose_sizes(network)
    row_axes = None if sizes.batch is None else [sizes.row_axis(spec) for spec in network.inputs]
    with one_thread():
        decision = decide(
            reference,
            model,
            draw_shapes(network.inputs, sizes),
            hidden,
            trusted=graph.model,
            row_axes=row_axes,
            gates=graph.gates.gates,
        )
    if decision.verdict is not Verdict.IDENTICAL:
        return decision
    if row_axes is None:
        rows = RowDecision(RowVerdict.NOT_DECIDED, reason="the network takes one number of rows only")
        decision = replace(decision, rows=rows)
    levers = decision.levers
    if levers is None or levers.verdict is not Verdict.DIFFERENT:
        return decision
    return replace(
        decision, verdict=Verdict.DIFFERENT, different=levers.different, first_difference=levers.reason
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread: products of residues are small, and more threads mostly wait."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _adopted_graph(network: Network) -> ir.Model:
    if network.graph is None:
        raise ValueError("expected a network with a traced program or a graph, got neither")
    # nodes that lead to no output stay: hidden outputs are compared with them
    return ir.from_proto(network.graph)


def draw_shapes(inputs: Sequence[InputSpec], sizes: DimensionSizes) -> list[list[InputShape]]:
    """Shapes of the inputs for each set of rows. The first have the ordinary sizes, which are accepted."""
    others = [name for name in sizes.sizes if name != sizes.batch]

    def longer() -> dict[str, int]:
        return {name: sizes.sizes[name] + 1 + secrets.randbelow(MAX_LONGER) for name in others}

    def shapes(rows: int, **longer: int) -> list[InputShape]:
        dims = sizes.with_rows(rows, **longer)
        return [InputShape(np.dtype(spec.dtype), spec.shape(**dims)) for spec in inputs]

    if sizes.batch is None:
        drawn = [{}, longer(), longer()] if others else [{}]
        return [shapes(1, **other) for other in drawn]
    # rows are comparable at the same other sizes
    same = longer()
    first, *rest = ROW_SETS
    return [shapes(len(first)), *(shapes(len(rows), **same) for rows in rest)]


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
    decision = decide_identity(network, graph, model)
    if decision.verdict is not Verdict.IDENTICAL:
        expect_same_weights(network, graph.traced, model)
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
