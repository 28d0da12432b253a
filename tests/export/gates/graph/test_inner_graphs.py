"""Highways inside Scan and Loop operators: recurrent highways of other exporters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from tests.support.gate_graphs import instrument_proto, shifted_biases
from turnpike.export.gates.graph.inner_graphs import loop_bodies
from turnpike.export.gates.instrument import instrument
from turnpike.export.pipeline import export_model
from turnpike.export.verify import verify_model
from turnpike.service.artifact.runtime import open_model

Array = np.ndarray[Any, np.dtype[Any]]

STEPS, UNITS = 6, 4
X = np.random.default_rng(0).normal(size=(3, STEPS, UNITS)).astype(np.float32)
WEIGHTS = ("w_h", "r_h", "w_t", "r_t", "b_t", "w_u", "b_u", "w_v", "b_v")

# a recurrent highway of two micro-layers; the second has a carry gate
STEP = """
        xh = MatMul (x_t, w_h)
        hh = MatMul (h, r_h)
        h_sum = Add (xh, hh)
        new = Tanh (h_sum)
        xt = MatMul (x_t, w_t)
        ht = MatMul (h, r_t)
        t_sum = Add (xt, ht)
        t_logit = Add (t_sum, b_t)
        t = Sigmoid (t_logit)
        c = Sub (one, t)
        t_new = Mul (t, new)
        c_h = Mul (c, h)
        s = Add (t_new, c_h)
        u_logit = Gemm (s, w_u, b_u)
        u = Sigmoid (u_logit)
        v_sum = Gemm (s, w_v, b_v)
        v = Tanh (v_sum)
        u_v = Mul (u, v)
        d = Sub (one, u)
        d_s = Mul (d, s)
        next = Add (u_v, d_s)
