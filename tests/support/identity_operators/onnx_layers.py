"""Cases of ONNX layers, and of those into which onnxruntime joins operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.identity_operators.onnx_case import Known, OnnxCases, floats, integers, known_floats

CASES = OnnxCases()

for a, b in (
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)),
):
    CASES.node(f"MatMul {a} {b}", "MatMul", floats(*a), floats(*b))
CASES.node("MatMul, known integers", "MatMul", Known(integers(2, 3)), Known(integers(3, 4)))
CASES.node("MatMul, weights", "MatMul", floats(2, 3), known_floats(3, 4))
CASES.node("Gemm", "Gemm", floats(2, 3), known_floats(3, 4), known_floats(4))
CASES.node("Gemm without bias", "Gemm", floats(2, 3), known_floats(3, 4), alpha=0.5)
CASES.node(
    "Gemm, attributes",
    "Gemm",
    floats(3, 2),
    floats(4, 3),
    floats(2, 1),
    transA=1,
    transB=1,
    alpha=2.0,
    beta=0.5,
)
for equation, shapes in {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "ij,kj": ((3, 4), (5, 4)),
    "bi,oij,bj->bo": ((2, 3), (5, 3, 4), (2, 4)),
    "ij->j": ((3, 4),),
    "ij->ji": ((3, 4),),
    "bij,bjk->kib": ((2, 3, 4), (2, 4, 5)),
    "bqhd, bkhd -> bhqk": ((2, 3, 2, 4), (2, 5, 2, 4)),
}.items():
    CASES.node(f"Einsum {equation}", "Einsum", *(floats(*shape) for shape in shapes), equation=equation)

CONVOLUTIONS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ("", (2, 2, 7), (3, 2, 3), {}),
    ("strides, pads, dilations", (2, 2, 9), (3, 2, 3), {"strides": [2], "pads": [2, 1], "dilations": [2]}),
    ("group", (2, 6, 7), (4, 3, 3), {"group": 2, "pads": [1, 1]}),
    ("depthwise", (2, 3, 5, 6), (6, 1, 3, 3), {"group": 3}),
    ("images", (2, 2, 6, 7), (3, 2, 2, 3), {"strides": [1, 2], "pads": [0, 1, 2, 1], "dilations": [2, 1]}),
    ("volumes", (1, 2, 3, 4, 5), (3, 2, 2, 2, 2), {"strides": [1, 2, 1]}),
    ("SAME_UPPER", (2, 2, 7), (3, 2, 4), {"auto_pad": "SAME_UPPER"}),
    ("SAME_LOWER", (2, 2, 7), (3, 2, 4), {"auto_pad": "SAME_LOWER"}),
    ("SAME_UPPER, strides", (2, 2, 7), (3, 2, 3), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ("VALID", (2, 2, 7), (3, 2, 4), {"auto_pad": "VALID"}),
)
for name, x, w, attributes in CONVOLUTIONS:
    CASES.node(f"Conv {name}".strip(), "Conv", floats(*x), known_floats(*w), known_floats(w[0]), **attributes)
CASES.node("Conv without bias", "Conv", floats(2, 2, 7), known_floats(3, 2, 3))
CASES.node("Conv, weights of the input", "Conv", floats(2, 2, 7), floats(3, 2, 3))
TRANSPOSED: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ("", (2, 2, 5), (2, 3, 3), {}),
    ("strides and pads", (2, 2, 5), (2, 3, 4), {"strides": [2], "pads": [1, 2], "output_padding": [1]}),
    ("group and dilations", (2, 6, 5), (6, 2, 3), {"group": 2, "dilations": [2]}),
    (
        "images",
        (2, 2, 3, 4),
        (2, 3, 2, 3),
        {"strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    ),
    ("cropped", (2, 2, 5), (2, 3, 2), {"strides": [2], "pads": [2, 3]}),
)
for name, x, w, attributes in TRANSPOSED:
    bias = known_floats(w[1] * attributes.get("group", 1))
    CASES.node(
        f"ConvTranspose {name}".strip(), "ConvTranspose", floats(*x), known_floats(*w), bias, **attributes
    )

POOLS: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("", (2, 3, 7), {"kernel_shape": [2]}),
    ("strides and pads", (2, 3, 7), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
    ("ceil_mode", (2, 3, 8), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    ("ceil_mode and pads", (2, 3, 5), {"kernel_shape": [3], "strides": [3], "pads": [1, 1], "ceil_mode": 1}),
    ("images", (1, 2, 5, 6), {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 1, 0, 2]}),
    ("volumes", (1, 2, 4, 5, 4), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    ("SAME_UPPER", (2, 3, 7), {"kernel_shape": [4], "auto_pad": "SAME_UPPER"}),
    ("SAME_LOWER", (2, 3, 7), {"kernel_shape": [4], "auto_pad": "SAME_LOWER"}),
    ("SAME_UPPER, strides", (2, 3, 7), {"kernel_shape": [4], "auto_pad": "SAME_UPPER", "strides": [2]}),
    ("VALID", (2, 3, 7), {"kernel_shape": [4], "auto_pad": "VALID", "strides": [2]}),
)
for name, x, attributes in POOLS:
    CASES.node(f"MaxPool {name}".strip(), "MaxPool", floats(*x), **attributes)
    CASES.node(f"AveragePool {name}".strip(), "AveragePool", floats(*x), **attributes)
    CASES.node(
        f"AveragePool with padding {name}".strip(),
        "AveragePool",
        floats(*x),
        count_include_pad=1,
        **attributes,
    )
CASES.node("MaxPool dilations", "MaxPool", floats(2, 3, 9), kernel_shape=[3], dilations=[2], pads=[1, 1])

CASES.node("LayerNormalization", "LayerNormalization", floats(2, 3, 4), known_floats(4), known_floats(4))
CASES.node(
    "LayerNormalization axis", "LayerNormalization", floats(2, 3, 4), known_floats(3, 4), axis=1, epsilon=0.1
)
CASES.node("RMSNormalization", "RMSNormalization", floats(2, 3, 4), known_floats(4), opset=23)
CASES.node(
    "RMSNormalization axis",
    "RMSNormalization",
    floats(2, 3, 4),
    known_floats(3, 4),
    opset=23,
    axis=-2,
    epsilon=0.1,
)
statistics = (*(known_floats(3) for _ in range(3)), known_floats(3, low=0.1))
CASES.node("BatchNormalization", "BatchNormalization", floats(2, 3, 4), *statistics)
CASES.node("BatchNormalization epsilon", "BatchNormalization", floats(2, 3), *statistics, epsilon=0.1)
CASES.node(
    "GroupNormalization",
    "GroupNormalization",
    floats(2, 4, 3),
    known_floats(4),
    known_floats(4),
    opset=21,
    num_groups=2,
    epsilon=0.1,
)
CASES.node(
    "InstanceNormalization",
    "InstanceNormalization",
    floats(2, 3, 4, 5),
    known_floats(3),
    known_floats(3),
    epsilon=0.1,
)

STEPS, ROWS, INPUTS, UNITS = 5, 2, 3, 4
for operator, gates in (("GRU", 3), ("LSTM", 4)):
    results = ["y", "last"] if operator == "GRU" else ["y", "last", "cell"]
    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        layer = (
            floats(STEPS, ROWS, INPUTS),
            known_floats(count, gates * UNITS, INPUTS),
            known_floats(count, gates * UNITS, UNITS),
        )
        shared: dict[str, Any] = {"hidden_size": UNITS, "direction": direction, "outputs": results}
        biases = known_floats(count, 2 * gates * UNITS)
        states = [floats(count, ROWS, UNITS) for _ in results[1:]]
        CASES.node(f"{operator}, {direction}", operator, *layer, biases, **shared)
        CASES.node(f"{operator}, {direction} without biases", operator, *layer, **shared)
        CASES.node(f"{operator}, {direction} with states", operator, *layer, biases, None, *states, **shared)
        if operator == "GRU":
            CASES.node(
                f"GRU, {direction}, reset after", "GRU", *layer, biases, linear_before_reset=1, **shared
            )
activations = ["Sigmoid", "Tanh"]
CASES.node(
    "GRU, named activations",
    "GRU",
    floats(3, 2, 3),
    known_floats(1, 12, 3),
    known_floats(1, 12, 4),
    hidden_size=4,
    activations=activations,
    outputs=["", "last"],
)

MICROSOFT: dict[str, Any] = {"domain": "com.microsoft"}
CASES.node("FusedMatMul", "FusedMatMul", floats(2, 3, 4), known_floats(4, 5), alpha=0.5, **MICROSOFT)
CASES.node(
    "FusedMatMul transposed", "FusedMatMul", floats(2, 4, 3), floats(2, 5, 4), transA=1, transB=1, **MICROSOFT
)
transposes: tuple[dict[str, Any], ...] = ({}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1})
for number, transposed in enumerate(transposes):
    # rows or sums, a stack of two and one of three, sums or rows
    left, right = (4, 2, 3, 5), (5, 2, 3, 6)
    left = left[::-1][:1] + left[1:3] + left[:1] if "transA" in transposed else left
    right = right[::-1][:1] + right[1:3] + right[:1] if "transB" in transposed else right
    CASES.node(
        f"FusedMatMul across the stack {number}",
        "FusedMatMul",
        *(floats(*left), floats(*right)),
        transBatchA=1,
        transBatchB=1,
        **transposed,
        **MICROSOFT,
    )
for activation, parameters in {
    "": [],
    "HardSwish": [],
    "Relu": [],
    "Sigmoid": [],
    "Tanh": [],
    "LeakyRelu": [0.25],
    "Clip": [-0.5, 0.75],
}.items():
    options: dict[str, Any] = {"activation": activation, **MICROSOFT} if activation else MICROSOFT
    given: dict[str, Any] = {"activation_params": parameters} if parameters else {}
    layer = (floats(2, 2, 3, 7), known_floats(3, 2, 1, 3), known_floats(3))
    CASES.node(f"FusedConv {activation}".strip(), "FusedConv", *layer, **options, **given)
    if activation not in ("", "Clip", "HardSwish"):
        alpha: dict[str, Any] = {"activation_alpha": parameters[0]} if parameters else {}
        layer = (floats(2, 3), known_floats(3, 4), known_floats(4))
        CASES.node(f"FusedGemm {activation}", "FusedGemm", *layer, **options, **alpha)
layer = (floats(2, 3), known_floats(3, 4), known_floats(4))
gemm_activations: dict[str, dict[str, Any]] = {
    "HardSigmoid": {"activation_alpha": 0.25, "activation_beta": 0.375},
    "Elu": {"activation_alpha": 0.75},
    "Selu": {"activation_alpha": 1.5, "activation_gamma": 1.25},
    "Softsign": {},
}
for activation, given in gemm_activations.items():
    CASES.node(f"FusedGemm {activation}", "FusedGemm", *layer, activation=activation, **given, **MICROSOFT)
CASES.node(
    "FusedConv HardSigmoid",
    "FusedConv",
    *(floats(2, 2, 3, 7), known_floats(3, 2, 1, 3), known_floats(3)),
    activation="HardSigmoid",
    activation_params=[0.25, 0.375],
    **MICROSOFT,
)
CASES.node(
    "FusedConv with a sum",
    "FusedConv",
    floats(2, 2, 3, 7),
    known_floats(3, 2, 1, 3),
    known_floats(3),
    floats(2, 3, 3, 5),
    activation="Relu",
    **MICROSOFT,
)
CASES.node("QuickGelu", "QuickGelu", floats(9), **MICROSOFT)
CASES.node("QuickGelu alpha", "QuickGelu", floats(9), alpha=1.0, **MICROSOFT)
CASES.node("com.microsoft Gelu", "Gelu", floats(9), **MICROSOFT)
CASES.node("BiasGelu", "BiasGelu", floats(2, 4), known_floats(4), **MICROSOFT)
CASES.node("FastGelu", "FastGelu", floats(2, 4), **MICROSOFT)
CASES.node("FastGelu with a bias", "FastGelu", floats(2, 4), known_floats(4), **MICROSOFT)
summands = (floats(2, 3, 4), floats(2, 3, 4), known_floats(4))
CASES.node("SkipLayerNormalization", "SkipLayerNormalization", *summands, **MICROSOFT)
CASES.node(
    "SkipLayerNormalization with biases",
    "SkipLayerNormalization",
    *summands,
    known_floats(4),
    known_floats(4),
    outputs=["y", "", "", "sum"],
    epsilon=0.1,
    **MICROSOFT,
)

# no region of interest, and factors of the sizes
for name, mode, transformation in (
    ("nearest", "nearest", "asymmetric"),
    ("linear", "linear", "half_pixel"),
    ("aligned", "linear", "align_corners"),
    ("cubic", "cubic", "half_pixel"),
):
    CASES.node(
        f"Resize {name}",
        "Resize",
        floats(1, 2, 4, 5),
        None,
        Known(np.array([1, 1, 2, 2], np.float32)),
        mode=mode,
        coordinate_transformation_mode=transformation,
        nearest_mode="floor",
    )
CASES.node("Attention", "Attention", floats(2, 3, 4, 5), floats(2, 3, 6, 5), floats(2, 3, 6, 5), opset=23)
