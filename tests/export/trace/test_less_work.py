"""torch.onnx is spared work, and writes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnxscript.function_libs.torch_lib import registration
from torch import Tensor, nn
from torch.export import ExportedProgram

from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.trace.less_work import less_work
from turnpike.export.trace.trace_network import trace


class Applied(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def trace_module(module: nn.Module, *inputs: str) -> ir.Model:
    return trace(Network("net", "module", parse_inputs(list(inputs)), module=module.eval())).model


def answer(graph: ir.Model, x: Tensor) -> Any:
    session = onnxruntime.InferenceSession(ir.to_proto(graph).SerializeToString())
    return session.run(None, {"x": x.numpy()})[0]


@pytest.fixture
def second_traces(monkeypatch: pytest.MonkeyPatch) -> list[ExportedProgram]:
    """The programs that were traced again."""
    programs: list[ExportedProgram] = []
    trace_again = ExportedProgram.run_decompositions

    def recorded(self: ExportedProgram, *args: Any) -> ExportedProgram:
        programs.append(self)
        return trace_again(self, *args)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", recorded)
    return programs


class Highway(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain, self.gate = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return torch.relu(self.plain(x)) * gate + x * (1 - gate)


def test_a_highway_is_traced_once(second_traces: list[ExportedProgram]) -> None:
    module = Highway()
    graph = trace_module(module, "x:float32[batch,4]")
    assert not second_traces
    x = torch.randn(5, 4)
    np.testing.assert_allclose(answer(graph, x), module(x).detach().numpy(), atol=1e-6)


def write_in_place(x: Tensor) -> Tensor:
    return (x * 2).add_(x).mul_(3)


def write_a_slice(x: Tensor) -> Tensor:
    result = x.clone()
    result[:, 1:] = 1 - x[:, :-1]
    return result


@pytest.mark.parametrize("function", [write_in_place, write_a_slice, torch.square, lambda x: x.mT.mT])
def test_what_torch_onnx_cannot_write_is_replaced(
    function: Callable[[Tensor], Tensor], second_traces: list[ExportedProgram]
) -> None:
    """Writes in place, and operators that it has no function for."""
    graph = trace_module(Applied(function), "x:float32[batch,4]")
    assert second_traces
    x = torch.rand(3, 4)
    np.testing.assert_allclose(answer(graph, x), function(x).numpy(), rtol=1e-5)


def test_a_program_of_the_user_stays_as_it_is() -> None:
    """torch.onnx adds nodes for casts and removes assertions; here from a copy."""
    program = torch.export.export(Applied(lambda x: 1.5 - x.double()), (torch.rand(3, 4),), strict=False)
    before = str(program.graph)
    trace(Network("net", "program", parse_inputs(["x:float32[3,4]"]), program=program))
    assert str(program.graph) == before


def test_the_source_of_operators_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing that of all operators takes a tenth of a small export."""
    from onnxscript.function_libs.torch_lib import ops  # noqa: F401 parses a few when it is imported

    monkeypatch.setattr("onnxscript._internal.ast_utils.get_src_and_ast", lambda _: pytest.fail("parsed"))
    trace_module(nn.Linear(2, 2), "x:float32[batch,2]")


def test_an_operator_is_parsed_when_more_is_needed() -> None:
    """Its parsed form has everything that it has otherwise."""
    function = registration.default_registry["aten::relu"].overloads[0]
    parsed = function.function_ir
    with less_work():
        assert (function.function_ir.domain, function.function_ir.name) == (parsed.domain, parsed.name)
