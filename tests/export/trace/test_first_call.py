"""A module whose parameters have another dtype than its inputs: the message says which input to give."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from turnpike.export.errors import SourceError, UntraceableError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.trace.trace_network import trace


class Reader(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 4, dtype=dtype)

    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids)


def mixed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2).double())


def trace_module(module: nn.Module, text: str) -> None:
    trace(Network("net", "module", parse_inputs([text]), module=module.eval()))


@pytest.mark.parametrize(
    ("module", "text", "error", "message"),
    [
        (
            nn.Linear(4, 2).double(),
            "x:float32[batch,4]",
            UsageError,
            r"--input x: expected float64, the dtype of the module's parameters, got float32: write "
            r"--input x:float64\[batch,4\], or call float\(\) on the module",
        ),
        (nn.Linear(4, 2), "x:float64[batch,4]", UsageError, r"write --input x:float32\[batch,4\]"),
        (nn.Linear(4, 2).half(), "x:float32[batch,4]", UsageError, r"write --input x:float16\[batch,4\]"),
        (
            nn.Linear(4, 2).bfloat16(),
            "x:float32[batch,4]",
            UsageError,
            r"parameters are bfloat16, which its inputs cannot have: call float\(\) on the module",
        ),
        (
            mixed(),
            "x:float32[batch,4]",
            SourceError,
            "expected parameters of one dtype, and 0.weight is float32, 1.weight is float64: call float",
        ),
        (Reader(torch.bfloat16), "ids:int64[batch,3]", UsageError, "NumPy has, got bfloat16: call float"),
    ],
)
def test_other_dtypes_are_explained(
    module: nn.Module, text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        trace_module(module, text)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"y": None, "n": 3}, "^output n is a Python number, 3: return a tensor"),
        ([{"a.b": 1.5}], "^output 0.a.b is a Python number, 1.5: "),
        (True, "^output is a Python number, True: "),
    ],
)
def test_a_python_number_is_no_output(outputs: object, message: str) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> object:
            return outputs

    with pytest.raises(SourceError, match=message):
        trace_module(Net(), "x:float32[batch,4]")


def test_the_advice_is_true() -> None:
    """The same modules are traced with the inputs that the messages name."""
    trace_module(nn.Linear(4, 2).double(), "x:float64[batch,4]")
    trace_module(nn.Linear(4, 2).bfloat16().float(), "x:float32[batch,4]")


def test_other_errors_stay_as_they_are() -> None:
    """A float64 module with a wrong shape fails for its shape too."""
    with pytest.raises(UntraceableError, match="PyTorch stopped at RuntimeError: "):
        trace_module(nn.Linear(5, 2).double(), "x:float32[batch,4]")
