"""Modules without a faithful graph are rejected in one line, with the place and a remedy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.utils.rnn import pack_padded_sequence

from turnpike.export.errors import UntraceableError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.trace.trace_network import trace
from turnpike.export.trace.untraceable import code_place, expect_opset


class BranchOnData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x


class NumberFromData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.mean())


class BranchOnBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 2 else x


class SilentError(Exception):
    """An error without a message."""


class RaisesSilently(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise SilentError()


class FixedBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(3, -1)


class LoopOverTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 4)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return h


class UnbindTime(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(())
        for step in x.unbind(1):
            total = total + step
        return total


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        packed = pack_padded_sequence(x, torch.full((x.shape[0],), 3), batch_first=True)
        return self.gru(packed)[1]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return x * self.seen


class AlwaysTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def train(self, mode: bool = True) -> AlwaysTraining:
        return super().train(True)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class AlwaysDropping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, training=True)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(4)


class Untranslated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.cummax(-1)[0]


class WrittenDiagonal(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        square = x[:, :, None] * x[:, None]
        square.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return square


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x)


class ScatteredMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.scatter_reduce(1, torch.zeros(3, 4).long(), x[:3], "mean")


class LoopOperator(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return while_loop(lambda y: y.abs().max() > 1, lambda y: (y / 2,), (x,))[0]


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 4, proj_size=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.rnn(x)[0]
        return states


class OtherDivisor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(2, divisor_override=3)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.pool(x)
        return pooled


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("no such\nthing")


ROWS = "x:float32[batch,4]"
STEPS = "x:float32[batch,time,4]"


def trace_module(module: nn.Module, *inputs: str) -> Any:
    return trace(Network("net", "module", parse_inputs(inputs), module=module.eval()))


@pytest.mark.parametrize(
    ("module", "inputs", "line", "remedy"),
    [
        (BranchOnData, ROWS, "in forward: if x.sum() > 0:", "use torch.where"),
        (NumberFromData, ROWS, "return x * float(x.mean())", "keep the value a tensor"),
        (
            BranchOnBatch,
            ROWS,
            "return x * 2 if x.shape[0] > 2 else x",
            "works only for some sizes of 'batch'",
        ),
        (FixedBatch, ROWS, "return x.view(3, -1)", "give 'batch' a number in --input"),
        (LoopOverTime, STEPS, "for t in range(x.shape[1]):", "give 'time' a number in --input"),
        (UnbindTime, STEPS, "for step in x.unbind(1):", "works only for some sizes of 'time'"),
        (Packed, "x:float32[batch,6,4]", "pack_padded_sequence(x, ", "call the layer on the padded tensor"),
        (Counter, ROWS, "buffer 'seen' is changed by forward", "do not change buffers in eval mode"),
        (AlwaysTraining, ROWS, "return self.norm(x)", "call eval() on the module"),
        (AlwaysDropping, ROWS, "dropout(x, 0.5, training=True)", "leave it out in eval mode"),
        (Noisy, ROWS, "return x + torch.rand(4)", "make the numbers a buffer or an input"),
        (LoopOperator, ROWS, "while_loop(lambda y: ", "write a loop in Python over a fixed number of steps"),
        (Projected, STEPS, "nn.LSTM rnn has a proj_size", "a loop over nn.LSTMCell and nn.Linear"),
        (OtherDivisor, "x:float32[batch,2,4,4]", "pool has a divisor_override", "multiply the result"),
        (
            Untranslated,
            ROWS,
            "return x + x.cummax(-1)[0]",
            "operator aten.cummax.default: compute it with others",
        ),
        (WrittenDiagonal, ROWS, "square.diagonal(", "write by an index, or use torch.where"),
        (
            Bag,
            "x:int64[batch,3]",
            "nn.EmbeddingBag words cannot be exported",
            "use nn.Embedding, and the sum",
        ),
        (ScatteredMean, "x:float32[3,4]", "x.scatter_reduce(1", "divide a scatter_add of the numbers"),
        (Broken, ROWS, "raise ValueError(", "PyTorch stopped at ValueError: no such thing"),
    ],
)
def test_untraceable_modules_are_explained(
    module: type[nn.Module], inputs: str, line: str, remedy: str
) -> None:
    """The message shows the line of code with its file, and says what to do."""
    with pytest.raises(UntraceableError) as error:
        trace_module(module(), inputs)
    text = str(error.value)
    assert line in text
    assert remedy in text
    assert "\n" not in text
    assert "/" not in text.split(": ", maxsplit=1)[0], "expected the file without its folder"
    if not isinstance(module(), Counter):
        assert text.startswith("test_untraceable.py:")


def test_an_error_without_a_line_of_the_user_has_no_empty_place() -> None:
    """All frames are PyTorch's: the message starts with the error itself."""
    with pytest.raises(UntraceableError, match=r"\Aa linear layer takes rows of 5 values and got 4: "):
        trace_module(nn.Linear(5, 3), ROWS)
    with pytest.raises(UntraceableError, match=r"raise SilentError\(\): PyTorch stopped at SilentError\Z"):
        trace_module(RaisesSilently(), ROWS)


def test_code_that_is_not_known_leaves_no_empty_place() -> None:
    """The source file of a line may be gone."""
    assert code_place("/a/net.py", 3, "forward", " x = 1\n") == "net.py:3 in forward: x = 1: "
    for code in ("", " ", None):
        assert code_place("/a/net.py", 3, "forward", code) == "net.py:3 in forward: "


@pytest.mark.parametrize("length", ["6", pytest.param("1", marks=pytest.mark.slow)])
def test_a_fixed_length_is_the_remedy(length: str) -> None:
    """A loop over time is unrolled if time has a number, as the message says."""
    assert (
        trace_module(LoopOverTime(), f"x:float32[batch,{length},4]").model.graph.outputs[0].name == "output"
    )


def test_the_module_is_not_changed() -> None:
    """Tracing works on a copy: what forward stores on the module stays on the copy."""

    class Remembers(nn.Module):
        last: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.last = x
            return x + 1

    module = Remembers().eval()
    before = copy.copy(module.__dict__)
    trace_module(module, ROWS)
    assert module.__dict__ == before


def test_an_opset_that_the_exporter_ignores_is_an_error() -> None:
    """The exporter writes another opset than requested, instead of failing."""
    expect_opset(20, 20)
    with pytest.raises(UsageError, match="cannot write opset 9, it wrote 18"):
        expect_opset(9, 18)
