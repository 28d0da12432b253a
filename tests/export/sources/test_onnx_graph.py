"""Reading .onnx files from any tool: valid graphs are accepted, and dangerous files rejected."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from export.errors import (
    ExportError,
    RefusedError,
    SourceError,
    SourceWarning,
    UntraceableError,
    UsageError,
)
from export.input_spec import parse_inputs
from export.source import Source
from export.sources import onnx_checks, onnx_graph
from export.sources.onnx_graph import read_onnx
from service.artifact.manifest import METADATA_KEY
from service.artifact.runtime import open_model

WEIGHT = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, "w")


def value(name: str, *dims: object, dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)  # type: ignore[arg-type]


def dense(*more: NodeProto) -> list[NodeProto]:
    """Nodes for y = x w; if more nodes are given, x w is h and they compute y."""
    if not more:
        return [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return [helper.make_node("MatMul", ["x", "w"], ["h"]), *more]


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto] = (value("x", "n", 4),),
    outputs: Sequence[ValueInfoProto] = (value("y", "n", 3),),
    initializers: Sequence[TensorProto] = (WEIGHT,),
    version: int = 20,
    ir_version: int = 8,
    **more: Any,
) -> ModelProto:
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializers)
    imports = [
        helper.make_opsetid("", version),
        helper.make_opsetid("com.microsoft", 1),
        *more.pop("imports", []),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, **more)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Source]:
    def call(model: ModelProto | bytes, *inputs: str) -> Source:
        path = tmp_path / "net.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return read_onnx(path, parse_inputs(inputs))

    return call


def outputs_of(source: Source, **feeds: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    assert source.graph is not None
    return open_model(source.graph.SerializeToString()).run(feeds)


ROWS = np.ones((2, 4), np.float32)


def test_a_valid_file_is_read(read: Callable[..., Source]) -> None:
    """With its inputs, and a graph that computes the same as the file."""
    model = model_of(dense())
    source = read(model)
    assert (source.name, source.kind) == ("net", "onnx")
    assert [str(spec) for spec in source.inputs] == ["x:float32[n,4]"]
    assert np.array_equal(
        outputs_of(source, x=ROWS)[0], open_model(model.SerializeToString()).run({"x": ROWS})[0]
    )


def test_inputs_get_the_names_of_the_user(read: Callable[..., Source]) -> None:
    """Also in branches, and if an inner value has such a name."""
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


def test_invalid_names_are_replaced_and_dimensions_get_names(read: Callable[..., Source]) -> None:
    """tf2onnx and Keras write names such as `x:0`, and dimensions without a name."""
    nodes = [helper.make_node("Add", ["x:0", "1"], ["y:0"])]
    inputs = (value("x:0", None, None), value("1", None, "a b"))
    source = read(model_of(nodes, inputs, (value("y:0", None, None),), ()))
    assert [str(spec) for spec in source.inputs] == ["x_0:float32[batch,dim1]", "x1:float32[batch,dim2]"]
    assert source.graph is not None
    assert [value.name for value in source.graph.graph.output] == ["y_0"]


def test_shapes_are_inferred_in_the_users_names(read: Callable[..., Source]) -> None:
    """The batch of the output is that of the input, although the file has the new name elsewhere."""
    source = read(model_of(dense(), outputs=(value("y", "rows", 3),)), "x:float32[rows,4]").graph
    assert source is not None
    output = source.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in output] == ["rows", 3]


def test_weights_are_removed_from_the_inputs(read: Callable[..., Source]) -> None:
    """Files from before IR version 4 list them there, and a caller could override them."""
    source = read(model_of(dense(), inputs=(value("x", "n", 4), value("w", 4, 3)), ir_version=3))
    assert [spec.name for spec in source.inputs] == ["x"]
    assert source.graph is not None
    assert [value.name for value in source.graph.graph.input] == ["x"]


def test_shared_biases_are_copied(read: Callable[..., Source]) -> None:
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


def test_functions_are_inlined(read: Callable[..., Source]) -> None:
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


def test_metadata_of_the_authors_machine_is_removed(read: Callable[..., Source]) -> None:
    model = model_of(dense())
    model.doc_string = model.graph.doc_string = model.graph.node[0].doc_string = "/home/someone/secret.py"
    helper.set_model_props(model, {"path": "/home/someone/secret.py"})
    source = read(model).graph
    assert source is not None
    assert b"secret" not in source.SerializeToString()


def external(model: ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    tensor.ClearField("raw_data")


def oversize(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 30, 1 << 30]


def oversize_without_bytes(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40]
    model.graph.initializer[0].ClearField("raw_data")


def negative(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [-4, -3]


def in_a_branch(change: Callable[[ModelProto], None]) -> Callable[[ModelProto], None]:
    """The same change to a constant in a branch of an If."""

    def nested(model: ModelProto) -> None:
        change(model)
        inner = [helper.make_node("Identity", ["v"], ["b"])]
        constant = TensorProto()
        constant.CopyFrom(model.graph.initializer[0])
        constant.name = "v"
        branch = helper.make_graph(inner, "branch", [], [value("b", 4, 3)], [constant])
        model.graph.initializer[0].CopyFrom(WEIGHT)
        model.graph.node.insert(
            0, helper.make_node("If", ["c"], ["unused"], then_branch=branch, else_branch=branch)
        )
        model.graph.initializer.append(numpy_helper.from_array(np.bool_(True), "c"))

    return nested


def in_a_node(change: Callable[[ModelProto], None]) -> Callable[[ModelProto], None]:
    """The same change to the value of a Constant node."""

    def nested(model: ModelProto) -> None:
        change(model)
        model.graph.node.insert(
            0, helper.make_node("Constant", [], ["unused"], value=model.graph.initializer[0])
        )
        model.graph.initializer[0].CopyFrom(WEIGHT)

    return nested


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (external, r"its numbers are in another file \('../../etc/passwd'\), and only one file is read"),
        (oversize, "claims more numbers than the file has"),
        (oversize_without_bytes, "claims more numbers than the file has"),
        (negative, "claims more numbers than the file has"),
    ],
)
@pytest.mark.parametrize("where", [lambda change: change, in_a_branch, in_a_node])
def test_constants_must_be_complete_in_the_file(
    read: Callable[..., Source],
    change: Callable[[ModelProto], None],
    message: str,
    where: Callable[[Callable[[ModelProto], None]], Callable[[ModelProto], None]],
) -> None:
    """No other file is read, and no memory allocated for elements that the file does not have."""
    model = model_of(dense())
    where(change)(model)
    with pytest.raises(RefusedError, match=message):
        read(model)


@pytest.mark.parametrize("dims", [[4, 4], [4], []])
def test_constants_must_fit_their_shape(read: Callable[..., Source], dims: list[int]) -> None:
    """Too few and too many elements."""
    model = model_of(dense())
    model.graph.initializer[0].dims[:] = dims
    with pytest.raises(SourceError, match="w: its numbers do not fit its shape"):
        read(model)


def test_a_file_over_the_size_limit_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "net.onnx").open("wb") as file:
        file.truncate(onnx_checks.MAX_FILE_BYTES + 1)
    with pytest.raises(RefusedError, match="expected at most 2 GiB"):
        read_onnx(tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("inputs", "nodes", "message"),
    [
        ((value("x", "n", 1 << 32),), dense(), "its shape .* claims more than 2.31 numbers a row"),
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
    read: Callable[..., Source], inputs: Sequence[ValueInfoProto], nodes: list[NodeProto], message: str
) -> None:
    """Inputs and inner values."""
    size = numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "size")
    with pytest.raises(RefusedError, match=message):
        read(model_of(nodes, inputs, initializers=(WEIGHT, size)))


def branches(node: NodeProto) -> list[NodeProto]:
    """A node in both branches of an If."""
    graph = helper.make_graph([node], "branch", [], [value("b", None, 3)])
    return [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.bool_(True))),
        *dense(helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)),
    ]


@pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx.ml", "evil"])
def test_operators_of_other_domains_are_rejected(read: Callable[..., Source], domain: str) -> None:
    """At the top level, in a branch and in a function."""
    opsets = [helper.make_opsetid(domain, 1)] if domain != "com.microsoft" else []
    message = f"Custom of the domain '{domain}' is not of the ONNX standard"
    node = helper.make_node("Custom", ["h"], ["y"], domain=domain)
    with pytest.raises(RefusedError, match=message):
        read(model_of(dense(node), imports=opsets))
    node = helper.make_node("Custom", ["h"], ["b"], domain=domain)
    with pytest.raises(RefusedError, match=message):
        read(model_of(branches(node), imports=opsets))
    body = [helper.make_node("Custom", ["a"], ["c"], domain=domain)]
    function = helper.make_function("own", "F", ["a"], ["c"], body, [helper.make_opsetid(domain, 1)])
    call = helper.make_node("F", ["h"], ["y"], domain="own")
    with pytest.raises(RefusedError, match=message):
        read(model_of(dense(call), functions=[function], imports=[*opsets, helper.make_opsetid("own", 1)]))


def test_operators_of_a_quantizer_are_rejected_with_a_remedy(read: Callable[..., Source]) -> None:
    """They belong to onnxruntime."""
    node = helper.make_node("MatMulNBits", ["h"], ["y"], domain="com.microsoft")
    with pytest.raises(
        RefusedError, match="optimizer or quantizer made it, so give the model from before that"
    ):
        read(model_of(dense(node)))


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("RandomNormalLike", ["h"], ["y"]),
        helper.make_node("Bernoulli", ["h"], ["y"]),
        helper.make_node("Dropout", ["h", "ratio", "on"], ["y"]),
        helper.make_node("Dropout", ["h", "ratio", "c"], ["y"]),
        helper.make_node("BatchNormalization", ["h", "s", "s", "s", "s"], ["y", "m", "v"], training_mode=1),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_random_numbers_and_training_mode_are_rejected(
    read: Callable[..., Source], node: NodeProto, nested: bool
) -> None:
    """At the top level and in a branch."""
    constants = [
        numpy_helper.from_array(np.float32(0.5), "ratio"),
        numpy_helper.from_array(np.bool_(True), "on"),
        numpy_helper.from_array(np.ones(3, np.float32), "s"),
    ]
    condition = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.bool_(True)))
    nodes = [condition, *dense(node)]
    if nested:
        inner = NodeProto()
        inner.CopyFrom(node)
        inner.output[0] = "b"
        nodes = branches(inner)
    with pytest.raises(UntraceableError, match="draws random numbers|is in training mode"):
        read(model_of(nodes, initializers=(WEIGHT, *constants)))


def test_dropout_in_eval_mode_is_accepted(read: Callable[..., Source]) -> None:
    """With training mode off, or omitted."""
    off = numpy_helper.from_array(np.bool_(False), "off")
    nodes = dense(
        helper.make_node("Dropout", ["h"], ["d"]), helper.make_node("Dropout", ["d", "", "off"], ["y"])
    )
    assert read(model_of(nodes, initializers=(WEIGHT, off))).graph is not None


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
    read: Callable[..., Source],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    message: str,
) -> None:
    """Other kinds of values are named in the message."""
    with pytest.raises(SourceError, match=message):
        read(model_of(dense(), inputs, outputs))


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.node.extend(dense()),
        lambda graph: graph.input.append(graph.input[0]),
        lambda graph: graph.output.append(graph.output[0]),
        lambda graph: graph.initializer.append(graph.initializer[0]),
    ],
)
def test_names_are_distinct(read: Callable[..., Source], change: Callable[[GraphProto], None]) -> None:
    model = model_of(dense())
    change(model.graph)
    with pytest.raises(SourceError, match="expected .* of distinct names, got '[xyw]' more than once"):
        read(model)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("NoSuchOperator", ["h"], ["y"]),
        helper.make_node("Softmax", ["absent"], ["y"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ],
)
def test_errors_of_onnx_own_checker_are_reported(read: Callable[..., Source], node: NodeProto) -> None:
    """An unknown operator, a value that no node computes, shapes that do not fit."""
    with pytest.raises(SourceError, match="net.onnx: rejected by ONNX's checker: "):
        read(model_of(dense(node)))


def test_recursive_and_exploding_functions_are_rejected(read: Callable[..., Source]) -> None:
    """Mutual recursion, ten levels that each call the next ten times, and a chain of thousands."""
    own, standard = helper.make_opsetid("own", 1), helper.make_opsetid("", 20)

    def function(name: str, *calls: str) -> Any:
        body = [
            helper.make_node(call, ["a"], [f"c{number}"], domain="own") for number, call in enumerate(calls)
        ]
        body.append(helper.make_node("Relu", ["a"], ["c"]))
        return helper.make_function("own", name, ["a"], ["c"], body, [own, standard])

    call = helper.make_node("F9", ["h"], ["y"], domain="own")
    with pytest.raises(RefusedError, match="function 'F9' calls itself"):
        read(model_of(dense(call), functions=[function("F9", "G"), function("G", "F9")], imports=[own]))
    tower = [function("F0"), *(function(f"F{level + 1}", *[f"F{level}"] * 10) for level in range(9))]
    with pytest.raises(RefusedError, match="its functions expand to [0-9]+ nodes"):
        read(model_of(dense(call), functions=tower, imports=[own]))
    deep = [
        function("F9", "E0"),
        *(function(f"E{level}", f"E{level + 1}") for level in range(5000)),
        function("E5000"),
    ]
    with pytest.raises(RefusedError, match="call each other too deeply"):
        read(model_of(dense(call), functions=deep, imports=[own]))


def test_deeply_nested_graphs_are_rejected(read: Callable[..., Source]) -> None:
    """A branch in a branch, 2000 levels deep."""
    node = helper.make_node("Identity", ["h"], ["b"])
    field = len("then_branch"), b"then_branch"
    content = node.SerializeToString()
    for _ in range(2000):
        graph = b"\x0a" + varint(len(content)) + content
        attribute = (
            b"\x0a" + bytes([field[0]]) + field[1] + b"\x32" + varint(len(graph)) + graph + b"\xa0\x01\x05"
        )
        content = b"\x22\x02If" + b"\x2a" + varint(len(attribute)) + attribute
    model = model_of(dense())
    model.graph.ClearField("node")
    graph = model.graph.SerializeToString() + b"\x0a" + varint(len(content)) + content
    model.ClearField("graph")
    with pytest.raises(ExportError, match="net.onnx"):
        read(model.SerializeToString() + b"\x3a" + varint(len(graph)) + graph)


def varint(number: int) -> bytes:
    """A number in protobuf's variable-length encoding."""
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize("keep", [0, 5, 40, -1])
def test_a_truncated_file_is_an_error(read: Callable[..., Source], keep: int) -> None:
    with pytest.raises(ExportError, match="net.onnx"):
        read(model_of(dense()).SerializeToString()[:keep])


