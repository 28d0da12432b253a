"""Layouts of onnxruntime become those of ONNX: compared with loops, and with what onnxruntime computes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from tests.export.optimized.networks import CASES
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.numbers.reals import Reals
from turnpike.export.identity.onnx.run_graph import run_graph
from turnpike.export.optimized.normal_form import NCHWC, block_size, in_onnx_order, optimize, to_onnx
from turnpike.service.artifact.runtime import open_model

# rounding of float32 in three layers
TOLERANCE = 1e-5


def test_a_block_has_8_or_16_channels() -> None:
    assert block_size() in (8, 16)


@pytest.mark.parametrize(("outputs", "inputs", "block"), [(16, 8, 8), (32, 32, 16), (8, 3, 8), (16, 1, 8)])
def test_weights_get_the_order_of_their_axes(outputs: int, inputs: int, block: int) -> None:
    """The blocks are written here number by number, as onnxruntime's documentation has them."""
    height, width = 3, 2
    weights = np.random.default_rng(0).standard_normal((outputs, inputs, height, width)).astype(np.float32)
    numbers = []
    step = block if inputs >= block else inputs
    for output_block in range(0, outputs, block):
        for input_block in range(0, inputs, step):
            places = [(row, column) for row in range(height) for column in range(width)]
            order = [
                (i, row, column) for row, column in places for i in range(input_block, input_block + step)
            ]
            if inputs < block:
                order = [(i, row, column) for i in range(inputs) for row, column in places]
            numbers += [
                weights[output, i, row, column]
                for i, row, column in order
                for output in range(output_block, output_block + block)
            ]
    blocked = np.array(numbers, np.float32).reshape(weights.shape)
    np.testing.assert_array_equal(in_onnx_order(blocked, block), weights)


@pytest.mark.parametrize("name", CASES)
def test_the_rewritten_graph_computes_what_onnxruntime_computes(name: str) -> None:
    data = CASES[name].data
    model = optimize(data)
    to_onnx(model)
    assert all(node.domain != NCHWC for node in model.graph)
    (spec,) = open_model(data).inputs
    x = np.random.default_rng(1).standard_normal([4, *spec.dims[1:]]).astype(np.float32)
    algebra = Algebra(Reals(), symbolic_sizes=False)
    outputs = run_graph(model, algebra, [algebra.term(x)]).outputs
    runtime = open_model(data)
    names = [str(value.name) for value in model.graph.outputs]
    for output, expected in zip(names, runtime.run({spec.name: x}, names), strict=True):
        actual = algebra.term(outputs[output]).data[0]
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max() < TOLERANCE * max(1, np.abs(expected).max())


def test_a_graph_of_onnx_stays_as_it_is() -> None:
    model = ir.from_proto(ir.to_proto(optimize(CASES["highway"].data)))
    before = [(node.domain, node.op_type) for node in model.graph]
    to_onnx(model)
    assert [(node.domain, node.op_type) for node in model.graph] == before