"""
# the state before the first step: zeros
START = """
<ir_version: 8, opset_import: ["": 17]>
main (float[batch, steps, 4] x) => (float[batch, steps, 4] y) {
    one = Constant <value = float {1}> ()
    sequence = Transpose <perm = [1, 0, 2]> (x)
    zero = Constant <value_ints = [0]> ()
    first = Gather <axis = 0> (sequence, zero)
    flat = Squeeze (first, zero)
    start = Sub (flat, flat)"""
SCAN = f"""{START}
    last, ys = Scan <num_scan_inputs = 1, body = step (float[batch, 4] h, float[batch, 4] x_t)
        => (float[batch, 4] next, float[batch, 4] out) {{{STEP}
        out = Identity (next)
    }}> (start, sequence)
    y = Transpose <perm = [1, 0, 2]> (ys)
}}
"""
REVERSED_SCAN = SCAN.replace(
    "num_scan_inputs = 1", "num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1]"
)
# the outputs come in the order of the steps, the last row of the sequence first
REVERSED_INPUT = SCAN.replace("num_scan_inputs = 1", "num_scan_inputs = 1, scan_input_directions = [1]")
LOOP = f"""{START}
    shape = Shape (x)
    count_at = Constant <value = int64 {{1}}> ()
    count = Gather (shape, count_at)
    always = Constant <value = bool {{1}}> ()
    last, ys = Loop <body = step (int64 number, bool before, float[batch, 4] h)
        => (bool after, float[batch, 4] next, float[batch, 4] out) {{
        after = Identity (before)
        x_t = Gather <axis = 0> (sequence, number){STEP}
        out = Identity (next)
    }}> (count, always, start)
    y = Transpose <perm = [1, 0, 2]> (ys)
}}
"""


def sigmoid(z: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-z))
    return result


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(2)
    return {
        name: rng.normal(size=(UNITS,) if name.startswith("b") else (UNITS, UNITS)).astype(np.float32)
        for name in WEIGHTS
    }


def model_of(text: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights().items())
    onnx.checker.check_model(proto)
    return proto


def expected_values(*, backwards: bool = False) -> dict[str, Array]:
    """Both gates and states of all rows and steps."""
    w = weights()
    h = np.zeros((len(X), UNITS))
    order = range(STEPS)[::-1] if backwards else range(STEPS)
    values: dict[str, Array] = {
        f"layer00.depth{depth}.{part}": np.zeros(X.shape)
        for depth in (0, 1)
        for part in ("transform_gate", "output")
    }
    for step in order:
        x = X[:, step]
        t = sigmoid(x @ w["w_t"] + h @ w["r_t"] + w["b_t"])
        s = t * np.tanh(x @ w["w_h"] + h @ w["r_h"]) + (1 - t) * h
        u = sigmoid(s @ w["w_u"] + w["b_u"])
        h = u * np.tanh(s @ w["w_v"] + w["b_v"]) + (1 - u) * s
        for depth, gate, output in ((0, t, s), (1, u, h)):
            values[f"layer00.depth{depth}.transform_gate"][:, step] = gate
            values[f"layer00.depth{depth}.output"][:, step] = output
    return values


@pytest.mark.parametrize(
    "text",
    [SCAN, REVERSED_SCAN, REVERSED_INPUT, LOOP],
    ids=["Scan", "reversed Scan", "reversed input", "Loop"],
)
def test_the_gates_of_a_loop_are_those_of_its_steps(text: str) -> None:
    """They come rows first, then steps, and the outputs of the graph stay as they were."""
    proto = model_of(text)
    before = open_model(proto.SerializeToString()).run({"x": X}, ["y"])[0]
    _, instrumentation, runtime = instrument_proto(proto)
    expected = expected_values(backwards=text in (REVERSED_SCAN, REVERSED_INPUT))
    first, second = instrumentation.gates
    assert (first.layer, first.depth, second.layer, second.depth) == (0, 0, 0, 1)
    assert (first.kind, first.carry, second.carry) == ("coupled", "identity", "identity")
    assert {first.name, first.output, second.name, second.output} == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(runtime.run({"x": X}, [name])[0], values, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(runtime.run({"x": X}, ["y"])[0], before)


def test_gates_without_rows_at_a_step_are_not_shown() -> None:
    """A Scan over the rows: its steps are the rows, and the first axis at a step is another one."""
    text = SCAN.replace("float[batch, steps, 4]", "float[steps, batch, 4]")
    model = ir.from_proto(model_of(text))
    instrumentation = instrument(model, "batch")
    assert instrumentation.gates == ()
    (warning,) = instrumentation.warnings
    assert warning.endswith(" and 1 more: the rows are not the first axis at a step of the loop")
    assert len(model.graph.outputs) == 1


@pytest.mark.parametrize("text", [SCAN, LOOP], ids=["Scan", "Loop"])
def test_the_state_after_a_step_is_the_state_before_the_next(text: str) -> None:
    """A Loop has its step and its condition before it."""
    (body,) = loop_bodies(ir.from_proto(model_of(text)).graph)
    assert [(after.name, before.name) for after, before in body.states.items()] == [("next", "h")]


@pytest.mark.parametrize("text", [SCAN, LOOP], ids=["Scan", "Loop"])
def test_the_levers_of_a_loop_are_inputs_of_the_graph(text: str) -> None:
    """Its own biases serve as levers; closing both micro-layers leaves the initial state, zeros."""
    model, instrumentation, runtime = instrument_proto(model_of(text))
    assert [lever.tensor for gate in instrumentation.gates for lever in gate.levers] == ["b_t", "b_u"]
    feeds = {"x": X, **shifted_biases(model, instrumentation.gates, -1e4)}
    np.testing.assert_array_equal(runtime.run(feeds, ["y"])[0], np.zeros(X.shape))


def test_a_bias_that_is_used_outside_the_loop_is_not_its_lever() -> None:
    """Moving it would change more than the gate."""
    proto = model_of(
        SCAN.replace("y = Transpose", "z = Transpose").replace("(ys)\n", "(ys)\n y = Add (z, b_t)\n")
    )
    _, instrumentation, _ = instrument_proto(proto)
    levers = [lever.tensor for gate in instrumentation.gates for lever in gate.levers]
    assert levers == ["layer00.depth0.transform_gate.bias", "b_u"]


def test_a_loop_without_gates_stays_as_it_is() -> None:
    text = SCAN.replace("t = Sigmoid (t_logit)", "t = Tanh (t_logit)")
    proto = model_of(text.replace("u = Sigmoid (u_logit)", "u = Tanh (u_logit)"))
    model = ir.from_proto(proto)
    before = [(node.op_type, len(node.inputs), len(node.outputs)) for node in model.graph.all_nodes()]
    assert instrument(model).gates == ()
    assert before == [(node.op_type, len(node.inputs), len(node.outputs)) for node in model.graph.all_nodes()]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_gates_that_cannot_be_outputs_are_counted() -> None:
    """Those of a loop in the branch of an If: every graph around them stays as it is."""
    start = SCAN.index("    last, ys")
    inner = SCAN[start : SCAN.index("    y = Transpose")]
    text = f"""{SCAN[:start]}
    condition = Constant <value = bool {{1}}> ()
    ys = If <
        then_branch = then () => (float[steps, batch, 4] kept) {{{inner.replace("ys", "kept")}}},
        else_branch = otherwise () => (float[steps, batch, 4] same) {{ same = Identity (sequence) }}
    > (condition)
    y = Transpose <perm = [1, 0, 2]> (ys)
}}
"""
    proto = model_of(text)
    model, instrumentation, runtime = instrument_proto(proto)
    assert instrumentation.gates == ()
    assert instrumentation.warnings == ("gates that are not in the file: 2 in an inner loop: the Scan last",)
    assert model.graph.num_nodes() == len(proto.graph.node)
    expected = expected_values()["layer00.depth1.output"]
    np.testing.assert_allclose(runtime.run({"x": X}, ["y"])[0], expected, atol=1e-5)


def test_a_huge_constant_of_a_loop_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of terabytes, whose shape alone is used, takes no memory."""
    evaluated: list[object] = []
    monkeypatch.setattr("turnpike.export.gates.graph.inner_graphs.ReferenceEvaluator", evaluated.append)
    text = SCAN.replace(
        "last, ys = Scan",
        """size = Constant <value_ints = [1000000, 1000000]> ()
    huge = ConstantOfShape (size)
    last, ys = Scan""",
    ).replace("out = Identity (next)", "shape = Shape (huge) out = Identity (next)")
    assert len(instrument_proto(model_of(text))[1].gates) == 2
    assert evaluated == []


