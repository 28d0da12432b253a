"""A traced graph computes what the network does, with its weights and the names of the user."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.defaults import OPSETS
from turnpike.export.errors import UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.trace.trace_network import ATEN_RECURRENT_OPS, TracedGraph, trace
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import find_preset
from turnpike.service.artifact.runtime import Runtime, open_model


def trace_module(module: nn.Module, *inputs: str, opset: int = 20) -> TracedGraph:
    return trace(Network("net", "module", parse_inputs(inputs), module=module.eval()), opset)


def open_graph(traced: TracedGraph) -> Runtime:
    return open_model(ir.to_proto(traced.model).SerializeToString())


def test_initializers_are_the_parameters() -> None:
    """Each weight keeps its name and its bits, even if two are equal or a rewrite could fold them."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
    for part in (net[2], net[3]):
        assert isinstance(part, nn.Linear)
        nn.init.zeros_(part.bias)
    weights = trace_module(net, "x:float32[batch,4]").model.graph.initializers
    for name, tensor in net.state_dict().items():
        if name != "1.num_batches_tracked":
            assert weights[name].const_value is not None
            assert np.array_equal(weights[name].const_value.numpy(), tensor.numpy()), name


@pytest.mark.parametrize("opset", OPSETS)
def test_the_opset_is_the_requested_one(opset: int) -> None:
    """onnxruntime runs the graph."""
    traced = trace_module(nn.Linear(4, 2), "x:float32[batch,4]", opset=opset)
    assert traced.model.opset_imports[""] == opset
    open_graph(traced).run({"x": np.zeros((3, 4), np.float32)})


def test_inputs_and_outputs_have_the_names_of_the_user() -> None:
    """Inputs, their dynamic dimensions, and the keys of a dictionary that forward returns."""

    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor | tuple[Tensor, None]]:
            return {"sum": a.sum(2) + b, "twice": (torch.cat((a, a), 1), None)}

    runtime = open_graph(trace_module(Two(), "left:float32[rows,time,4]", "right:float32[rows,time]"))
    assert [str(tensor) for tensor in runtime.inputs] == [
        "left:float32[rows,time,4]",
        "right:float32[rows,time]",
    ]
    assert [str(tensor) for tensor in runtime.outputs] == [
        "sum:float32[rows,time]",
        "twice:float32[rows,2*time,4]",
    ]


def test_several_outputs_are_numbered() -> None:
    """An output that is also an input, or another output, has a name of its own."""

    class Three(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y = x + 1
            return x, y, y

    runtime = open_graph(trace_module(Three(), "x:float32[batch,4]"))
    assert [tensor.name for tensor in runtime.outputs] == ["output0", "output1", "output2"]
    x = np.ones((2, 4), np.float32)
    for output, expected in zip(runtime.run({"x": x}), (x, x + 1, x + 1), strict=True):
        assert np.array_equal(output, expected)


class State(NamedTuple):
    hidden: Tensor
    cells: list[Tensor]


class Answer(NamedTuple):
    logits: Tensor
    state: State


@pytest.mark.parametrize(
    ("structure", "expected"),
    [
        (
            lambda x: Answer(x, State(x + 1, [x + 2, x + 3])),
            "logits state.hidden state.cells.0 state.cells.1",
        ),
        (lambda x: {"a": {"b": x}, "c": (x + 1, x + 2, {"d": x + 3})}, "a.b c.0 c.1 c.d"),
        (lambda x: (x, {"a": x + 1}, (x + 2, x + 3)), "output0 a output2 output3"),
        (lambda x: [{"a": x}, {"a": x + 1, "b": x + 2}], "output0.a output1.a b"),
        (lambda x: {"a": {"b": x}, "a.b": x + 1, "x": x + 2}, "a.b a.b_out x_out"),
        (
            lambda x: {"states": {"all": x, 0: x + 1, 1: x + 2}, "last": [x + 3]},
            "states.all states.0 states.1 last",
        ),
        (lambda x: {"my key": x, "2nd": x + 1, 7: x + 2}, "my_key output2nd output7"),
    ],
)
def test_outputs_are_named_by_fields_and_keys(structure: Callable[[Tensor], Any], expected: str) -> None:
    """Each name is valid and unique, and belongs to the tensor of the field."""

    class Structured(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return structure(x)

    runtime = open_graph(trace_module(Structured(), "x:float32[batch,4]"))
    assert [tensor.name for tensor in runtime.outputs] == expected.split()
    x = np.zeros((2, 4), np.float32)
    assert [float(output[0, 0]) for output in runtime.run({"x": x})] == list(range(len(runtime.outputs)))


def test_names_of_the_user_take_precedence() -> None:
    """An inner value of the same name is renamed, a weight is not."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.output = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return (x + 1) * self.output

    runtime = open_graph(trace_module(Net(), "add:float32[batch,4]"))
    assert [tensor.name for tensor in (*runtime.inputs, *runtime.outputs)] == ["add", "output_out"]
    with pytest.raises(UsageError, match="'output' is the name of a weight"):
        trace_module(Net(), "output:float32[batch,4]")


def test_metadata_of_the_machine_is_removed() -> None:
    """No stack trace, source line or folder remains in the file."""
    traced = trace_module(build_network(find_preset("conv-16").config), "x:float32[batch,1,28,28]")
    data = ir.to_proto(traced.model).SerializeToString()
    assert b".py" not in data
    assert not re.search(rb"/(home|work|root|tmp|usr)", data)


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_keep_time_dynamic(
    layer: Callable[..., nn.Module], bidirectional: bool, same: Callable[[Tensor, Tensor], None]
) -> None:
    """torch.export would step through time, which fixes the number of steps."""

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(4, 5, num_layers=2, batch_first=True, bidirectional=bidirectional)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0]

    net = Reader().eval()
    before = [dict(operator.py_kernels) for operator in ATEN_RECURRENT_OPS]
    runtime = open_graph(trace_module(net, "x:float32[batch,time,4]"))
    assert [dict(operator.py_kernels) for operator in ATEN_RECURRENT_OPS] == before, (
        "expected PyTorch to be as before"
    )
    assert runtime.outputs[0].dims[:2] == ("batch", "time")
    for batch, time in ((1, 1), (2, 9), (5, 30)):
        x = torch.randn(batch, time, 4)
        same(torch.from_numpy(runtime.run({"x": x.numpy()})[0]), net(x).detach())


def test_a_layer_with_a_minimum_length_keeps_time_dynamic() -> None:
    """A convolution without padding accepts sequences from the size of its kernel on."""
    net = nn.Conv1d(3, 2, 5).eval()
    runtime = open_graph(trace_module(net, "x:float32[batch,3,time]"))
    assert runtime.run({"x": np.zeros((2, 3, 40), np.float32)})[0].shape == (2, 2, 36)


def test_attention_is_accepted_in_eval_mode() -> None:
    """Its operator draws random numbers only with a dropout above 0."""

    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    runtime = open_graph(trace_module(Attention(), "x:float32[batch,2,6,4]"))
    assert runtime.run({"x": np.zeros((3, 2, 6, 4), np.float32)})[0].shape == (3, 2, 6, 4)
