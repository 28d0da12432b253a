"""A model that returns its input."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper


def identity_model(dtype: str) -> bytes:
    """A file with the input `x` and the output `y`, rows of three values of this dtype."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "identity",
        [helper.make_tensor_value_info("x", kind, ["batch", 3])],
        [helper.make_tensor_value_info("y", kind, ["batch", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()
