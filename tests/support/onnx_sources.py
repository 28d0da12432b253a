"""Small ONNX files as other tools write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from turnpike.export.network import Network
from turnpike.service.artifact.runtime import open_model

WEIGHT = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, "w")
ROWS = np.ones((2, 4), np.float32)


def value(name: str, *dims: object, dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)  # type: ignore[arg-type]


def dense(*more: NodeProto) -> list[NodeProto]:
    """Nodes for y = x w; if more nodes are given, x w is h and they compute y."""
    if not more:
        return [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return [helper.make_node("MatMul", ["x", "w"], ["h"]), *more]


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto] = (value("x", "n", 4),),
    outputs: Sequence[ValueInfoProto] = (value("y", "n", 3),),
    initializers: Sequence[TensorProto] = (WEIGHT,),
    version: int = 20,
    ir_version: int = 8,
    **more: Any,
) -> ModelProto:
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializers)
    imports = [
        helper.make_opsetid("", version),
        helper.make_opsetid("com.microsoft", 1),
        *more.pop("imports", []),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, **more)


def outputs_of(network: Network, **feeds: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    assert network.graph is not None
    return open_model(network.graph.SerializeToString()).run(feeds)
