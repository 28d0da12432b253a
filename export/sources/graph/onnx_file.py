"""Opens an untrusted .onnx file; rejects one that needs other files, extra code or too much memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.inliner import inline_local_functions

from turnpike.export.errors import RefusedError, SourceError, UntraceableError
from turnpike.export.network import Array
from turnpike.service.artifact.manifest import METADATA_KEY

MAX_FILE_BYTES = 2 << 30  # protobuf cannot hold more
MAX_ELEMENTS = 1 << 31  # of one value for one row, more than any model needs
MAX_NODES = 200_000  # after functions are inlined

STANDARD_DOMAINS = ("", "ai.onnx")
RANDOM_OPS = {
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli",
}  # fmt: skip
UNSUPPORTED_DTYPES = (
    TensorProto.STRING,
    TensorProto.COMPLEX64,
    TensorProto.COMPLEX128,
    TensorProto.UNDEFINED,
)


def read_model(path: Path) -> tuple[ModelProto, tuple[str, ...]]:
    """The model of an untrusted file, checked, with its functions inlined; and warnings."""
    model = parse_model(path)
    where = str(path)
    if any(entry.key == METADATA_KEY for entry in model.metadata_props):
        raise SourceError(f"{where}: was already exported by turnpike: check it with turnpike verify")
    expect_standard_domains(model, where)
    warnings = tuple(
        f"{tensor.name or 'a constant'} holds NaN"
        for tensor in all_tensors(model)
        if has_nan(read_constant(tensor, where))
    )
    expect_deterministic(model, where)
    expect_distinct_names(model.graph, where)
    if model.functions:
        expect_bounded_functions(model, where)
        model = inline_local_functions(model)
    del model.training_info[:]
    return model, warnings


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node, including those in functions and in the branches and loops of nodes."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(inner for graph in subgraphs(node) for inner in graph.node)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node: branches and bodies of loops."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every constant: initializers, and tensors in attributes of nodes."""
    yield from model.graph.initializer
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for graph in subgraphs(node):
            yield from graph.initializer


def expect_standard_domains(model: ModelProto, where: str) -> None:
    """Raise a RefusedError if a node is neither a standard ONNX operator nor a function of this file."""
    functions = {(function.domain, function.name) for function in model.functions}
    for node in all_nodes(model):
        if node.domain not in STANDARD_DOMAINS and (node.domain, node.op_type) not in functions:
            hint = (
                ": onnxruntime's optimizer or quantizer made it, so give the model from before that"
                if node.domain.startswith("com.microsoft")
                else ""
            )
            raise RefusedError(
                f"{where}: node {node.name!r}: {node.op_type} of the domain {node.domain!r} is not of the "
                f"ONNX standard and would need extra code{hint}"
            )
        sparse = [
            attribute
            for attribute in node.attribute
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors
        ]
        if sparse or any(graph.sparse_initializer for graph in subgraphs(node)):
            raise SourceError(f"{where}: node {node.name!r}: expected dense tensors, got a sparse one")
    if model.graph.sparse_initializer:
        raise SourceError(f"{where}: expected dense tensors, got a sparse one")


def read_constant(tensor: TensorProto, where: str) -> Array:
    """The numbers of a constant; an ExportError unless the file itself has all elements of its shape."""
    name = f"{where}: {tensor.name or 'a constant'}"
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise RefusedError(
            f"{name}: its numbers are in another file ({_location(tensor)!r}), and only one file is read: "
            "save the model with the weights inside"
        )
    if tensor.data_type in UNSUPPORTED_DTYPES:
        raise SourceError(f"{name}: expected numbers, got {TensorProto.DataType.Name(tensor.data_type)}")
    elements = math.prod(tensor.dims)
    # checked before memory is allocated; the smallest type has two elements in a byte
    if any(size < 0 for size in tensor.dims) or elements > 2 * tensor.ByteSize():
        raise RefusedError(f"{name}: its shape {list(tensor.dims)[:8]} claims more numbers than the file has")
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # NumPy and onnx raise almost anything if the bytes do not fit
        raise SourceError(f"{name}: its numbers do not fit its shape {list(tensor.dims)[:8]}") from error