def test_other_kinds_of_files_are_rejected(read: Callable[..., Source], tmp_path: Path) -> None:
    """Pickles and archives with the suffix .onnx are not opened."""
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pt")
    for content in (pickle.dumps({}), (tmp_path / "w.pt").read_bytes()):
        with pytest.raises(RefusedError, match="got a zip archive or a pickle"):
            read(content)
    for content in (b"hello", b"\x89PNG\r\n\x1a\n", b"{}"):
        with pytest.raises(SourceError, match="net.onnx: expected "):
            read(content)


def test_a_file_exported_by_turnpike_is_rejected(read: Callable[..., Source]) -> None:
    """It was verified already; exporting it again would lose what it was verified against."""
    model = model_of(dense())
    helper.set_model_props(model, {METADATA_KEY: "{}"})
    with pytest.raises(SourceError, match="was already exported by turnpike: check it with turnpike verify"):
        read(model)


def test_sparse_and_string_constants_are_rejected(read: Callable[..., Source]) -> None:
    text = helper.make_tensor("t", TensorProto.STRING, [1], [b"a"])
    with pytest.raises(SourceError, match="t: expected numbers, got STRING"):
        read(model_of(dense(), initializers=(WEIGHT, text)))
    model = model_of(dense())
    indices = numpy_helper.from_array(np.array([0], np.int64), "i")
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(numpy_helper.from_array(np.ones(1, np.float32), "v"), indices, [4])
    )
    with pytest.raises(SourceError, match="expected dense tensors, got a sparse one"):
        read(model)


