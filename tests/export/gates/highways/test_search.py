"""The search of a graph says how many gates it found that cannot be outputs, and where."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from turnpike.export.gates.instrument import instrument

BRANCH = """
    NAME_t = Sigmoid (a)
    NAME_h = Tanh (a)
    NAME_more = Sub (NAME_h, x)
    NAME_let = Mul (NAME_t, NAME_more)
    NAME = Add (x, NAME_let)
"""
GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] x, bool choice) => (float[batch, 4] y) {
    a = Neg (x)
    y = If <
        then_branch = yes () => (float[batch, 4] kept) {THEN},
        else_branch = no () => (float[batch, 4] other) {ELSE}
    > (choice)
}
"""


@pytest.mark.parametrize(("places", "where"), [({}, "the If y"), ({"y": "net.py:3"}, "net.py:3")])
def test_the_gates_of_both_branches_are_one_warning(places: dict[str, str], where: str) -> None:
    """It has their number, and the line of the user's code where it is known."""
    text = GRAPH.replace("THEN", BRANCH.replace("NAME", "kept")).replace(
        "ELSE", BRANCH.replace("NAME", "other")
    )
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert instrument(model, places=places).warnings == (
        f"gates that are not in the file: 2 in a branch: {where}",
    )
