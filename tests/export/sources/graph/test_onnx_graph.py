"""Reading .onnx files from any tool: names, shapes, inputs and opsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tests.support.onnx_sources import ROWS, WEIGHT, dense, model_of, outputs_of, value
from turnpike.export.errors import RefusedError, SourceError, UsageError
from turnpike.export.network import Network
from turnpike.export.sources.graph import onnx_graph
from turnpike.service.artifact.runtime import open_model


def test_a_valid_file_is_read(read: Callable[..., Network]) -> None:
    """The source has the file's inputs, and its graph computes the same as the file."""
    model = model_of(dense())
    source = read(model)
    assert (source.name, source.kind) == ("net", "onnx")
    assert [str(spec) for spec in source.inputs] == ["x:float32[n,4]"]
    assert np.array_equal(
        outputs_of(source, x=ROWS)[0], open_model(model.SerializeToString()).run({"x": ROWS})[0]
    )


def test_inputs_get_the_names_of_the_user(read: Callable[..., Network]) -> None:
    """They are renamed in branches too. An inner value may have such a name already."""
    branch = helper.make_graph([helper.make_node("Neg", ["h"], ["b"])], "then", [], [value("b", None, 3)])
    other = helper.make_graph(
        [helper.make_node("Mul", ["x1", "x1"], ["o"])], "else", [], [value("o", None, None)]
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Identity", ["h"], ["x1"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    source = read(model_of(nodes, initializers=(WEIGHT, zero)), "x1:float32[batch,4]")
    assert [str(spec) for spec in source.inputs] == ["x1:float32[batch,4]"]
    rows = ROWS @ numpy_helper.to_array(WEIGHT)
    assert np.allclose(outputs_of(source, x1=ROWS)[0], -rows)
    assert np.allclose(outputs_of(source, x1=-ROWS)[0], rows * rows)
    with pytest.raises(UsageError, match=r"expected x:float32\[n,4\], under any names, got x:float32\[n,5\]"):
        read(model_of(dense()), "x:float32[n,5]")
    with pytest.raises(UsageError, match="expected names that no other input or output has, got 'y'"):
        read(model_of(dense()), "y:float32[n,4]")


def test_invalid_names_are_replaced_and_dimensions_get_names(read: Callable[..., Network]) -> None:
    """tf2onnx and Keras write names such as `x:0`, and dimensions without a name."""
    nodes = [helper.make_node("Add", ["x:0", "1"], ["y:0"])]
    inputs = (value("x:0", None, None), value("1", None, "a b"))
    source = read(model_of(nodes, inputs, (value("y:0", None, None),), ()))
    assert [str(spec) for spec in source.inputs] == ["x_0:float32[batch,dim1]", "x1:float32[batch,dim2]"]
    assert source.graph is not None
    assert [value.name for value in source.graph.graph.output] == ["y_0"]


def test_shapes_are_inferred_in_the_users_names(read: Callable[..., Network]) -> None:
    """The batch of the output is that of the input, although the file has the new name elsewhere."""
    source = read(model_of(dense(), outputs=(value("y", "rows", 3),)), "x:float32[rows,4]").graph
    assert source is not None
    output = source.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in output] == ["rows", 3]


def test_weights_are_removed_from_the_inputs(read: Callable[..., Network]) -> None:
    """Files from before IR version 4 list them there, and a caller could override them."""
    source = read(model_of(dense(), inputs=(value("x", "n", 4), value("w", 4, 3)), ir_version=3))
    assert [spec.name for spec in source.inputs] == ["x"]
    assert source.graph is not None
    assert [value.name for value in source.graph.graph.input] == ["x"]


def test_shared_biases_are_copied(read: Callable[..., Network]) -> None:
    """PyTorch's older exporter writes equal biases once, and copies them with Identity nodes."""
    bias = numpy_helper.from_array(np.full(3, 0.5, np.float32), "b")
    nodes = [
        helper.make_node("Identity", ["b"], ["c"]),
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Add", ["h", "c"], ["y"]),
    ]
    model = model_of(nodes, initializers=(WEIGHT, bias))
    source = read(model)
    assert source.graph is not None
    assert [node.op_type for node in source.graph.graph.node] == ["Gemm", "Add"]
    (gemm, add) = source.graph.graph.node
    assert gemm.input[2] != add.input[1]
    assert np.array_equal(
        outputs_of(source, x=ROWS)[0], open_model(model.SerializeToString()).run({"x": ROWS})[0]
    )


