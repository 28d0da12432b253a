"""Converts a graph to fp16, but for the preparation of its inputs, which stays in float32.

fp16 has three digits and ends at 65504. Days since 1970 have five digits, and the columns of a table may have
larger numbers still. Only after the network has standardized them do they fit.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from turnpike.export.errors import PrecisionError
from turnpike.export.trace.trace_network import silence_exporter

# operators that are slow in float32; the preparation of the inputs ends before them
HEAVY_OPERATORS = frozenset(
    ("Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN")
)
COPY_SUFFIX = ".fp32"


def to_half_precision(model: bytes) -> ir.Model:
    """The graph in fp16, with all inputs and outputs in float32.

    Raises:
        PrecisionError: The graph has loops or branches.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    proto = onnx.load_model_from_string(model)
    # the converter gives bodies the wrong types, and onnxruntime crashes when it loads them
    loops = sorted(
        {node.op_type for node in proto.graph.node if any(entry.HasField("g") for entry in node.attribute)}
    )
    if loops:
        raise PrecisionError(
            f"--precision fp16: expected a network without loops and branches, got {', '.join(loops)}: "
            "export it in fp32"
        )
    own_inputs = copy.deepcopy([*proto.graph.input])
    first = preparation(proto.graph)
    constants = _take_out(proto, first)
    with silence_exporter():
        # what the preparation returns is an input of the graph that is converted
        lowered = convert_float_to_float16(proto, keep_io_types=True)
    graph = lowered.graph
    converted = [*graph.node]
    del graph.input[:], graph.node[:]
    graph.input.extend(own_inputs)
    graph.node.extend([*first, *converted])
    graph.initializer.extend(constants)
    # the converter records float16 also for values that it keeps in float32, such as the constants of a Max
    del graph.value_info[:]
    return ir.from_proto(onnx.shape_inference.infer_shapes(lowered))


def preparation(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that compute something of the float32 inputs alone, before the first heavy operator.

    Nodes that compute the constants of these are among them. A node that writes an output of the graph is
    not, nor one that reads an initializer that a caller may override.
    """
    initializers = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    outputs = {value.name for value in graph.output}
    constants = initializers - inputs.keys()
    prepared = {name for name, dtype in inputs.items() if dtype == onnx.TensorProto.FLOAT} - initializers
    places: set[int] = set()
    # constants that nodes compute: the places of these nodes
    computed: dict[str, set[int]] = {}
    for place, node in enumerate(graph.node):
        # an input that is left out has no name
        names = {name for name in node.input if name} - constants
        own = {place}.union(*(computed.get(name, ()) for name in node.input))
        if not names:
            constants |= set(node.output)
            computed |= dict.fromkeys(node.output, own)
        elif names <= prepared and node.op_type not in HEAVY_OPERATORS and outputs.isdisjoint(node.output):
            prepared |= set(node.output)
            places |= own
    return [copy.deepcopy(graph.node[place]) for place in sorted(places)]


def _take_out(proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> list[onnx.TensorProto]:
    """Remove nodes from a graph: what other nodes read of them becomes its inputs.

    The nodes get constants of their own, which are returned: the others may be converted.
    """
    graph = proto.graph
    inferred = onnx.shape_inference.infer_shapes(proto).graph.value_info
    written = {name for node in nodes for name in node.output}
    rest = [node for node in graph.node if written.isdisjoint(node.output)]
    read = {name for node in rest for name in node.input}
    graph.input.extend(value for value in inferred if value.name in read & written)
    del graph.node[:]
    graph.node.extend(rest)

    constants = []
    for tensor in graph.initializer:
        readers = [node for node in nodes if tensor.name in node.input]
        if not readers:
            continue
        own = copy.deepcopy(tensor)
        own.name += COPY_SUFFIX
        constants.append(own)
        for node in readers:
            names = [own.name if name == tensor.name else name for name in node.input]
            del node.input[:]
            node.input.extend(names)
    return constants
