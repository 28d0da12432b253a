"""Rewrites operators of onnxruntime that only its own graphs have, so that they can be compared with ONNX's.

- Nodes of `com.microsoft.nchwc` compute on blocks of 8 or 16 channels. They become operators of ONNX, and
  their weights get the order of ONNX again. Channels that only fill a block stay, with weights of 0.
- The factor of a FusedMatMul becomes a multiplication by an initializer, whose rounding can be measured.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from turnpike.export.errors import ExportError
from turnpike.export.identity.algebra.arithmetic.terms import Array
from turnpike.service.artifact.runtime import write_optimized

NCHWC = "com.microsoft.nchwc"
MICROSOFT = "com.microsoft"
# of a small model, which onnxruntime is asked about its layouts
PROBE_IR_VERSION, PROBE_OPSET = 10, 20


def optimize(data: bytes, disabled_optimizers: tuple[str, ...] = (), where: str = "model.onnx") -> ir.Model:
    """The graph that onnxruntime makes of a model under the options of the service on the CPU.

    Raises:
        ModelFileError: onnxruntime cannot open the model.
    """
    return as_model(optimized_bytes(data, disabled_optimizers, where))


def as_model(data: bytes) -> ir.Model:
    """The graph in the content of a file."""
    return ir.from_proto(onnx.ModelProto.FromString(data))


def optimized_bytes(
    data: bytes, disabled_optimizers: tuple[str, ...] = (), where: str = "model.onnx"
) -> bytes:
    """The same graph as it is written by onnxruntime."""
    with tempfile.TemporaryDirectory(prefix="turnpike-") as folder:
        path = Path(folder) / "optimized.onnx"
        write_optimized(data, path, disabled_optimizers, where)
        return path.read_bytes()


@cache
def block_size() -> int:
    """The number of channels in a block on this CPU, found out from the weights of a convolution."""
    weight = numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 2, 2])],
        [weight],
    )
    model = helper.make_model(
        graph, ir_version=PROBE_IR_VERSION, opset_imports=[helper.make_opsetid("", PROBE_OPSET)]
    )
    for node in optimize(model.SerializeToString()).graph:
        if node.domain == NCHWC and node.op_type == "Conv":
            weights = node.inputs[1]
            if weights is not None and weights.const_value is not None:
                return len(weights.const_value.numpy())
    raise ExportError("expected a convolution in onnxruntime's layout of blocks, got none on this CPU")


def to_onnx(model: ir.Model) -> None:
    """Rewrite a graph of onnxruntime in place; see the module. Other nodes stay as they are."""
    blocked: dict[ir.Value, ir.Value] = {}
    for node in list(model.graph):
        if node.domain == NCHWC:
            _rewrite_blocked(model.graph, node, blocked)
        elif node.domain == MICROSOFT and node.op_type == "FusedMatMul":
            _rewrite_product(model.graph, node)


def _rewrite_blocked(graph: ir.Graph, node: ir.Node, weights: dict[ir.Value, ir.Value]) -> None:
    first = node.inputs[0]
    if first is None:
        return
    last = _integer(node, "channels_last")
    match node.op_type:
        case "ReorderInput":
            # blocks are filled up where a convolution needs it
            if last:
                _replace(graph, node, "Transpose", [first], perm=[0, 3, 1, 2])
            else:
                _replace(graph, node, "Identity", [first])
        case "ReorderOutput":
            bounds = [
                _integers(graph, node, name, number)
                for name, number in (("start", 0), ("end", _integer(node, "channels")), ("axis", 1))
            ]
            cut = _insert(graph, node, "Slice", [first, *bounds])
            if last:
                _replace(graph, node, "Transpose", [cut], perm=[0, 2, 3, 1])
            else:
                _replace(graph, node, "Identity", [cut])
        case "Conv":
            _rewrite_convolution(graph, node, weights)
        case "MaxPool" | "AveragePool" | "GlobalMaxPool" | "GlobalAveragePool":
            node.domain = ""
        case "Upsample":
            _rewrite_upsampling(graph, node, first)


def _rewrite_upsampling(graph: ir.Graph, node: ir.Node, first: ir.Value) -> None:
    """Both have the same modes, and this one repeats numbers by whole factors."""
    scales = np.array(node.attributes["scales"].as_ints(), np.float32)
    factors = _initializer(graph, f"{node.outputs[0].name}: scales", scales)
    mode = node.attributes["mode"].as_string()
    coordinates = node.attributes["coordinate_transformation_mode"].as_string()
    if mode == "nearest":
        form = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        form = {"mode": mode, "coordinate_transformation_mode": coordinates}
    _replace(graph, node, "Resize", [first, None, factors], **form)


def _rewrite_convolution(graph: ir.Graph, node: ir.Node, weights: dict[ir.Value, ir.Value]) -> None:
    first, weight = node.inputs[:2]
    if first is None or weight is None or weight.const_value is None:
        return
    if weight not in weights:
        array = in_onnx_order(weight.const_value.numpy(), block_size())
        weights[weight] = _initializer(graph, f"{weight.name} in ONNX's order", array)
    # an input that was not computed in blocks has no channels that fill them
    expected = weight.const_value.numpy().shape[1] * (_integer(node, "group") or 1)
    channels = first.shape[1] if first.shape is not None and len(first.shape) > 1 else None
    if isinstance(channels, int) and channels < expected:
        widths = [0, 0, 0, 0, 0, expected - channels, 0, 0]
        pads = _initializer(graph, f"{node.outputs[0].name}: channels of a block", np.array(widths, np.int64))
        first = _insert(graph, node, "Pad", [first, pads])
    node.replace_input_with(0, first)
    node.replace_input_with(1, weights[weight])
    node.domain, node.op_type = MICROSOFT, "FusedConv"


def in_onnx_order(weights: Array, block: int) -> Array:
    """The weights of a convolution in the order of their axes: outputs, inputs, and the kernel.

    onnxruntime has blocks of outputs. In each, it has the blocks of inputs, the kernel, the inputs of a block
    and the outputs of a block; or all inputs, the kernel and the outputs, if there are fewer inputs.
    """
    outputs, inputs, *kernel = weights.shape
    if inputs < block:
        ordered = weights.reshape(outputs // block, inputs, *kernel, block)
        return np.ascontiguousarray(np.moveaxis(ordered, -1, 1)).reshape(weights.shape)
    ordered = weights.reshape(outputs // block, inputs // block, *kernel, block, block)
    ordered = np.moveaxis(ordered, (-1, -2), (1, 3))
    return np.ascontiguousarray(ordered).reshape(weights.shape)


def _rewrite_product(graph: ir.Graph, node: ir.Node) -> None:
    attribute = node.attributes.pop("alpha", None)
    alpha = np.float32(1 if attribute is None else attribute.as_float())
    if alpha == 1:
        return
    output = node.outputs[0]
    factor = _initializer(graph, f"{output.name}: alpha", np.array(alpha))
    product = ir.node("Mul", [output, factor], version=None)
    name, output.name = output.name, f"{output.name} / alpha"
    product.outputs[0].name = name
    uses = list(output.uses())
    graph.insert_after(node, product)
    for user, place in uses:
        if user is not product:
            user.replace_input_with(place, product.outputs[0])
    _replace_output(graph, output, product.outputs[0])


def _integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None else attribute.as_int()


def _initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(value)
    return value


def _integers(graph: ir.Graph, node: ir.Node, what: str, number: int) -> ir.Value:
    return _initializer(graph, f"{node.outputs[0].name}: {what}", np.array([number], np.int64))


def _insert(graph: ir.Graph, before: ir.Node, operator: str, inputs: list[ir.Value]) -> ir.Value:
    node = ir.node(operator, inputs)
    node.outputs[0].name = f"{before.outputs[0].name}: {operator}"
    graph.insert_before(before, node)
    return node.outputs[0]


def _replace(
    graph: ir.Graph,
    node: ir.Node,
    operator: str,
    inputs: list[ir.Value | None],
    **attributes: list[int] | str,
) -> None:
    new = ir.node(operator, inputs, attributes)
    old = node.outputs[0]
    new.outputs[0].name = old.name
    new.outputs[0].shape = old.shape
    if old.shape is None and operator == "Identity" and inputs[0] is not None:
        new.outputs[0].shape = inputs[0].shape
    new.outputs[0].type = old.type
    graph.insert_before(node, new)
    for user, place in list(old.uses()):
        user.replace_input_with(place, new.outputs[0])
    _replace_output(graph, old, new.outputs[0])
    graph.remove(node, safe=False)


def _replace_output(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    for place, value in enumerate(graph.outputs):
        if value is old:
            graph.outputs[place] = new