@pytest.mark.parametrize(("size", "operators"), [(1 << 16, ["Gemm"]), ((1 << 16) + 1, ["Identity", "Gemm"])])
def test_long_shared_biases_are_not_copied(
    read: Callable[..., Network], size: int, operators: list[str]
) -> None:
    """A copy of more than 65,536 elements would cost more than the operator of a lever."""
    weight = numpy_helper.from_array(np.ones((4, size), np.float32), "w")
    bias = numpy_helper.from_array(np.ones(size, np.float32), "b")
    nodes = [helper.make_node("Identity", ["b"], ["c"]), helper.make_node("Gemm", ["x", "w", "c"], ["y"])]
    source = read(model_of(nodes, outputs=(value("y", "n", size),), initializers=(weight, bias)))
    assert source.graph is not None
    assert [node.op_type for node in source.graph.graph.node] == operators


def test_values_of_the_largest_size_are_read(read: Callable[..., Network]) -> None:
    """An input of 2^31 elements a row, and an inner value of as many."""
    nodes = [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("ReduceMax", ["h"], ["y"])]
    model = model_of(nodes, (value("x", "n", 1 << 31),), (value("y", 1, 1),), ())
    assert [str(spec) for spec in read(model).inputs] == ["x:float32[n,2147483648]"]


def test_functions_are_inlined(read: Callable[..., Network]) -> None:
    body = [helper.make_node("MatMul", ["a", "b"], ["c"])]
    function = helper.make_function("own", "Dense", ["a", "b"], ["c"], body, [helper.make_opsetid("", 20)])
    model = model_of(
        [helper.make_node("Dense", ["x", "w"], ["y"], domain="own")],
        functions=[function],
        imports=[helper.make_opsetid("own", 1)],
    )
    source = read(model)
    assert source.graph is not None
    assert [node.op_type for node in source.graph.graph.node] == ["MatMul"]
    assert {opset.domain for opset in source.graph.opset_import} == {""}
    assert np.array_equal(outputs_of(source, x=ROWS)[0], ROWS @ numpy_helper.to_array(WEIGHT))


def test_metadata_of_the_authors_machine_is_removed(read: Callable[..., Network]) -> None:
    model = model_of(dense())
    model.doc_string = model.graph.doc_string = model.graph.node[0].doc_string = "/home/someone/secret.py"
    helper.set_model_props(model, {"path": "/home/someone/secret.py"})
    source = read(model).graph
    assert source is not None
    assert b"secret" not in source.SerializeToString()


