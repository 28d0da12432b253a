"""Model files with weights of given shapes, which do nothing."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def graph(weights: dict[str, tuple[int, ...]], dtype: type[np.generic] = np.float32) -> bytes:
    """The bytes of a model with such weights."""
    held = [numpy_helper.from_array(np.zeros(shape, dtype), name) for name, shape in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    node = helper.make_node("Identity", ["x"], ["y"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    content: bytes = helper.make_model(
        helper.make_graph([node], "g", [x], [y], held), producer_name="turnpike"
    ).SerializeToString()
    return content