def has_nan(array: Array) -> bool:
    """Whether an element is NaN; one is enough."""
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def expect_deterministic(model: ModelProto, where: str) -> None:
    """Raise an UntraceableError if a node draws random numbers, or is in training mode."""
    constants = {tensor.name: tensor for tensor in all_tensors(model)}
    for node in all_nodes(model):
        if node.op_type == "Constant":
            constants |= {
                name: attribute.t
                for name in node.output
                for attribute in node.attribute
                if attribute.name == "value"
            }
    for node in all_nodes(model):
        if node.domain not in STANDARD_DOMAINS:
            continue
        described = f"{where}: node {node.name!r}: {node.op_type}"
        if node.op_type in RANDOM_OPS:
            raise UntraceableError(
                f"{described} draws random numbers, so predictions would change from call to call: export "
                "the model without it"
            )
        training = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            mode = constants.get(node.input[2])
            training = mode is None or bool(numpy_helper.to_array(mode).any())
        if training:
            raise UntraceableError(f"{described} is in training mode: export the model in eval mode")


def expect_distinct_names(graph: GraphProto, where: str) -> None:
    """Raise a SourceError if two values have the same name."""
    for kind, names in (
        ("inputs", [value.name for value in graph.input]),
        ("outputs", [value.name for value in graph.output]),
        ("initializers", [tensor.name for tensor in graph.initializer]),
        ("values", [name for node in graph.node for name in node.output if name]),
    ):
        if repeated := [name for name, times in Counter(names).items() if times > 1]:
            raise SourceError(
                f"{where}: expected {kind} of distinct names, got {repeated[0]!r} more than once"
            )


def expect_bounded_functions(model: ModelProto, where: str) -> None:
    """Raise a RefusedError if functions call themselves, or would inline to more than MAX_NODES nodes."""
    bodies = {(function.domain, function.name): list(function.node) for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}  # number of nodes of each function, when inlined

    def inlined_size(body: list[NodeProto], callers: tuple[tuple[str, str], ...]) -> int:
        total = 0
        waiting = list(body)
        while waiting:
            node = waiting.pop()
            waiting.extend(inner for graph in subgraphs(node) for inner in graph.node)
            callee = (node.domain, node.op_type)
            if callee in callers:
                raise RefusedError(f"{where}: function {node.op_type!r} calls itself")
            if callee in bodies and callee not in sizes:
                sizes[callee] = inlined_size(bodies[callee], (*callers, callee))
            total += sizes.get(callee, 1)
        return total

    try:
        total = inlined_size(list(model.graph.node), ())
    except RecursionError as error:
        raise RefusedError(f"{where}: its functions call each other too deeply") from error
    if total > MAX_NODES:
        raise RefusedError(f"{where}: its functions expand to {total} nodes, more than {MAX_NODES}")


def parse_model(path: Path) -> ModelProto:
    """Parse a file; check only its size, its format and its versions."""
    try:
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise RefusedError(
                f"{path}: expected at most 2 GiB, the limit of an .onnx file, got {size / 2**30:.1f} GiB"
            )
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    if content[:2] in (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05"):
        raise RefusedError(
            f"{path}: expected an .onnx file, got a zip archive or a pickle, as PyTorch writes them"
        )
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # the exceptions depend on the protobuf implementation that is installed
        raise SourceError(
            f"{path}: expected an .onnx file, got a damaged file or one of another format"
        ) from error
    versions = [opset.version for opset in model.opset_import if opset.domain in STANDARD_DOMAINS]
    if not model.graph.node or not model.graph.output or len(versions) != 1:
        raise SourceError(f"{path}: expected an .onnx file with a graph and its opset, got none")
    if not 3 <= model.ir_version <= onnx.IR_VERSION:
        raise SourceError(f"{path}: expected an IR version of 3 to {onnx.IR_VERSION}, got {model.ir_version}")
    return model


def _location(tensor: TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")[:80]
