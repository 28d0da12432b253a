"""Graphs without hidden outputs and levers: they compute the same, and have nothing else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.support.tiny_highway import highway
from tests.support.tiny_repository import with_manifest
from turnpike.service.artifact.onnx_file.protobuf import MalformedError
from turnpike.service.artifact.openvino import reduce_graph
from turnpike.service.artifact.runtime import open_model

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def test_hidden_outputs_and_levers_are_left_out() -> None:
    """The weights stay, as constants, and the answer has the same bits."""
    data = with_manifest(highway())
    whole = open_model(data)
    hidden = [tensor.name for tensor in whole.hidden]
    assert hidden
    assert whole.levers
    plain = onnx.load_from_string(reduce_graph(memoryview(data), hidden))
    onnx.checker.check_model(plain)
    assert [output.name for output in plain.graph.output] == ["logits"]
    assert [value.name for value in plain.graph.input] == ["x"]
    before = onnx.load_from_string(data)
    assert plain.graph.initializer == before.graph.initializer
    assert plain.graph.node == before.graph.node
    assert plain.metadata_props == before.metadata_props
    del plain.metadata_props[:]
    runtime = open_model(plain.SerializeToString())
    assert runtime.run({"x": X})[0].tobytes() == whole.run({"x": X})[0].tobytes()


def test_outputs_that_are_not_named_stay() -> None:
    data = with_manifest(highway())
    plain = onnx.load_from_string(reduce_graph(memoryview(data), ()))
    assert plain.graph.output == onnx.load_from_string(data).graph.output


def test_bytes_that_are_no_model_are_refused() -> None:
    with pytest.raises(MalformedError):
        reduce_graph(memoryview(b"\xff\xff"), ())
