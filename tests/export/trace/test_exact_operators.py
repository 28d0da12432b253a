"""Operators that torch.onnx writes as other functions are corrected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from turnpike.export.errors import UntraceableError
from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decision import Verdict
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.prepared_graph import prepare
from turnpike.export.trace.exact_operators import correct_masked_attention
from turnpike.export.trace.trace_network import trace


class Applied(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(x, y)


def answers(function: Callable[..., Any], inputs: list[str], *feeds: Tensor) -> tuple[Any, Any]:
    """What PyTorch answers, and what the graph does."""
    module = Applied(function).eval()
    graph = trace(Network("net", "module", parse_inputs(inputs), module=module)).model
    session = onnxruntime.InferenceSession(ir.to_proto(graph).SerializeToString())
    names = [value.name for value in session.get_inputs()]
    given = {name: feed.numpy() for name, feed in zip(names, feeds, strict=True)}
    return module(*feeds).numpy(), session.run(None, given)[0]


def attend(x: Tensor, allowed: Tensor) -> Tensor:
    return scaled_dot_product_attention(x, x, x, attn_mask=allowed[:, None, None, :])


def attend_by_numbers(x: Tensor, allowed: Tensor) -> Tensor:
    mask = torch.zeros_like(allowed, dtype=x.dtype).masked_fill(~allowed, -torch.inf)
    return scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None, None, :])


@pytest.mark.parametrize("function", [attend, attend_by_numbers])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_to_nothing_is_zero(function: Callable[..., Any], dtype: str) -> None:
    allowed = torch.tensor([[True, True, False], [False, False, False], [False, True, True]])
    x = torch.randn(3, 2, 3, 4, dtype=getattr(torch, dtype))
    expected, actual = answers(function, [f"x:{dtype}[batch,2,3,4]", "y:bool[batch,3]"], x, allowed)
    assert not expected[1].any()
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_a_mask_that_hides_nothing_changes_nothing() -> None:
    x = torch.randn(2, 2, 3, 4)
    spec = ["x:float32[batch,2,3,4]", "y:bool[batch,3]"]
    expected, actual = answers(attend, spec, x, torch.ones(2, 3, dtype=torch.bool))
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_a_nan_in_the_input_of_attention_stays() -> None:
    x = torch.randn(2, 2, 3, 4)
    x[1, 0, 0, 0] = torch.nan
    spec = ["x:float32[batch,2,3,4]", "y:bool[batch,3]"]
    expected, actual = answers(attend, spec, x, torch.ones(2, 3, dtype=torch.bool))
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))


def test_rows_of_a_constant_mask_are_looked_at_in_the_graph() -> None:
    """The proof knows that PyTorch looks at them; without the nodes, it would see another function."""

    def causal(x: Tensor, y: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[2])
        return scaled_dot_product_attention(x, x, x, attn_mask=mask) + y

    spec = parse_inputs(["x:float32[batch,2,3,4]", "y:float32[batch,1,1,1]"])
    network = Network("net", "module", spec, module=Applied(causal).eval())
    graph = prepare(network)
    decision = decide_identity(network, graph, graph.model)
    assert decision.verdict is Verdict.IDENTICAL, decision


def test_other_nodes_than_those_of_torch_onnx_are_an_error() -> None:
    spec = parse_inputs(["x:float32[batch,2,3,4]", "y:bool[batch,3]"])
    traced = trace(Network("net", "module", spec, module=Applied(attend).eval()))
    for node in traced.model.graph.all_nodes():
        if node.outputs[0].name == "scaled_dot_product_attention":
            node.outputs[0].name = "another_name"
    with pytest.raises(UntraceableError, match=r"test_exact_operators\.py:\d+ in .*: masked attention: "):
        correct_masked_attention(traced.model, traced.program)


def test_angles_on_all_axes() -> None:
    numbers = torch.tensor([-2.0, -1e-30, 0.0, 1e-30, 3.0, torch.inf, torch.nan])
    y, x = (grid.reshape(-1, 1) for grid in torch.meshgrid(numbers, numbers, indexing="ij"))
    expected, actual = answers(torch.atan2, ["x:float32[batch,1]", "y:float32[batch,1]"], y, x)
    both_infinite = np.isinf(y.numpy()) & np.isinf(x.numpy())
    np.testing.assert_allclose(actual[~both_infinite], expected[~both_infinite], rtol=1e-6)


LARGE = (2**24 + 1, 2**31 - 1, -(2**24) - 3, -7, -6, 0, 5)


@pytest.mark.parametrize("rounding", ["floor", "trunc"])
@pytest.mark.parametrize(
    ("dtype", "numbers"), [("int64", (2**53 + 1, *LARGE)), ("int32", LARGE), ("uint8", (0, 7, 255))]
)
@pytest.mark.parametrize("divisor", [3, None])
def test_quotients_of_large_integers(
    rounding: str, dtype: str, numbers: tuple[int, ...], divisor: int | None
) -> None:
    """torch.onnx computes them in float32. By a number, and by a tensor."""

    def divide(x: Tensor, y: Tensor) -> Tensor:
        return torch.div(x, y.abs() + 1 if divisor is None else divisor, rounding_mode=rounding)

    inputs = [f"{name}:{dtype}[batch,1]" for name in "xy"]
    x = torch.tensor(numbers, dtype=getattr(torch, dtype))[:, None]
    expected, actual = answers(divide, inputs, x, torch.full_like(x, 2))
    np.testing.assert_array_equal(actual, expected)
    network = Network("net", "module", parse_inputs(inputs), module=Applied(divide).eval())
    graph = prepare(network)
    decision = decide_identity(network, graph, graph.model)
    assert decision.verdict is Verdict.IDENTICAL, decision


@pytest.mark.parametrize("places", [0, 1, 8, 31, 63])
@pytest.mark.parametrize(
    ("dtype", "numbers"), [("int64", (-(2**53) - 1, *LARGE)), ("int32", LARGE), ("uint8", (0, 7, 255))]
)
def test_shifts_to_the_right(dtype: str, numbers: tuple[int, ...], places: int) -> None:
    """They are quotients, which the proof knows."""

    def shift(x: Tensor, y: Tensor) -> Tensor:
        return (x >> places) + y

    inputs = [f"{name}:{dtype}[batch,1]" for name in "xy"]
    x = torch.tensor(numbers, dtype=getattr(torch, dtype))[:, None]
    expected, actual = answers(shift, inputs, x, torch.zeros_like(x))
    np.testing.assert_array_equal(actual, expected)
    network = Network("net", "module", parse_inputs(inputs), module=Applied(shift).eval())
    graph = prepare(network)
    decision = decide_identity(network, graph, graph.model)
    assert decision.verdict is Verdict.IDENTICAL, decision


HALVES = torch.tensor([1.5, 2.5])
TENTHS = torch.tensor([1.1, 2.1], dtype=torch.float64)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x: 1 - x, "float32"),
        (lambda x: 0.1 - x, "float64"),
        (lambda x: 1 - x, "int64"),
        (lambda x: 2**53 + 1 - x, "int64"),
        (lambda x: 1 - x, "uint8"),
        (lambda x: 1.5 - x, "int64"),
        (lambda x: torch.rsub(x, 3, alpha=2), "int32"),
        (lambda x: torch.rsub(x, 3, alpha=2.5), "float32"),
        (lambda x: torch.rsub(x, HALVES), "int64"),
        (lambda x: torch.rsub(x, TENTHS), "float32"),
        (lambda x: torch.rsub(x, torch.tensor([1, 2])), "float32"),
        (lambda x: torch.rsub(x, torch.tensor(0.1, dtype=torch.float64)), "float32"),
        (lambda x: x.shape[0] - x, "float32"),
        (lambda x: x.shape[0] * 0.5 - x, "float32"),
        (lambda x: x.shape[0] * 0.5 - x, "int64"),
    ],
)
def test_subtraction_from_something_has_the_dtype_of_pytorch(
    function: Callable[[Tensor], Tensor], dtype: str
) -> None:
    x = torch.tensor([[1, 2], [3, 4], [0, 7]]).to(getattr(torch, dtype))
    spec = [f"x:{dtype}[batch,2]", "y:float32[batch,1]"]
    expected, actual = answers(lambda x, y: function(x), spec, x, torch.zeros(3, 1))
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)
