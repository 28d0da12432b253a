"""Reads constants from an .onnx file without a runtime, and checks that the file is self-contained.

It follows only the fields that lead to tensors, and copies only the values that are requested.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from turnpike.service.artifact.onnx_file.protobuf import (
    GRAPH_FIELD,
    Field,
    MalformedError,
    damaged_error,
    expect_graph,
    fields,
    submessages,
    unpack_varints,
)
from turnpike.service.errors import ModelFileError
from turnpike.service.inference_types import Array

# field numbers of onnx.proto, by the message that has them
MODEL_TRAINING, MODEL_FUNCTIONS = 20, 25
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_SPARSE = 1, 5, 15
TRAINING_GRAPHS = (1, 2)
FUNCTION_NODE, FUNCTION_ATTRIBUTE = 7, 11
NODE_ATTRIBUTE = 5
ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS, ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
SPARSE_TENSORS = (1, 2)
DIMS, DTYPE, NAME, RAW, EXTERNAL, LOCATION = 1, 2, 8, 9, 13, 14

# ONNX's number of a floating-point type -> (NumPy dtype, field of the values if they are not in RAW)
FLOATS = {1: ("<f4", 4), 10: ("<f2", 5), 11: ("<f8", 10)}

# nesting of graphs in attributes of nodes (branches of If, bodies of Loop); stops unbounded recursion
MAX_GRAPH_DEPTH = 64


def read_initializers(
    data: bytes | memoryview, names: Collection[str], where: str = "model.onnx"
) -> dict[str, Array]:
    """The values of these floating-point initializers of the graph.

    Raises:
        ModelFileError: The graph lacks one of them, or the file is not a valid model.
    """
    arrays: dict[str, Array] = {}
    try:
        for graph in submessages(memoryview(data), GRAPH_FIELD):
            for tensor in submessages(graph, GRAPH_INITIALIZER):
                name = _name(tensor)
                if name in names:
                    arrays[name] = _array(tensor, name)
    except MalformedError as error:
        raise damaged_error(where, error) from error
    if absent := [name for name in names if name not in arrays]:
        raise ModelFileError(f"{where}: expected an initializer {absent[0]!r}, and the graph has none")
    return arrays


def expect_self_contained(data: bytes | memoryview, where: str = "model.onnx") -> None:
    """Raise a ModelFileError if the file is not an ONNX model, or stores weights in other files."""
    model = memoryview(data)
    try:
        external = [_name(tensor) for tensor in _model_tensors(model) if _is_external(tensor)]
    except MalformedError as error:
        raise damaged_error(where, error) from error
    if external:
        raise ModelFileError(
            f"{where}: {external[0] or 'a constant'}: expected its values in this file, got a reference to "
            "another file",
            "its weights are in another file",
        )


def _is_external(tensor: memoryview) -> bool:
    return any(
        field.number == EXTERNAL or (field.number == LOCATION and field.value != 0)
        for field in fields(tensor)
    )


def _model_tensors(model: memoryview) -> Iterator[memoryview]:
    """Every tensor of the model: in graphs, nodes, functions, their default attributes, and training info."""
    expect_graph(model)
    for graph in submessages(model, GRAPH_FIELD):
        yield from _graph_tensors(graph, 0)
    for training in submessages(model, MODEL_TRAINING):
        for graph in submessages(training, *TRAINING_GRAPHS):
            yield from _graph_tensors(graph, 0)
    for function in submessages(model, MODEL_FUNCTIONS):
        yield from _attribute_tensors(submessages(function, FUNCTION_ATTRIBUTE), 0)
        for node in submessages(function, FUNCTION_NODE):
            yield from _attribute_tensors(submessages(node, NODE_ATTRIBUTE), 0)


def _graph_tensors(graph: memoryview, depth: int) -> Iterator[memoryview]:
    if depth > MAX_GRAPH_DEPTH:
        raise MalformedError(f"its graphs are nested more than {MAX_GRAPH_DEPTH} deep")
    yield from submessages(graph, GRAPH_INITIALIZER)
    for sparse in submessages(graph, GRAPH_SPARSE):
        yield from submessages(sparse, *SPARSE_TENSORS)
    for node in submessages(graph, GRAPH_NODE):
        yield from _attribute_tensors(submessages(node, NODE_ATTRIBUTE), depth)


def _attribute_tensors(attributes: Iterable[memoryview], depth: int) -> Iterator[memoryview]:
    for attribute in attributes:
        yield from submessages(attribute, *ATTRIBUTE_TENSORS)
        for sparse in submessages(attribute, *ATTRIBUTE_SPARSE):
            yield from submessages(sparse, *SPARSE_TENSORS)
        for graph in submessages(attribute, *ATTRIBUTE_GRAPHS):
            yield from _graph_tensors(graph, depth + 1)


def _name(tensor: memoryview) -> str:
    # as in protobuf, the last one counts if a field comes twice
    names = list(submessages(tensor, NAME))
    return bytes(names[-1]).decode(errors="replace") if names else ""


def _array(tensor: memoryview, name: str) -> Array:
    """A copy of the values of a tensor."""
    tensor_fields = list(fields(tensor))
    dims = [dim for field in tensor_fields if field.number == DIMS for dim in _numbers(field)]
    dtype = next((field.value for field in reversed(tensor_fields) if field.number == DTYPE), 0)
    if not isinstance(dtype, int) or dtype not in FLOATS:
        raise MalformedError(f"{name}: expected floating-point numbers, got ONNX type {dtype}")
    kind, value_field = FLOATS[dtype]
    raw = [
        field.value for field in tensor_fields if field.number == RAW and isinstance(field.value, memoryview)
    ]
    if raw:
        values = _floats(raw[-1], kind)
    elif kind == "<f2":  # onnx.proto stores the bits of each number as an integer
        bits = [bit for field in tensor_fields if field.number == value_field for bit in _numbers(field)]
        values = np.array([bit & 0xFFFF for bit in bits], "<u2").view(kind)
    else:
        packed = [field.value for field in tensor_fields if field.number == value_field]
        values = _floats(b"".join(chunk for chunk in packed if isinstance(chunk, memoryview)), kind)
    if any(dim < 0 for dim in dims) or math.prod(dims) != values.size:
        raise MalformedError(f"{name}: its values do not fit its shape {dims[:8]}")
    return values.reshape(dims).astype(np.dtype(kind).newbyteorder("="))


def _floats(packed: memoryview | bytes, kind: str) -> Array:
    if len(packed) % np.dtype(kind).itemsize:
        raise MalformedError("a list of numbers is cut off")
    return np.frombuffer(packed, kind)


def _numbers(field: Field) -> list[int]:
    """Integers of a repeated field, which may be packed or not."""
    return [field.value] if isinstance(field.value, int) else unpack_varints(field.value)
