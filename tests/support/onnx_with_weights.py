"""ONNX models with weights of given shapes, to test how the size of weights is measured."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def model_with_weights(shapes: dict[str, tuple[int, ...]], dtype: type[np.generic] = np.float32) -> bytes:
    """A model that returns its input, with these initializers."""
    initializers = [numpy_helper.from_array(np.zeros(shape, dtype), name) for name, shape in shapes.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    node = helper.make_node("Identity", ["x"], ["y"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph([node], "g", [x], [y], initializers)
    content: bytes = helper.make_model(graph, producer_name="turnpike").SerializeToString()
    return content
