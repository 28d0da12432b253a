"""Decides whether a cut graph is the same function as the whole one in which the removed units carry."""

from __future__ import annotations

from turnpike.export.errors import ParityError
from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.network import Network
from turnpike.export.prepared_graph import PreparedGraph

# outputs that an error names
MAX_NAMES = 3


def expect_same_function(reference: Network, cut: PreparedGraph) -> Decision:
    """The decision about a cut graph, for every input.

    Args:
        reference: The network whose graph is `carried_reference`.
        cut: The cut graph, with its gates.

    Raises:
        ParityError: It is another function.
    """
    decision = decide_identity(reference, cut, cut.model)
    if decision.verdict is Verdict.DIFFERENT:
        raise ParityError(
            "expected the same function as the whole network with the removed units carried, got one that "
            f"differs in {', '.join(decision.different[:MAX_NAMES])}: the first difference is at "
            f"{decision.first_difference}"
        )
    return decision
