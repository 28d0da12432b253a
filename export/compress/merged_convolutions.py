"""Makes one convolution of those for H and T, in a layer that lost channels.

onnxruntime computes the channels of a convolution in blocks of 16 (8 on older processors), so that one for 20
channels takes as long as one for 32. Two convolutions waste two unfilled blocks, and one with the channels of
both wastes one. Each convolution also rearranges its input, which is the same for H and T.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx_ir as ir

from export.compress.sliced_values import SlicedValues
from export.gates.graph.nodes import Array, attribute, first_input


def merge_convolutions(sliced: SlicedValues) -> None:
    """Replace convolutions of the same input by one and a Slice for each, among the new nodes of a layer.

    Batch normalization behind such a convolution becomes a part of its weights.
    """
    alike: dict[tuple[ir.Value, str], list[ir.Node]] = defaultdict(list)
    for node in sliced.nodes:
        if node.op_type == "Conv" and all(_is_fixed(value, sliced) for value in node.inputs[1:]):
            attributes = {name: entry.value for name, entry in sorted(node.attributes.items())}
            alike[first_input(node), str(attributes)].append(node)
    for nodes in alike.values():
        if len(nodes) > 1:
            _merge(sliced, nodes)
    sliced.initializers[:] = [value for value in sliced.initializers if value.uses()]


def _merge(sliced: SlicedValues, nodes: list[ir.Node]) -> None:
    position = min(map(sliced.nodes.index, nodes))
    later = sliced.nodes[position:]
    del sliced.nodes[position:]
    first = nodes[0]
    ends = [_norm_behind(node, sliced) or node for node in nodes]
    maps = [_weights_and_bias(node, end) for node, end in zip(nodes, ends, strict=True)]
    name = str(first.inputs[1].name) if first.inputs[1] is not None else ""
    weights = sliced.weight(f"{name}.merged", np.concatenate([weights for weights, _ in maps]))
    bias = sliced.weight(f"{name}.merged_bias", np.concatenate([bias for _, bias in maps]))
    merged = sliced.compute(
        "Conv",
        [first_input(first), weights, bias],
        first.outputs[0],
        list(first.attributes.values()),
        units=len(nodes) * len(sliced.kept),
    )
    axes = sliced.weight(f"{name}.axis", np.array([sliced.axis], np.int64))
    bounds = [
        sliced.weight(f"{name}.bound", np.array([number * len(sliced.kept)], np.int64))
        for number in range(len(nodes) + 1)
    ]
    for number, end in enumerate(ends):
        part = sliced.compute("Slice", [merged, *bounds[number : number + 2], axes], end.outputs[0])
        ir.convenience.replace_all_uses_with(end.outputs[0], part)
    removed = {*nodes, *ends}
    for node in removed:
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)
    sliced.nodes += [node for node in later if node not in removed]


def _norm_behind(convolution: ir.Node, sliced: SlicedValues) -> ir.Node | None:
    """The batch normalization that alone uses a convolution; None if there is none."""
    uses = list(convolution.outputs[0].uses())
    if len(uses) != 1 or uses[0].node.op_type != "BatchNormalization":
        return None
    norm = uses[0].node
    return norm if all(_is_fixed(value, sliced) for value in norm.inputs[1:]) else None


def _weights_and_bias(convolution: ir.Node, end: ir.Node) -> tuple[Array, Array]:
    """The weights of a convolution, with those of the normalization behind it if it ends there."""
    weights, *biases = [_array(value) for value in convolution.inputs[1:] if value is not None]
    bias = biases[0] if biases else np.zeros(len(weights), weights.dtype)
    if end is convolution:
        return weights, bias
    scale, shift, mean, variance = [_array(value).astype(np.float64) for value in end.inputs[1:5]]
    factor = scale / np.sqrt(variance + attribute(end, "epsilon", 1e-5))
    shape = (-1, *[1] * (weights.ndim - 1))
    return (
        (weights * factor.reshape(shape)).astype(weights.dtype),
        ((bias - mean) * factor + shift).astype(weights.dtype),
    )


def _is_fixed(value: ir.Value | None, sliced: SlicedValues) -> bool:
    """Whether a value is left out, or a weight that callers cannot override."""
    if value is None:
        return True
    return value.const_value is not None and not (
        value.is_graph_input() or any(value is lever for lever in sliced.levers.values())
    )


def _array(value: ir.Value | None) -> Array:
    array = None if value is None else value.const_value
    if array is None:
        raise ValueError("expected a weight, got a computed value")
    return array.numpy()
