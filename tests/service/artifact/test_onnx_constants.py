"""Constants read without a runtime, and files that are refused before one sees them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from service.artifact.onnx_constants import expect_self_contained, read_initializers
from service.errors import ModelFileError
from tests.support.tiny_highway import highway


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


def model(made: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_the_numbers_are_onnx_s_own() -> None:
    """Every weight of a network comes out as onnx itself reads it, in an array that may be written to."""
    gated = highway()
    found = read_initializers(gated.model, set(gated.weights))
    assert found.keys() == gated.weights.keys()
    for name, array in found.items():
        assert array.dtype == gated.weights[name].dtype
        assert np.array_equal(array, gated.weights[name])
        assert array.flags.writeable


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_every_way_to_write_numbers_is_read(kind: int, raw: bool) -> None:
    """Raw bytes or a list, in single, half and double precision."""
    values = np.array([[0.5, -2, 65504], [1e-7, 0, -0.0]], helper.tensor_dtype_to_np_dtype(kind))
    tensor = helper.make_tensor("w", kind, [2, 3], values.tobytes() if raw else values.ravel(), raw=raw)
    found = read_initializers(model(graph(weights=[tensor])).SerializeToString(), {"w"})["w"]
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("change", "says"),
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
def test_a_lever_that_makes_no_sense_is_said(change: Callable[[onnx.TensorProto], None], says: str) -> None:
    """Rather than fed to a model."""
    tensor = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    change(tensor)
    with pytest.raises(ModelFileError, match=says):
        read_initializers(model(graph(weights=[tensor])).SerializeToString(), {"w"}, "a.onnx")


def outside(name: str = "w") -> onnx.TensorProto:
    """A tensor whose numbers are said to be in another file."""
    tensor = onnx.TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def in_node() -> onnx.ModelProto:
    return model(graph(nodes=[helper.make_node("Constant", [], ["y"], value=outside())]))


def in_branch() -> onnx.ModelProto:
    branch = helper.make_graph([], "b", [], [], [outside()])
    deeper = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=branch)], "d", [], [])
    return model(graph(nodes=[helper.make_node("If", ["c"], ["y"], then_branch=deeper)]))


def in_sparse() -> onnx.ModelProto:
    made = model(graph())
    made.graph.sparse_initializer.add().values.CopyFrom(outside())
    return made


def in_sparse_attribute() -> onnx.ModelProto:
    sparse = onnx.SparseTensorProto(indices=outside())
    return model(graph(nodes=[helper.make_node("Constant", [], ["y"], sparse_value=sparse)]))


def in_function() -> onnx.ModelProto:
    made = model(graph())
    node = helper.make_node("Constant", [], ["y"], value=outside())
    made.functions.append(helper.make_function("f", "F", [], ["y"], [node], [helper.make_opsetid("", 20)]))
    return made


def in_default() -> onnx.ModelProto:
    made = in_function()
    del made.functions[0].node[:]
    made.functions[0].attribute_proto.add(name="a", type=onnx.AttributeProto.TENSOR).t.CopyFrom(outside())
    return made


def in_training() -> onnx.ModelProto:
    made = model(graph())
    made.training_info.add().algorithm.initializer.append(outside())
    return made


def named_only() -> onnx.ModelProto:
    tensor = outside()
    tensor.data_location = TensorProto.DEFAULT
    return model(graph(weights=[tensor]))


def located_only() -> onnx.ModelProto:
    tensor = outside()
    del tensor.external_data[:]
    return model(graph(weights=[tensor]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: model(graph(weights=[outside()])), in_node, in_branch, in_sparse, in_sparse_attribute,
        in_function, in_default, in_training, named_only, located_only,
    ],
)  # fmt: skip
def test_numbers_in_other_files_are_refused(make: Callable[[], onnx.ModelProto]) -> None:
    """Wherever the graph hides them; the public reason does not say which file was meant."""
    with pytest.raises(ModelFileError, match="w: expected its values in this file") as error:
        expect_self_contained(make().SerializeToString(), "a.onnx")
    assert error.value.public_message == "its weights are in another file"


def test_a_whole_model_passes() -> None:
    """With constants of every kind inside of it."""
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
def test_what_is_no_model_is_refused(data: bytes) -> None:
    """Empty, another kind of file, or cut."""
    with pytest.raises(ModelFileError, match="a.onnx: expected an ONNX model") as error:
        expect_self_contained(data, "a.onnx")
    assert error.value.public_message == "its file is damaged or not an ONNX model"


def test_graphs_without_end_are_refused() -> None:
    """Nesting costs an attacker nothing, and a reader its stack."""
    graph = b""
    for _ in range(70):  # a graph in an attribute of a node of a graph
        for number in (6, 5, 1):
            graph = written(number, graph)
    with pytest.raises(ModelFileError, match="nested more than 64 deep"):
        expect_self_contained(written(8, b"") + written(7, graph))


def written(number: int, inner: bytes) -> bytes:
    """A message in a field of another one."""
    size, low = [], len(inner)
    while low >= 0x80:
        size.append(low & 0x7F | 0x80)
        low >>= 7
    return bytes([number << 3 | 2, *size, low]) + inner


@given(st.binary(max_size=300), st.integers(0, 2_000), st.integers(0, 255))
def test_any_damage_is_one_clear_error(junk: bytes, at: int, byte: int) -> None:
    """Whatever the bytes are, they pass or are refused, and nothing else happens."""
    damaged = bytearray(highway(layers=1).model)
    damaged[at % len(damaged)] = byte
    for data in (junk, bytes(damaged)):
        try:
            expect_self_contained(data)
            read_initializers(data, {"layers.0.gate.bias"})
        except ModelFileError:
            pass
