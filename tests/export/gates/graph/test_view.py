"""The read-only view of a graph: which nodes change nothing, and which values are equal."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from turnpike.export.gates.graph.nodes import is_pass_through
from turnpike.export.gates.graph.view import GraphView

GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] x) => (y) {
    half = Constant <value = float {0.5}> ()
    yes = Constant <value = bool {1}> ()
    no = Constant <value = bool {0}> ()
    y = NODE
}
"""


@pytest.mark.parametrize(
    ("node", "passes"),
    [
        ("Dropout (x)", True),
        ("Dropout (x, half)", True),
        ("Dropout (x, half, no)", True),
        ("Dropout (x, half, yes)", False),
        ("Identity (x)", True),
        ("Cast <to = 10> (x)", True),
        ("Cast <to = 7> (x)", False),
        ("Neg (x)", False),
    ],
)
def test_dropout_changes_nothing_outside_of_training(node: str, passes: bool) -> None:
    """Neither does a cast to another float type. The value counts as the one before it."""
    view = GraphView(ir.from_proto(onnx.parser.parse_model(GRAPH.replace("NODE", node))).graph)
    last = view.nodes[-1]
    assert is_pass_through(last) == passes
    assert (view.canonical(last.outputs[0]) is view.graph.inputs[0]) == passes
