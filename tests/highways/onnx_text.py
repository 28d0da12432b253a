"""Graphs in ONNX's text format that today's exporters do not write; x is (batch, 4)."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

WEIGHTS = {"w_h": (4, 4), "b_h": (4,), "w_t": (4, 4), "b_t": (4,), "w_c": (4, 4), "b_c": (4,)}

# as the old TorchScript exporter writes it: MatMul and Add, constants in nodes, sizes computed from shapes
TORCHSCRIPT = """
<ir_version: 6, opset_import: ["": 11]>
main (float[batch, 4] x) => (float[batch, 4] y) {
    batch_size = Shape (x)
    zero = Constant <value = int64 {0}> ()
    size = Gather <axis = 0> (batch_size, zero)
    sizes = Unsqueeze <axes = [0]> (size)
    four = Constant <value = int64[1] {4}> ()
    shape = Concat <axis = 0> (sizes, four)
    flat = Reshape (x, shape)
    v6 = MatMul (flat, w_h)
    v7 = Add (v6, b_h)
    v8 = Relu (v7)
    v9 = MatMul (flat, w_t)
    v10 = Add (b_t, v9)
    v11 = Sigmoid (v10)
    v12 = Mul (v8, v11)
    one = Constant <value = float {1}> ()
    ones = Cast <to = 1> (one)
    v14 = Sub (ones, v11)
    v15 = Mul (flat, v14)
    y = Add (v12, v15)
}
"""
# written by hand: a logistic function of its own, a sum of three terms, and a Dropout left in
HAND_WRITTEN = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] x) => (float[batch, 4] y) {
    one = Constant <value = float {1}> ()
    h0 = Gemm (x, w_h, b_h)
    h1 = Tanh (h0)
    h = Dropout (h1)
    g0 = Gemm (x, w_t, b_t)
    g1 = Neg (g0)
    g2 = Exp (g1)
    g3 = Add (one, g2)
    t = Reciprocal (g3)
    tx = Mul (t, x)
    less = Neg (tx)
    th = Mul (h, t)
    y = Sum (x, th, less)
}
"""
# one fused Linear [T | H] whose output is cut by a Split
FUSED_LINEAR = """
<ir_version: 8, opset_import: ["": 13]>
main (float[batch, 4] x) => (float[batch, 4] y) {
    w = Concat <axis = 1> (w_t, w_h)
    b = Concat <axis = 0> (b_t, b_h)
    one = Constant <value = float {1}> ()
    lengths = Constant <value = int64[2] {4, 4}> ()
    g0 = MatMul (x, w)
    g = Add (g0, b)
    tz, hz = Split <axis = -1> (g, lengths)
    t = Sigmoid (tz)
    h = Tanh (hz)
    c = Sub (one, t)
    carried = Mul (c, x)
    transformed = Mul (t, h)
    y = Add (transformed, carried)
}
"""
# the number of dimensions depends on the length of another input
UNKNOWN_RANK = """
<ir_version: 8, opset_import: ["": 13]>
main (float[batch, 4] x, int64[rank] shape) => (y) {
    flat = Reshape (x, shape)
    g0 = MatMul (flat, w_t)
    t = Sigmoid (g0)
    h = Tanh (flat)
    more = Sub (h, flat)
    let = Mul (t, more)
    y = Add (flat, let)
}
"""


def model_from_text(text: str) -> ModelProto:
    """The model of a text, with random weights for the names that the text does not define."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(text)
    used = {name for node in model.graph.node for name in node.input}
    for name, shape in WEIGHTS.items():
        if name in used:
            data = rng.normal(size=shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(data, name))
    return model


def weights_of(model: ModelProto) -> dict[str, np.ndarray]:
    return {
        tensor.name: numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer
    }
