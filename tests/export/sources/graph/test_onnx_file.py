"""Files that could run code, read other files or exhaust memory are rejected."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.support.onnx_sources import WEIGHT, dense, model_of, value
from turnpike.export.errors import ExportError, RefusedError, SourceError, UntraceableError
from turnpike.export.network import Network
from turnpike.export.sources.graph import onnx_file
from turnpike.export.sources.graph.onnx_graph import read_onnx
from turnpike.service.artifact.manifest import METADATA_KEY


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
    read: Callable[..., Network],
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
def test_constants_must_fit_their_shape(read: Callable[..., Network], dims: list[int]) -> None:
    """Too few and too many elements."""
    model = model_of(dense())
    model.graph.initializer[0].dims[:] = dims
    with pytest.raises(SourceError, match="w: its numbers do not fit its shape"):
        read(model)


def test_a_file_over_the_size_limit_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "net.onnx").open("wb") as file:
        file.truncate(onnx_file.MAX_FILE_BYTES + 1)
    with pytest.raises(RefusedError, match="expected at most 2 GiB"):
        read_onnx(tmp_path / "net.onnx")


def branches(node: NodeProto) -> list[NodeProto]:
    """A node in both branches of an If."""
    graph = helper.make_graph([node], "branch", [], [value("b", None, 3)])
    return [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.bool_(True))),
        *dense(helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)),
    ]


@pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx.ml", "evil"])
def test_operators_of_other_domains_are_rejected(read: Callable[..., Network], domain: str) -> None:
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


def test_operators_of_a_quantizer_are_rejected_with_a_remedy(read: Callable[..., Network]) -> None:
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
    read: Callable[..., Network], node: NodeProto, nested: bool
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


def test_dropout_in_eval_mode_is_accepted(read: Callable[..., Network]) -> None:
    """Training mode is off, or omitted."""
    off = numpy_helper.from_array(np.bool_(False), "off")
    nodes = dense(
        helper.make_node("Dropout", ["h"], ["d"]), helper.make_node("Dropout", ["d", "", "off"], ["y"])
    )
    assert read(model_of(nodes, initializers=(WEIGHT, off))).graph is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.node.extend(dense()),
        lambda graph: graph.input.append(graph.input[0]),
        lambda graph: graph.output.append(graph.output[0]),
        lambda graph: graph.initializer.append(graph.initializer[0]),
    ],
)
def test_names_are_distinct(read: Callable[..., Network], change: Callable[[GraphProto], None]) -> None:
    model = model_of(dense())
    change(model.graph)
    with pytest.raises(SourceError, match="expected .* of distinct names, got '[xyw]' more than once"):
        read(model)


def test_recursive_and_exploding_functions_are_rejected(read: Callable[..., Network]) -> None:
    """Mutual recursion, five levels that each call the next ten times, and a chain of thousands."""
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
    tower = [function("F0"), *(function(f"F{level + 1}", *[f"F{level}"] * 10) for level in range(5))]
    tower.append(function("F9", "F5", "F5"))
    with pytest.raises(RefusedError, match="its functions expand to 222224 nodes, more than 200000"):
        read(model_of(dense(call), functions=tower, imports=[own]))
    deep = [
        function("F9", "E0"),
        *(function(f"E{level}", f"E{level + 1}") for level in range(5000)),
        function("E5000"),
    ]
    with pytest.raises(RefusedError, match="call each other too deeply"):
        read(model_of(dense(call), functions=deep, imports=[own]))


def test_deeply_nested_graphs_are_rejected(read: Callable[..., Network]) -> None:
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
def test_a_truncated_file_is_an_error(read: Callable[..., Network], keep: int) -> None:
    with pytest.raises(ExportError, match="net.onnx"):
        read(model_of(dense()).SerializeToString()[:keep])


def test_other_kinds_of_files_are_rejected(read: Callable[..., Network], tmp_path: Path) -> None:
    """Pickles and archives with the suffix .onnx are not opened."""
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pt")
    for content in (pickle.dumps({}), (tmp_path / "w.pt").read_bytes()):
        with pytest.raises(RefusedError, match="got a zip archive or a pickle"):
            read(content)
    for content in (b"hello", b"\x89PNG\r\n\x1a\n", b"{}"):
        with pytest.raises(SourceError, match="net.onnx: expected "):
            read(content)


def test_a_file_exported_by_turnpike_is_rejected(read: Callable[..., Network]) -> None:
    """It was verified already; exporting it again would lose what it was verified against."""
    model = model_of(dense())
    helper.set_model_props(model, {METADATA_KEY: "{}"})
    with pytest.raises(SourceError, match="was already exported by turnpike: check it with turnpike verify"):
        read(model)


def test_sparse_and_string_constants_are_rejected(read: Callable[..., Network]) -> None:
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