def test_a_constant_with_nan_causes_a_warning(read: Callable[..., Source]) -> None:
    """It is allowed: parity compares NaN too."""
    weight = numpy_helper.from_array(np.full((4, 3), np.nan, np.float32), "w")
    with pytest.warns(SourceWarning, match="w holds NaN"):
        read(model_of(dense(), initializers=(weight,)))


def test_an_old_opset_is_converted_and_compared(read: Callable[..., Source]) -> None:
    """The graph computes the same, and there is a warning."""
    nodes = dense(
        helper.make_node("Dropout", ["h"], ["d"]), helper.make_node("Clip", ["d"], ["y"], min=0.1, max=1.0)
    )
    model = model_of(nodes, version=9)
    with pytest.warns(SourceWarning, match="opset 9 was converted to 20"):
        source = read(model)
    assert source.graph is not None
    assert [opset.version for opset in source.graph.opset_import] == [20]
    assert np.array_equal(
        outputs_of(source, x=ROWS)[0], open_model(model.SerializeToString()).run({"x": ROWS})[0]
    )


def test_a_recent_opset_is_kept(read: Callable[..., Source]) -> None:
    """From 17 on."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = read(model_of(dense(), version=17))
    assert source.graph is not None
    assert [opset.version for opset in source.graph.opset_import] == [17]


def test_a_conversion_that_changes_the_results_is_rejected(
    read: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the converter reports success."""
    changed = model_of([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Neg", ["h"], ["y"])])
    monkeypatch.setattr(onnx_graph.version_converter, "convert_version", lambda model, version: changed)
    with pytest.raises(SourceError, match="opset 11 converted to 20: 'y' computes something else"):
        read(model_of(dense(), version=11))


def test_an_opset_that_cannot_be_converted_is_an_error(
    read: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:

    def fail(model: ModelProto, version: int) -> ModelProto:
        raise RuntimeError("no adapter for Upsample")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fail)
    with pytest.raises(
        SourceError, match="expected opset 17 or later, got 11, .*no adapter.*: export the mod"
    ):
        read(model_of(dense(), version=11))
