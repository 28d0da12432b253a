"""Serialized graphs are valid."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from turnpike.export.errors import ExportError
from turnpike.export.output.model_bytes import to_bytes

GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] x) => (float[batch, SIZE] y) {
    y = Neg (x)
}
"""


def test_a_graph_whose_shapes_contradict_each_other_is_an_error() -> None:
    """Only the full check infers shapes."""
    for size in (4, 5):
        proto = onnx.parser.parse_model(GRAPH.replace("SIZE", str(size)))
        onnx.checker.check_model(proto)
        if size == 4:
            assert onnx.load_from_string(to_bytes(ir.from_proto(proto))).graph.node[0].op_type == "Neg"
        else:
            with pytest.raises(ExportError, match="onnx's checker rejects the graph: .*5"):
                to_bytes(ir.from_proto(proto))