@pytest.mark.parametrize(
    ("inputs", "nodes", "message"),
    [
        ((value("x", "n", (1 << 31) + 1),), dense(), "its shape .* claims more than 2.31 numbers a row"),
        (
            (value("x", "n", 4),),
            [
                helper.make_node("ConstantOfShape", ["size"], ["big"]),
                helper.make_node("ReduceSum", ["big"], ["zero"], keepdims=0),
                *dense(helper.make_node("Add", ["h", "zero"], ["y"])),
            ],
            "value 'big' of .* would hold more than 2.31 numbers",
        ),
    ],
)
def test_values_of_absurd_size_are_rejected(
    read: Callable[..., Network], inputs: Sequence[ValueInfoProto], nodes: list[NodeProto], message: str
) -> None:
    """Inputs and inner values of more than 2^31 elements."""
    size = numpy_helper.from_array(np.array([1 << 16, (1 << 15) + 1], np.int64), "size")
    with pytest.raises(RefusedError, match=message):
        read(model_of(nodes, inputs, initializers=(WEIGHT, size)))


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ((value("x", "n", 4, dtype=TensorProto.STRING),), (value("y", "n", 3),), "input 'x': .* got string"),
        ((value("x", "n", 4, dtype=TensorProto.COMPLEX64),), (value("y", "n", 3),), "got complex64"),
        ((value("x", "n", 4, dtype=TensorProto.BFLOAT16),), (value("y", "n", 3),), "got bfloat16"),
        (
            (helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None),),
            (value("y", "n", 3),),
            "input 'x': expected a tensor of numbers, got a sequence",
        ),
        (
            (value("x", "n", 4),),
            (helper.make_value_info("y", helper.make_optional_type_proto(value("y", 1).type)),),
            "output 'y': expected a tensor of numbers, got a optional",
        ),
        (
            (value("x", "n", 4),),
            (value("y", "n", 3, dtype=TensorProto.INT64),),
            "expected an output of floating",
        ),
        ((), (value("y", "n", 3),), "expected a graph with an input, got none"),
        ((value("x", 0, 4),), (value("y", 0, 3),), "expected dimensions of 1 or more, got 0"),
        ((value("x", 4, "time"),), (value("y", 4, 3),), "it is fixed while others vary"),
        (
            (helper.make_tensor_value_info("x", TensorProto.FLOAT, None),),
            (value("y", "n", 3),),
            "input 'x': expected a shape, of numbers and names, got none",
        ),
    ],
)
def test_inputs_and_outputs_are_tensors_that_can_be_served(
    read: Callable[..., Network],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    message: str,
) -> None:
    """Other kinds of values are named in the message."""
    with pytest.raises(SourceError, match=message):
        read(model_of(dense(), inputs, outputs))


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("NoSuchOperator", ["h"], ["y"]),
        helper.make_node("Softmax", ["absent"], ["y"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ],
)
def test_errors_of_onnx_own_checker_are_reported(read: Callable[..., Network], node: NodeProto) -> None:
    """An unknown operator, a value that no node computes, shapes that do not fit."""
    with pytest.raises(SourceError, match="net.onnx: rejected by ONNX's checker: "):
        read(model_of(dense(node)))


def test_a_constant_with_nan_causes_a_warning(read: Callable[..., Network]) -> None:
    """A single one is enough. It is allowed: parity compares NaN too."""
    numbers = np.ones((4, 3), np.float32)
    numbers[1, 2] = np.nan
    weight = numpy_helper.from_array(numbers, "w")
    assert read(model_of(dense(), initializers=(weight,))).messages.warnings == ("w holds NaN",)


def test_an_old_opset_is_converted_and_compared(read: Callable[..., Network]) -> None:
    """The graph computes the same, and there is a warning."""
    nodes = dense(
        helper.make_node("Dropout", ["h"], ["d"]), helper.make_node("Clip", ["d"], ["y"], min=0.1, max=1.0)
    )
    model = model_of(nodes, version=9)
    source = read(model)
    assert source.messages.warnings[0].endswith("opset 9 was converted to 20")
    assert source.graph is not None
    assert [opset.version for opset in source.graph.opset_import] == [20]
    assert np.array_equal(
        outputs_of(source, x=ROWS)[0], open_model(model.SerializeToString()).run({"x": ROWS})[0]
    )


def test_a_recent_opset_is_kept(read: Callable[..., Network]) -> None:
    """Opsets from 17 on are recent."""
    source = read(model_of(dense(), version=17))
    assert source.messages.warnings == ()
    assert source.graph is not None
    assert [opset.version for opset in source.graph.opset_import] == [17]


def test_a_conversion_that_changes_the_results_is_rejected(
    read: Callable[..., Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converter may report success all the same."""
    changed = model_of([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Neg", ["h"], ["y"])])
    monkeypatch.setattr(onnx_graph.version_converter, "convert_version", lambda model, version: changed)
    with pytest.raises(SourceError, match="opset 11 converted to 20: 'y' computes something else"):
        read(model_of(dense(), version=11))


def test_an_opset_that_cannot_be_converted_is_an_error(
    read: Callable[..., Network], monkeypatch: pytest.MonkeyPatch
) -> None:

    def fail(model: ModelProto, version: int) -> ModelProto:
        raise RuntimeError("no adapter for Upsample")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fail)
    with pytest.raises(
        SourceError, match="expected opset 17 or later, got 11, .*no adapter.*: export the mod"
    ):
        read(model_of(dense(), version=11))
