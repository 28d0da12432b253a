"""From a network to a graph that is the network's own."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from export.errors import RequestError
from export.input_spec import parse_inputs
from export.source import Source
from export.trace.trace import OPSETS, RECURRENT_OPS, TracedGraph, trace
from models.networks.families import build_network
from models.training.presets import find_preset
from service.artifact.runtime import Runtime, open_model


def traced(module: nn.Module, *inputs: str, opset: int = 20) -> TracedGraph:
    return trace(Source("net", "module", parse_inputs(inputs), module=module.eval()), opset)


def opened(made: TracedGraph) -> Runtime:
    return open_model(ir.to_proto(made.model).SerializeToString())


def test_initializers_are_the_parameters() -> None:
    """Each weight keeps its name and its bits, also where two are equal or a rewrite could fold them."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
    for part in (net[2], net[3]):
        assert isinstance(part, nn.Linear)
        nn.init.zeros_(part.bias)
    weights = traced(net, "x:float32[batch,4]").model.graph.initializers
    for name, tensor in net.state_dict().items():
        if name != "1.num_batches_tracked":
            assert weights[name].const_value is not None
            assert np.array_equal(weights[name].const_value.numpy(), tensor.numpy()), name


@pytest.mark.parametrize("opset", OPSETS)
def test_the_opset_is_the_one_asked_for(opset: int) -> None:
    """And onnxruntime runs it."""
    made = traced(nn.Linear(4, 2), "x:float32[batch,4]", opset=opset)
    assert made.model.opset_imports[""] == opset
    opened(made).run({"x": np.zeros((3, 4), np.float32)})


def test_ends_have_the_names_that_the_user_gave() -> None:
    """Inputs, their dynamic dimensions, and the keys of a dictionary that forward answers with."""

    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor | tuple[Tensor, None]]:
            return {"sum": a.sum(2) + b, "twice": (torch.cat((a, a), 1), None)}

    runtime = opened(traced(Two(), "left:float32[rows,time,4]", "right:float32[rows,time]"))
    assert [str(one) for one in runtime.inputs] == ["left:float32[rows,time,4]", "right:float32[rows,time]"]
    assert [str(one) for one in runtime.outputs] == ["sum:float32[rows,time]", "twice:float32[rows,2*time,4]"]


def test_several_outputs_are_numbered() -> None:
    """And an output that is an input, or another output too, has a name of its own."""

    class Three(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y = x + 1
            return x, y, y

    runtime = opened(traced(Three(), "x:float32[batch,4]"))
    assert [one.name for one in runtime.outputs] == ["output0", "output1", "output2"]
    x = np.ones((2, 4), np.float32)
    for got, wanted in zip(runtime.run({"x": x}), (x, x + 1, x + 1), strict=True):
        assert np.array_equal(got, wanted)


def test_names_of_the_user_come_first() -> None:
    """A value within the graph gives way, a weight does not."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.output = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return (x + 1) * self.output

    runtime = opened(traced(Net(), "add:float32[batch,4]"))
    assert [one.name for one in (*runtime.inputs, *runtime.outputs)] == ["add", "output_out"]
    with pytest.raises(RequestError, match="'output' is the name of a weight"):
        traced(Net(), "output:float32[batch,4]")


def test_nothing_tells_of_the_machine() -> None:
    """No stack trace, source line or folder is left in the file."""
    made = traced(build_network(find_preset("conv-16").config), "x:float32[batch,1,28,28]")
    data = ir.to_proto(made.model).SerializeToString()
    assert b".py" not in data
    assert not re.search(rb"/(home|work|root|tmp|usr)", data)


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_take_any_length(
    layer: Callable[..., nn.Module], bidirectional: bool, same: Callable[[Tensor, Tensor], None]
) -> None:
    """nn.GRU and nn.LSTM keep time dynamic, which stepping through time would fix."""

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(4, 5, num_layers=2, batch_first=True, bidirectional=bidirectional)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0]

    net = Reader().eval()
    before = [dict(operator.py_kernels) for operator in RECURRENT_OPS]
    runtime = opened(traced(net, "x:float32[batch,time,4]"))
    assert [dict(operator.py_kernels) for operator in RECURRENT_OPS] == before, "PyTorch is left as it was"
    assert runtime.outputs[0].dims[:2] == ("batch", "time")
    for batch, time in ((1, 1), (2, 9), (5, 30)):
        x = torch.randn(batch, time, 4)
        same(torch.from_numpy(runtime.run({"x": x.numpy()})[0]), net(x).detach())


def test_a_layer_that_needs_some_length_keeps_the_others() -> None:
    """A convolution without padding takes no sequence shorter than itself, and any longer one."""
    net = nn.Conv1d(3, 2, 5).eval()
    runtime = opened(traced(net, "x:float32[batch,3,time]"))
    assert runtime.run({"x": np.zeros((2, 3, 40), np.float32)})[0].shape == (2, 2, 36)


def test_attention_draws_no_numbers_in_eval_mode() -> None:
    """An operator that could drop out is no reason to refuse, where it does not."""

    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    runtime = opened(traced(Attention(), "x:float32[batch,2,6,4]"))
    assert runtime.run({"x": np.zeros((3, 2, 6, 4), np.float32)})[0].shape == (3, 2, 6, 4)
