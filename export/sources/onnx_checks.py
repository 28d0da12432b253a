"""An .onnx file from a stranger, opened: refused where it asks for other files, other code or absurd room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.inliner import inline_local_functions

from export.errors import RefusedError, SourceError, UntraceableError, warn_user
from service.artifact.manifest import METADATA_KEY

MAX_FILE_BYTES = 2 << 30
MAX_ELEMENTS = 1 << 31
MAX_NODES = 200_000  # after functions are written out where they are called

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


def read_model(path: Path) -> ModelProto:
    """The model of a file, checked as a stranger's; its functions are written out where they are called."""
    model = _parse(path)
    where = str(path)
    if any(entry.key == METADATA_KEY for entry in model.metadata_props):
        raise SourceError(f"{where}: was exported by turnpike already: check it with turnpike verify")
    expect_standard_domains(model, where)
    for tensor in all_tensors(model):
        expect_complete_tensor(tensor, where)
    expect_deterministic(model, where)
    expect_distinct_names(model.graph, where)
    if model.functions:
        expect_no_recursion(model, where)
        model = inline_local_functions(model)
    del model.training_info[:]
    return model


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node, in functions and in graphs inside of nodes as well."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(inner for graph in subgraphs(node) for inner in graph.node)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside of a node: branches and bodies of loops."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every constant: initializers and what nodes hold."""
    yield from model.graph.initializer
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for graph in subgraphs(node):
            yield from graph.initializer


def expect_standard_domains(model: ModelProto, where: str) -> None:
    """Stop with a RefusedError where a node is not of the ONNX standard, nor a function of this file."""
    own = {(function.domain, function.name) for function in model.functions}
    for node in all_nodes(model):
        if node.domain not in STANDARD_DOMAINS and (node.domain, node.op_type) not in own:
            hint = (
                ": onnxruntime's optimizer or quantizer made it, so give the model from before"
                if node.domain.startswith("com.microsoft")
                else ""
            )
            raise RefusedError(
                f"{where}: node {node.name!r}: {node.op_type} of the domain {node.domain!r} is not of the "
                f"ONNX standard, and code for it would be needed{hint}"
            )
        sparse = [one for one in node.attribute if one.HasField("sparse_tensor") or one.sparse_tensors]
        if sparse or any(graph.sparse_initializer for graph in subgraphs(node)):
            raise SourceError(f"{where}: node {node.name!r}: expected dense tensors, got a sparse one")
    if model.graph.sparse_initializer:
        raise SourceError(f"{where}: expected dense tensors, got a sparse one")


def expect_complete_tensor(tensor: TensorProto, where: str) -> None:
    """Stop unless a constant has the numbers it claims, in this very file."""
    said = f"{where}: {tensor.name or 'a constant'}"
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise RefusedError(
            f"{said}: its numbers are in another file ({_location(tensor)!r}), and only one file is read: "
            "save the model with the weights inside"
        )
    if tensor.data_type in UNSUPPORTED_DTYPES:
        raise SourceError(f"{said}: expected numbers, got {TensorProto.DataType.Name(tensor.data_type)}")
    numbers = 1
    for size in tensor.dims:
        numbers *= size
    # before anything is made of them: two numbers in a byte are the most there are
    if any(size < 0 for size in tensor.dims) or numbers > 2 * tensor.ByteSize():
        raise RefusedError(f"{said}: its shape {list(tensor.dims)[:8]} claims more numbers than the file has")
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # NumPy and onnx raise almost anything at numbers that do not fit
        raise SourceError(f"{said}: its numbers do not fit its shape {list(tensor.dims)[:8]}") from error
    if array.dtype.kind == "f" and np.isnan(array).any():
        warn_user(f"{tensor.name or 'a constant'} holds NaN")


def expect_deterministic(model: ModelProto, where: str) -> None:
    """Stop with an UntraceableError where a node draws random numbers, or trains."""
    constants = {tensor.name: tensor for tensor in all_tensors(model)}
    for node in all_nodes(model):
        if node.op_type == "Constant":
            constants |= {
                name: one.t for name in node.output for one in node.attribute if one.name == "value"
            }
    for node in all_nodes(model):
        if node.domain not in STANDARD_DOMAINS:
            continue
        said = f"{where}: node {node.name!r}: {node.op_type}"
        if node.op_type in RANDOM_OPS:
            raise UntraceableError(
                f"{said} draws random numbers, and a served answer must not: export without it"
            )
        training = any(one.name == "training_mode" and one.i for one in node.attribute)
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            given = constants.get(node.input[2])
            training = given is None or bool(numpy_helper.to_array(given).any())
        if training:
            raise UntraceableError(f"{said} is in training mode: export the model in eval mode")


def expect_distinct_names(graph: GraphProto, where: str) -> None:
    """Stop with a SourceError where two values have one name."""
    for kind, names in (
        ("inputs", [one.name for one in graph.input]),
        ("outputs", [one.name for one in graph.output]),
        ("initializers", [one.name for one in graph.initializer]),
        ("values", [name for node in graph.node for name in node.output if name]),
    ):
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise SourceError(f"{where}: expected {kind} of distinct names, got {twice[0]!r} more than once")


def expect_no_recursion(model: ModelProto, where: str) -> None:
    """Stop with a RefusedError where functions call themselves, or each other beyond any measure."""
    bodies = {(function.domain, function.name): list(function.node) for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(body: list[NodeProto], inside: tuple[tuple[str, str], ...]) -> int:
        total = 0
        waiting = list(body)
        while waiting:
            node = waiting.pop()
            waiting.extend(inner for graph in subgraphs(node) for inner in graph.node)
            called = (node.domain, node.op_type)
            if called in inside:
                raise RefusedError(f"{where}: function {node.op_type!r} calls itself")
            if called in bodies and called not in sizes:
                sizes[called] = size(bodies[called], (*inside, called))
            total += sizes.get(called, 1)
        return total

    try:
        total = size(list(model.graph.node), ())
    except RecursionError as error:
        raise RefusedError(f"{where}: its functions call each other too deeply") from error
    if total > MAX_NODES:
        raise RefusedError(f"{where}: its functions unfold to {total} nodes, more than {MAX_NODES}")


def _parse(path: Path) -> ModelProto:
    try:
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise RefusedError(
                f"{path}: expected at most 2 GiB, as one .onnx file can hold, got {size / 2**30:.1f}"
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
    except Exception as error:  # protobuf's exceptions are those of the implementation that is installed
        raise SourceError(
            f"{path}: expected a whole .onnx file, and this is damaged or another kind of file"
        ) from error
    versions = [one.version for one in model.opset_import if one.domain in STANDARD_DOMAINS]
    if not model.graph.node or not model.graph.output or len(versions) != 1:
        raise SourceError(f"{path}: expected an .onnx file with a graph and its opset, got none")
    if not 3 <= model.ir_version <= onnx.IR_VERSION:
        raise SourceError(f"{path}: expected an IR version of 3 to {onnx.IR_VERSION}, got {model.ir_version}")
    return model


def _location(tensor: TensorProto) -> str:
    return next((one.value for one in tensor.external_data if one.key == "location"), "")[:80]
