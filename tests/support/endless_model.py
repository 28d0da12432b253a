"""A model that never ends: a loop of 2**62 turns, which the runtime opens without complaint."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def endless_model(turns: int = 2**62) -> bytes:
    """y = x * 0.999 ** turns, in a loop."""

    def value(
        name: str, dtype: int = TensorProto.FLOAT, dims: tuple[int | str, ...] = ("batch", 4)
    ) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, dims)

    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still_on"]), helper.make_node("Mul", ["a", "k"], ["b"])],
        "body",
        [value("turn", TensorProto.INT64, ()), value("on", TensorProto.BOOL, ()), value("a")],
        [value("still_on", TensorProto.BOOL, ()), value("b")],
        [numpy_helper.from_array(np.array(0.999, np.float32), "k")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["turns", "yes", "x"], ["y"], body=body)],
        "endless",
        [value("x")],
        [value("y")],
        [
            numpy_helper.from_array(np.array(turns, np.int64), "turns"),
            numpy_helper.from_array(np.array(True), "yes"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return model.SerializeToString()
