"""Fuzzing of model files and their manifests."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.service.fuzz.json_bodies import JSON_TOKENS
from tests.support import fuzzing
from tests.support.fuzzing import Decoder, mutate_json
from tests.support.manifests import MANIFEST, stored_input
from turnpike.service.artifact.manifest import Manifest, Sample
from turnpike.service.artifact.onnx_file.constants import expect_self_contained, read_initializers
from turnpike.service.artifact.onnx_file.protobuf import MalformedError, content_digest, fields
from turnpike.service.artifact.sample_rows import check_sample_rows
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import ModelFileError


def onnx_decoder() -> Decoder:
    """The readers of .onnx files, compared with the onnx package."""

    def read(data: bytes) -> None:
        content_digest(data)
        expect_self_contained(data)
        try:
            model = onnx.ModelProto.FromString(data)
        except Exception:  # protobuf's errors differ by its implementation
            model = None
        if model is not None:
            assert not any(map(is_external, all_tensors(model.graph)))
        names = {"w", "half", "double", "bits"}
        arrays = read_initializers(data, names)
        if model is not None:
            # the last of several with one name counts
            tensors = {tensor.name: tensor for tensor in model.graph.initializer}
            for name in names:
                expected = numpy_helper.to_array(tensors[name])
                np.testing.assert_array_equal(arrays[name], expected, strict=True)

    model = onnx_model()
    tokens = (
        b"\x08\x01",
        b"\x10\x0a",
        b"\x0a\x00",
        b"\x7a",
        b"\x72",
        b"\x80" * 9 + b"\x01",
        b"\x6a\x02\x0a\x00",
    )
    return Decoder(
        read, [model], (ModelFileError, MalformedError), tokens, change_message, memory=(64, 2 << 20)
    )


def onnx_model() -> bytes:
    """A model with constants of every type that is read, a constant in a branch, and a function."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in "xy")
    inner = helper.make_tensor("inner", TensorProto.FLOAT, [1], [1.0])
    branch = helper.make_graph([helper.make_node("Constant", [], ["c"], value=inner)], "branch", [], [])
    constants = [
        numpy_helper.from_array(np.arange(4, dtype=np.float32).reshape(2, 2), "w"),
        numpy_helper.from_array(np.arange(3, dtype=np.float16), "half"),
        helper.make_tensor("double", TensorProto.DOUBLE, [2], [1.5, -2.5]),
        helper.make_tensor("bits", TensorProto.FLOAT16, [2], [0.5, -1.0]),
        numpy_helper.from_array(np.arange(3), "whole"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    opsets = [helper.make_opsetid("", 20)]
    function = helper.make_function("d", "f", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opsets)
    model = helper.make_model(graph, opset_imports=opsets, functions=[function])
    helper.set_model_props(model, {"turnpike": "{}"})
    return model.SerializeToString()


def all_tensors(graph: Any) -> list[Any]:
    tensors = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                tensors += all_tensors(inner)
    return tensors


def is_external(tensor: Any) -> bool:
    return bool(tensor.external_data) or tensor.data_location == TensorProto.EXTERNAL


# a dimension, a type, no values, and values in another file in two ways
TENSOR_FIELDS: tuple[tuple[int, int | bytes], ...] = ((1, 3), (2, 10), (9, b""), (13, b""), (14, 1))


def change_message(data: bytes, draw: random.Random) -> bytes:
    """A protobuf message with a field removed, repeated, moved or changed, and correct lengths."""
    try:
        found = list(fields(memoryview(data)))
    except MalformedError:
        return data
    if not found:
        return data
    index = draw.randrange(len(found))
    parts = [write_field(field.number, field.value) for field in found]
    field = found[index]
    change = draw.randrange(10)
    if change == 0:
        del parts[index]
    elif change == 1:
        parts.insert(draw.randrange(len(parts) + 1), parts[index])
    elif change == 2:
        parts[index] = write_field(draw.randrange(1, 26), field.value)
    elif change == 3:
        parts.append(write_field(*draw.choice(TENSOR_FIELDS)))
    elif isinstance(field.value, int):
        parts[index] = write_field(field.number, draw.choice(fuzzing.INTEGERS) % (1 << 64))
    elif change == 4:
        value = bytes(field.value)
        parts[index] = write_field(field.number, value[: draw.randrange(len(value) + 1)])
    else:
        parts[index] = write_field(field.number, change_message(bytes(field.value), draw))
    return b"".join(parts)


def write_field(number: int, value: int | bytes | memoryview) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    return varint(number << 3 | 2) + varint(len(value)) + bytes(value)


def varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def manifest_decoder() -> Decoder:
    inputs = {"x": Tensor("x", "float32", ("batch", 2)), "n": Tensor("n", "int64", ("batch", "?"))}

    def read(data: bytes) -> None:
        manifest = Manifest.from_json(data.decode("utf-8", "replace"), "m.onnx")
        assert Manifest.from_json(manifest.to_json(), "m.onnx") == manifest
        try:
            check_sample_rows(manifest, inputs)
        except ValueError as error:
            raise ModelFileError(str(error)) from error

    samples = (
        Sample(inputs=(stored_input("x", [1, 2]), stored_input("n", [3], "int64"))),
        Sample(
            label="a", inputs=(stored_input("n", [1, 2, 3], "int32"), stored_input("x", [0.5, 1], "float64"))
        ),
    )
    seeds = [MANIFEST.to_json().encode(), MANIFEST.model_copy(update={"samples": samples}).to_json().encode()]
    # the message of a pydantic error repeats parts of its input
    return Decoder(read, seeds[1:], (ModelFileError,), JSON_TOKENS, mutate_json, memory=(128, 4 << 20))
