"""A model with two inputs and without a manifest."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def two_input_model() -> bytes:
    """A model with a float and an integer input, as another tool may have written it."""
    weight = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["a", "weight"], ["scores"]),
            helper.make_node("Add", ["b", "b"], ["twice"]),
        ],
        "bare",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["batch", 2]),
            helper.make_tensor_value_info("b", TensorProto.INT64, ["batch", 4]),
        ],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("twice", TensorProto.INT64, ["batch", 4]),
        ],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()
