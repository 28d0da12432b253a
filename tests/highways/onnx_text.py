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
# the same logistic function with a division, and a product with a constant in front
DIVIDED = HAND_WRITTEN.replace("Reciprocal (g3)", "Div (one, g3)").replace(
    "g1 = Neg (g0)", "minus = Constant <value = float {-1}> ()\n    g1 = Mul (minus, g0)"
)
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
# as jax2onnx writes jnp.einsum, and a product of matrices with a bias of zero that is left out
JAX = """
<ir_version: 10, opset_import: ["": 18]>
main (float[batch, 4] x) => (float[batch, 4] y) {
    axis = Constant <value = int64[1] {0}> ()
    nothing = Constant <value = float {0}> ()
    w = Unsqueeze (w_t, axis)
    g0 = Einsum <equation = "...i,...io->...o"> (x, w)
    g1 = Add (g0, b_t)
    t = Sigmoid (g1)
    h0 = Gemm <alpha = 1.0, beta = 0.0> (x, w_h, nothing)
    h1 = Add (h0, b_h)
    h = Relu (h1)
    more = Sub (h, x)
    let = Mul (t, more)
    y = Add (x, let)
}
"""
# as tf2onnx writes Keras: 1 is computed from the shape of the gate, and matrices have two dimensions
KERAS = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] x) => (float[batch, 4] y) {
    wide = Constant <value = int64[2] {-1, 4}> ()
    sizes0 = Shape (x)
    sizes1 = Cast <to = 6> (sizes0)
    places = Constant <value = int64[2] {0, 1}> ()
    sizes2 = Gather <axis = 0> (sizes1, places)
    sizes = Cast <to = 7> (sizes2)
    flat = Reshape (x, wide)
    h0 = MatMul (flat, w_h)
    h1 = Reshape (h0, sizes)
    h2 = Add (h1, b_h)
    h = Relu (h2)
    g0 = MatMul (flat, w_t)
    g1 = Reshape (g0, sizes)
    g2 = Add (g1, b_t)
    t = Sigmoid (g2)
    t_sizes = Shape (t)
    ones = ConstantOfShape <value = float[1] {1}> (t_sizes)
    c = Sub (ones, t)
    a = Mul (t, h)
    b = Mul (c, x)
    y = Add (a, b)
}
"""
# T and 1 - T, and H and x, joined and added by a ReduceSum
JOINED = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] x) => (float[batch, 4] y) {
    one = Constant <value = float {1}> ()
    axis = Constant <value = int64[1] {1}> ()
    sizes = Constant <value = int64[3] {0, 2, 4}> ()
    h0 = Gemm (x, w_h, b_h)
    h = Tanh (h0)
    g0 = Gemm (x, w_t, b_t)
    t = Sigmoid (g0)
    c = Sub (one, t)
    gates = Concat <axis = 1> (t, c)
    values = Concat <axis = 1> (h, x)
    products = Mul (gates, values)
    halves = Reshape (products, sizes)
    y = ReduceSum <keepdims = 0> (halves, axis)
}
"""
# the same, where a constant without its axis multiplies the joined products
JOINED_AND_SCALED = JOINED.replace(
    "products = Mul (gates, values)",
    "unscaled = Mul (gates, values)\n    first = Constant <value = int64[1] {0}> ()\n"
    "    row = Constant <value = float[1] {1}> ()\n    number = Squeeze (row, first)\n"
    "    products = Mul (unscaled, number)",
)
# twice the sum, where the 2 has the joined axis and one element along it
JOINED_AND_DOUBLED = JOINED.replace(
    "y = ReduceSum <keepdims = 0> (halves, axis)",
    "two = Constant <value = float[1, 1, 1] {2}> ()\n    twice = Mul (halves, two)\n"
    "    y = ReduceSum <keepdims = 0> (twice, axis)",
)
# twice the mean of the joined products
JOINED_MEAN = JOINED.replace(
    "y = ReduceSum <keepdims = 0> (halves, axis)",
    "mean = ReduceMean <axes = [1], keepdims = 0> (halves)\n"
    "    two = Constant <value = float {2}> ()\n    y = Mul (mean, two)",
)
# the same for an opset in which the axes of a ReduceSum are an attribute
JOINED_IN_OLD_OPSET = (
    JOINED.replace('"": 17', '"": 12')
    .replace("keepdims = 0> (halves, axis)", "axes = [1], keepdims = 0> (halves)")
    .replace("    axis = Constant <value = int64[1] {1}> ()\n", "")
)
# no highway: one gate for H and x, and then a gated residual of their sum
JOINED_WITH_ONE_GATE = JOINED.replace("Concat <axis = 1> (t, c)", "Concat <axis = 1> (t, t)").replace(
    "    y = ReduceSum <keepdims = 0> (halves, axis)",
    "    sum = ReduceSum <keepdims = 0> (halves, axis)\n    g1 = Gemm (sum, w_c, b_c)\n"
    "    t1 = Sigmoid (g1)\n    h1 = Tanh (sum)\n    more = Mul (t1, h1)\n    y = Add (sum, more)",
)
# one Linear whose outputs belong to T and to H in turn
INTERLEAVED = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, UNITS] x) => (float[batch, UNITS] y) {
    zero = Constant <value = int64[1] {0}> ()
    one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {2}> ()
    end = Constant <value = int64[1] {99}> ()
    both = Gemm (x, w, b)
    tz = Slice (both, zero, end, one, two)
    hz = Slice (both, one, end, one, two)
    t = Sigmoid (tz)
    h = Tanh (hz)
    more = Sub (h, x)
    let = Mul (t, more)
    y = Add (x, let)
}
"""
# the logit is joined of two linear maps
JOINED_LOGITS = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] x) => (float[batch, 8] y) {
    first = Gemm (x, w_t, b_t)
    second = Gemm (x, w_c, b_c)
    z = Concat <axis = AXIS> (first, second)
    all = Concat <axis = 1> (x, x)
    t = Sigmoid (z)
    h = Tanh (all)
    difference = Sub (h, all)
    let = Mul (t, difference)
    y = Add (all, let)
}
"""
# of a linear map and of an input of any length
JOINED_WITH_UNKNOWN = (
    JOINED_LOGITS.replace("x) => (float[batch, 8] y)", "x, float[batch, n] second) => (float[batch, m] y)")
    .replace("    second = Gemm (x, w_c, b_c)\n", "")
    .replace("Concat <axis = 1> (x, x)", "Concat <axis = 1> (x, second)")
    .replace("AXIS", "1")
)
# a gate without a bias, and an input with the name that onnx_ir gives to the first value without one
WITHOUT_BIAS = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, 4] val_0) => (float[batch, 4] y) {
    z = MatMul (val_0, w_t)
    t = Sigmoid (z)
    h = Tanh (z)
    more = Sub (h, val_0)
    let = Mul (t, more)
    y = Add (val_0, let)
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