def test_layers_are_numbered_across_a_graph_and_its_loops() -> None:
    """A highway before the loop, and one after it."""

    def highway(x: str, y: str, weight: str) -> str:
        return f"""
    {y}_logit = MatMul ({x}, {weight})
    {y}_biased = Add ({y}_logit, b_v)
    {y}_t = Sigmoid ({y}_biased)
    {y}_sum = MatMul ({x}, w_h)
    {y}_h = Relu ({y}_sum)
    {y}_th = Mul ({y}_t, {y}_h)
    {y}_c = Sub (one, {y}_t)
    {y}_cx = Mul ({y}_c, {x})
    {y} = Add ({y}_th, {y}_cx)
"""

    text = SCAN.replace(
        "sequence = Transpose <perm = [1, 0, 2]> (x)",
        f"{highway('x', 'a', 'w_u')} sequence = Transpose <perm = [1, 0, 2]> (a)",
    )
    text = text.replace(
        "y = Transpose <perm = [1, 0, 2]> (ys)",
        f"b = Transpose <perm = [1, 0, 2]> (ys) {highway('b', 'y', 'w_v')}",
    )
    _, instrumentation, _ = instrument_proto(model_of(text))
    assert [gate.name for gate in instrumentation.gates] == [
        "layer00.transform_gate",
        "layer01.depth0.transform_gate",
        "layer01.depth1.transform_gate",
        "layer02.transform_gate",
    ]


SECOND_AXIS = SCAN.replace("(start, sequence)", "(start, x)").replace(
    "num_scan_inputs = 1", "num_scan_inputs = 1, scan_input_axes = [1]"
)


@pytest.mark.parametrize(
    "text",
    [
        SCAN,
        pytest.param(REVERSED_SCAN, marks=pytest.mark.slow),
        pytest.param(SECOND_AXIS, marks=pytest.mark.slow),
    ],
    ids=["Scan", "reversed", "other axis"],
)
def test_a_graph_with_a_loop_is_proved_with_its_gates(text: str, tmp_path: Path) -> None:
    """The evaluator cannot run a Scan over another axis than the first: onnxruntime is the reference then."""
    source = tmp_path / "loop.onnx"
    onnx.save(model_of(text), source)
    result = export_model(source, tmp_path / "repository")
    assert {tensor.name for tensor in result.manifest.parity.tensors} == {"y", *expected_values()}
    assert verify_model(result.path, source).manifest == result.manifest
    expected = "onnxruntime alone" if text is SECOND_AXIS else "evaluator in float64"
    assert result.manifest.parity.reference.endswith(expected)
