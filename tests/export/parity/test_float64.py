"""Running PyTorch code in float64, whatever dtype the code asks for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

from export.parity.float64 import float64_mode, independent_copy, to_float64

X = torch.tensor([0.1, 0.2, 0.7])


class Narrow(nn.Module):
    """Asks for float32 in every way that code does."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = torch.tensor([0.3, 0.1, 0.2])

    def forward(self, x: Tensor) -> Tensor:
        zeros = torch.zeros(3, dtype=torch.float32) + torch.zeros_like(x)
        ones = torch.ones(3)  # of the default dtype
        buffer = torch.empty(3, dtype=torch.float32)
        buffer.copy_(x / 3)
        share = torch.arange(3) / 7  # integers
        literal = torch.tensor([0.1, 0.2, 0.3]).to(x.dtype)
        return (
            (x.float() * self.plain + zeros + ones / 3 + buffer).type(torch.float32) + share.float() + literal
        )


def test_float32_in_user_code_becomes_float64() -> None:
    """The same numbers as float64 code that asks for nothing."""
    with float64_mode(), torch.no_grad():
        actual = Narrow()(to_float64(X))
    x, literal = X.double(), torch.tensor([0.1, 0.2, 0.3]).double()
    tensor = torch.tensor([0.3, 0.1, 0.2]).double()
    expected = x * tensor + 1 / torch.tensor(3.0).double() + x / 3 + torch.arange(3).double() / 7 + literal
    assert actual.dtype == torch.float64
    # tensors made of literals are float32 in the expected values too; sums differ in the last bit
    torch.testing.assert_close(actual, expected, rtol=0, atol=3e-8)
    assert not torch.equal(actual, actual.float().double())


def test_in_place_changes_of_float32_tensors_are_kept() -> None:
    """A tensor that the code keeps becomes float64 itself, not a copy of it."""
    tensor = torch.tensor([1.0, 2.0])
    with float64_mode():
        tensor.mul_(torch.tensor([1 / 3, 1 / 3], dtype=torch.float64))
    assert tensor.dtype == torch.float64
    assert tensor[0].item() == 1 / 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_default_dtype_is_restored(dtype: torch.dtype) -> None:
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


def test_integers_and_booleans_are_not_converted() -> None:
    """Ids and masks are not converted."""
    with float64_mode():
        assert (torch.arange(3) + 1).dtype == torch.int64
        assert to_float64(torch.tensor(True)).dtype == torch.bool


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_independent_copy_shares_no_tensors() -> None:
    """Also with a module that keeps a tensor computed from its parameters, as old weight norm does."""
    module = weight_norm(nn.Linear(3, 3))
    module(torch.zeros(1, 3))
    copied = independent_copy(module)
    assert torch.equal(copied(torch.ones(1, 3)), module(torch.ones(1, 3)))
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert all(parameter.any() for parameter in module.parameters())
    assert module.training
