"""The float64 reference: truly in float64, whatever the code asks for, and nothing left behind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

from export.parity.float64 import float64_mode, independent_copy, to_float64

X = torch.tensor([0.1, 0.2, 0.7])


class Narrow(nn.Module):
    """Asks for single precision in every way that code does."""

    def __init__(self) -> None:
        super().__init__()
        self.held = torch.tensor([0.3, 0.1, 0.2])

    def forward(self, x: Tensor) -> Tensor:
        zeros = torch.zeros(3, dtype=torch.float32) + torch.zeros_like(x)
        ones = torch.ones(3)  # of the default type
        kept = torch.empty(3, dtype=torch.float32)
        kept.copy_(x / 3)
        share = torch.arange(3) / 7  # whole numbers
        made = torch.tensor([0.1, 0.2, 0.3]).to(x.dtype)
        return (x.float() * self.held + zeros + ones / 3 + kept).type(torch.float32) + share.float() + made


def test_single_precision_in_the_code_is_double_under_the_reference() -> None:
    """The very same numbers as code without any of it gives in float64."""
    with float64_mode(), torch.no_grad():
        found = Narrow()(to_float64(X))
    x, made = X.double(), torch.tensor([0.1, 0.2, 0.3]).double()
    held = torch.tensor([0.3, 0.1, 0.2]).double()
    expected = x * held + 1 / torch.tensor(3.0).double() + x / 3 + torch.arange(3).double() / 7 + made
    assert found.dtype == torch.float64
    # literals are single precision wherever they are written as tensors; sums differ in the last bit
    torch.testing.assert_close(found, expected, rtol=0, atol=3e-8)
    assert not torch.equal(found, found.float().double())


def test_writing_in_place_into_a_narrow_tensor_is_kept() -> None:
    """A tensor that the code holds on to becomes wide itself, rather than a copy of it."""
    held = torch.tensor([1.0, 2.0])
    with float64_mode():
        held.mul_(torch.tensor([1 / 3, 1 / 3], dtype=torch.float64))
    assert held.dtype == torch.float64
    assert held[0].item() == 1 / 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_default_type_comes_back(dtype: torch.dtype) -> None:
    """Also after an error."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with float64_mode():
            assert torch.ones(1).dtype == torch.float64
        with pytest.raises(ZeroDivisionError), float64_mode():
            raise ZeroDivisionError
        assert torch.get_default_dtype() == dtype
        assert torch.ones(1).dtype == dtype
    finally:
        torch.set_default_dtype(before)


def test_whole_numbers_stay_whole() -> None:
    """Ids and masks are no narrow numbers."""
    with float64_mode():
        assert (torch.arange(3) + 1).dtype == torch.int64
        assert to_float64(torch.tensor(True)).dtype == torch.bool


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_copy_shares_nothing() -> None:
    """Also of a module that keeps a tensor computed from its parameters, as old weight norm does."""
    module = weight_norm(nn.Linear(3, 3))
    module(torch.zeros(1, 3))
    copied = independent_copy(module)
    assert torch.equal(copied(torch.ones(1, 3)), module(torch.ones(1, 3)))
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert all(parameter.any() for parameter in module.parameters())
    assert module.training
