"""Constants read without a runtime, and files that are refused before a runtime opens them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.support.tiny_highway import highway
from turnpike.service.artifact.onnx_file.constants import expect_self_contained, read_initializers
from turnpike.service.errors import ModelFileError


def graph(
    *, nodes: list[onnx.NodeProto] | None = None, weights: list[onnx.TensorProto] | None = None
) -> onnx.GraphProto:
    return helper.make_graph(
        nodes or [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        weights or [],
    )


def model(graph_proto: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_initializers_are_read_as_by_onnx() -> None:
    """Arrays of all weights can be written to."""
    gated = highway()
    arrays = read_initializers(gated.model, set(gated.weights))
    assert arrays.keys() == gated.weights.keys()
    for name, array in arrays.items():
        assert array.dtype == gated.weights[name].dtype
        assert np.array_equal(array, gated.weights[name])
        assert array.flags.writeable


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_every_encoding_of_numbers_is_read(kind: int, raw: bool) -> None:
    """Raw bytes or a list, in single, half and double precision."""
    values = np.array([[0.5, -2, 65504], [1e-7, 0, -0.0]], helper.tensor_dtype_to_np_dtype(kind))
    tensor = helper.make_tensor("w", kind, [2, 3], values.tobytes() if raw else values.ravel(), raw=raw)
    array = read_initializers(model(graph(weights=[tensor])).SerializeToString(), {"w"})["w"]
    assert array.dtype == values.dtype
    assert array.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.dims.append(3), "its values do not fit its shape"),
        (lambda t: t.dims.__setitem__(slice(None), [-1, -2]), "its values do not fit its shape"),
        (
            lambda t: setattr(t, "data_type", TensorProto.INT64),
            "expected floating-point numbers, got ONNX type 7",
        ),
        (lambda t: setattr(t, "raw_data", b"12345"), "a list of numbers is cut"),
        (lambda t: setattr(t, "name", "other"), "expected an initializer 'w', and the graph has none"),
    ],
)
def test_invalid_initializers_are_errors(change: Callable[[onnx.TensorProto], None], message: str) -> None:
    tensor = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    change(tensor)
    with pytest.raises(ModelFileError, match=message):
        read_initializers(model(graph(weights=[tensor])).SerializeToString(), {"w"}, "a.onnx")


def external(name: str = "w") -> onnx.TensorProto:
    """A tensor that refers to values in another file."""
    tensor = onnx.TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def in_node() -> onnx.ModelProto:
    return model(graph(nodes=[helper.make_node("Constant", [], ["y"], value=external())]))


def in_branch() -> onnx.ModelProto:
    branch = helper.make_graph([], "b", [], [], [external()])
    deeper = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=branch)], "d", [], [])
    return model(graph(nodes=[helper.make_node("If", ["c"], ["y"], then_branch=deeper)]))


def in_sparse() -> onnx.ModelProto:
    proto = model(graph())
    proto.graph.sparse_initializer.add().values.CopyFrom(external())
    return proto


def in_sparse_attribute() -> onnx.ModelProto:
    sparse = onnx.SparseTensorProto(indices=external())
    return model(graph(nodes=[helper.make_node("Constant", [], ["y"], sparse_value=sparse)]))


def in_function() -> onnx.ModelProto:
    proto = model(graph())
    node = helper.make_node("Constant", [], ["y"], value=external())
    proto.functions.append(helper.make_function("f", "F", [], ["y"], [node], [helper.make_opsetid("", 20)]))
    return proto


def in_default() -> onnx.ModelProto:
    proto = in_function()
    del proto.functions[0].node[:]
    proto.functions[0].attribute_proto.add(name="a", type=onnx.AttributeProto.TENSOR).t.CopyFrom(external())
    return proto


def in_training() -> onnx.ModelProto:
    proto = model(graph())
    proto.training_info.add().algorithm.initializer.append(external())
    return proto


def named_only() -> onnx.ModelProto:
    tensor = external()
    tensor.data_location = TensorProto.DEFAULT
    return model(graph(weights=[tensor]))


def located_only() -> onnx.ModelProto:
    tensor = external()
    del tensor.external_data[:]
    return model(graph(weights=[tensor]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: model(graph(weights=[external()])), in_node, in_branch, in_sparse, in_sparse_attribute,
        in_function, in_default, in_training, named_only, located_only,
    ],
)  # fmt: skip
def test_values_in_other_files_are_refused(make: Callable[[], onnx.ModelProto]) -> None:
    """They may be anywhere in the graph. The public message does not name the other file."""
    with pytest.raises(ModelFileError, match="w: expected its values in this file") as error:
        expect_self_contained(make().SerializeToString(), "a.onnx")
    assert error.value.public_message == "its weights are in another file"


def test_a_self_contained_model_passes() -> None:
    """It has all kinds of constants."""
    expect_self_contained(highway().model)
    inner = numpy_helper.from_array(np.zeros(1, np.float32))
    expect_self_contained(
        model(graph(nodes=[helper.make_node("Constant", [], ["y"], value=inner)])).SerializeToString()
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a model at all",
        b"\x00" * 40,
        b"PK\x03\x04",
        highway().model[:-3],
        b"\x80" * 20,
        b"\x0b\x0c",
    ],
)
def test_files_that_are_not_models_are_refused(data: bytes) -> None:
    """They are empty, of another kind, or truncated."""
    with pytest.raises(ModelFileError, match="a.onnx: expected an ONNX model") as error:
        expect_self_contained(data, "a.onnx")
    assert error.value.public_message == "its file is damaged or not an ONNX model"


def test_deeply_nested_graphs_are_refused() -> None:
    """Deep nesting would overflow the stack of the reader."""
    graph = b""
    for _ in range(70):  # a graph in an attribute of a node of a graph
        for number in (6, 5, 1):
            graph = field_of(number, graph)
    with pytest.raises(ModelFileError, match="nested more than 64 deep"):
        expect_self_contained(field_of(8, b"") + field_of(7, graph))


def field_of(number: int, inner: bytes) -> bytes:
    """A message with another one in one of its fields."""
    size, low = [], len(inner)
    while low >= 0x80:
        size.append(low & 0x7F | 0x80)
        low >>= 7
    return bytes([number << 3 | 2, *size, low]) + inner


# no deadline: the first example exports the network
@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2_000), st.integers(0, 255))
def test_any_damage_is_a_model_file_error(junk: bytes, position: int, byte: int) -> None:
    """Changed bytes may also give a valid file."""
    damaged = bytearray(highway(layers=1).model)
    damaged[position % len(damaged)] = byte
    for data in (junk, bytes(damaged)):
        try:
            expect_self_contained(data)
            read_initializers(data, {"layers.0.gate.bias"})
        except ModelFileError:
            pass


def test_the_last_of_repeated_fields_counts() -> None:
    """As in protobuf, and so in onnxruntime, which runs the file."""
    values = np.array([1.5, -2.0])
    first = helper.make_tensor("v", TensorProto.FLOAT, [2], [3.0, 4.0])
    again = onnx.TensorProto(name="w", data_type=TensorProto.DOUBLE, raw_data=values.tobytes())
    tensor = first.SerializeToString() + again.SerializeToString()
    data = model(graph()).SerializeToString() + field_of(7, field_of(5, tensor))
    assert onnx.load_from_string(data).graph.initializer[0].name == "w"
    array = read_initializers(data, {"w"})["w"]
    np.testing.assert_array_equal(array, values, strict=True)
