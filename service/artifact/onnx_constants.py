"""What is read from an .onnx file without a runtime: its constants, and whether it is whole.

Only the fields that lead to tensors are followed, and nothing is copied but the values asked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from service.artifact.protobuf import Field, MalformedError, fields, submessages, unpack_varints
from service.errors import ModelFileError
from service.inference_types import Array

# fields by the message they are in, as onnx.proto numbers them
MODEL_GRAPH, MODEL_OPSETS, MODEL_TRAINING, MODEL_FUNCTIONS = 7, 8, 20, 25
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_SPARSE = 1, 5, 15
TRAINING_GRAPHS = (1, 2)
FUNCTION_NODE, FUNCTION_ATTRIBUTE = 7, 11
NODE_ATTRIBUTE = 5
ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS, ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
SPARSE_TENSORS = (1, 2)
DIMS, DTYPE, NAME, RAW, EXTERNAL, LOCATION = 1, 2, 8, 9, 13, 14

# floating point numbers by ONNX's number for their type: NumPy's name, and their field when not in RAW
FLOATS = {1: ("<f4", 4), 10: ("<f2", 5), 11: ("<f8", 10)}

MAX_GRAPH_DEPTH = 64  # graphs within graphs


def read_initializers(
    data: bytes | memoryview, names: Collection[str], where: str = "model.onnx"
) -> dict[str, Array]:
    """The values that the graph has for these floating point tensors; a ModelFileError where it has none."""
    found: dict[str, Array] = {}
    try:
        for graph in submessages(memoryview(data), MODEL_GRAPH):
            for tensor in submessages(graph, GRAPH_INITIALIZER):
                name = _name(tensor)
                if name in names:
                    found[name] = _array(tensor, name)
    except MalformedError as error:
        raise _damaged(where, error) from error
    if absent := [name for name in names if name not in found]:
        raise ModelFileError(f"{where}: expected an initializer {absent[0]!r}, and the graph has none")
    return found


def expect_self_contained(data: bytes | memoryview, where: str = "model.onnx") -> None:
    """Stop with a ModelFileError where the file is no ONNX model, or has numbers in other files."""
    model = memoryview(data)
    try:
        outside = [_name(tensor) for tensor in _model_tensors(model) if _is_outside(tensor)]
    except MalformedError as error:
        raise _damaged(where, error) from error
    if outside:
        raise ModelFileError(
            f"{where}: {outside[0] or 'a constant'}: expected its numbers in this very file, and they are in "
            "another one",
            "its weights are in another file",
        )


def _is_outside(tensor: memoryview) -> bool:
    return any(
        field.number == EXTERNAL or (field.number == LOCATION and field.value != 0)
        for field in fields(tensor)
    )


def _model_tensors(model: memoryview) -> Iterator[memoryview]:
    """Every tensor: of graphs, of nodes, of functions and their defaults, of what is for training."""
    there = {field.number for field in fields(model)}
    if MODEL_GRAPH not in there or MODEL_OPSETS not in there:
        raise MalformedError("it has no graph")
    for graph in submessages(model, MODEL_GRAPH):
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
    return next((bytes(name).decode(errors="replace") for name in submessages(tensor, NAME)), "")


def _array(tensor: memoryview, name: str) -> Array:
    """The numbers of a tensor, in an array of their own."""
    parts = list(fields(tensor))
    dims = [dim for field in parts if field.number == DIMS for dim in _numbers(field)]
    dtype = next((field.value for field in parts if field.number == DTYPE), 0)
    if not isinstance(dtype, int) or dtype not in FLOATS:
        raise MalformedError(f"{name}: expected floating point numbers, got ONNX type {dtype}")
    kind, listed = FLOATS[dtype]
    raw = [field.value for field in parts if field.number == RAW and isinstance(field.value, memoryview)]
    if raw:
        values = _floats(raw[-1], kind)
    elif kind == "<f2":  # as the bits of each
        bits = [bit for field in parts if field.number == listed for bit in _numbers(field)]
        values = np.array([bit & 0xFFFF for bit in bits], "<u2").view(kind)
    else:
        packed = [field.value for field in parts if field.number == listed]
        values = _floats(b"".join(one for one in packed if isinstance(one, memoryview)), kind)
    if any(dim < 0 for dim in dims) or math.prod(dims) != values.size:
        raise MalformedError(f"{name}: its numbers do not fit its shape {dims[:8]}")
    return values.reshape(dims).astype(np.dtype(kind).newbyteorder("="))


def _floats(packed: memoryview | bytes, kind: str) -> Array:
    if len(packed) % np.dtype(kind).itemsize:
        raise MalformedError("a list of numbers is cut")
    return np.frombuffer(packed, kind)


def _numbers(field: Field) -> list[int]:
    """Whole numbers of a repeated field, written one by one or packed."""
    return [field.value] if isinstance(field.value, int) else unpack_varints(field.value)


def _damaged(where: str, error: MalformedError) -> ModelFileError:
    return ModelFileError(f"{where}: expected an ONNX model: {error}", "its file is damaged or no model")
