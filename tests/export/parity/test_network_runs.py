"""Runs of PyTorch networks: natively, and in float64 whatever dtype their code asks for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from turnpike.export.errors import UntraceableError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.network_runs import (
    NetworkCopy,
    float64_mode,
    to_float64,
)

X = torch.tensor([0.1, 0.2, 0.7])
INPUT = "x:float32[batch,3]"
BATCH = ProofBatch("b", 2, {"x": np.float32([[0.1, 0.2, 0.3], [1, 2, 3]])}, {"x": 0})


class Narrow(nn.Module):
    """Requests float32 in every way that PyTorch code can."""

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
    """The result equals that of code that names no dtype."""
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
    """It is restored after an error too."""
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
    """Ids and masks stay as they are."""
    with float64_mode():
        assert (torch.arange(3) + 1).dtype == torch.int64
        assert to_float64(torch.tensor(True)).dtype == torch.bool


def test_a_strided_batch_has_the_same_values() -> None:
    network = NetworkCopy(Network("s", "m", parse_inputs([INPUT]), module=nn.Linear(3, 3)))
    strided = ProofBatch("b", 2, BATCH.arrays, BATCH.axes, strided=True)
    assert not network.tensors(strided)[0].is_contiguous()
    assert network.tensors(BATCH)[0].is_contiguous()
    np.testing.assert_array_equal(network.float64(strided)[0], network.float64(BATCH)[0])


def test_a_network_may_write_into_its_input() -> None:
    """The batch itself does not change."""

    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2)

    network = NetworkCopy(Network("s", "m", parse_inputs([INPUT]), module=Writing()))
    before = BATCH.arrays["x"].copy()
    assert np.array_equal(network.native(BATCH)[0], 2 * before)
    assert np.array_equal(BATCH.arrays["x"], before)


def test_a_network_in_train_mode_is_run_in_eval_mode() -> None:
    """There is no dropout then."""
    module = nn.Dropout(0.5).train()
    network = NetworkCopy(Network("s", "m", parse_inputs([INPUT]), module=module))
    assert np.array_equal(network.native(BATCH)[0], BATCH.arrays["x"])
    assert module.training


class Stateful(nn.Module):
    """Changes a tensor during forward."""

    def __init__(self, change: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros(1))
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        self.change(self)
        return x * self.weight


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda net: net.seen.add_(1), "seen"),
        (lambda net: net.seen.data.add_(1), "seen"),
        (lambda net: setattr(net, "seen", net.seen + 1), "seen"),
        (lambda net: net.weight.data.mul_(2), "weight"),
        (lambda net: None, None),
    ],
)
def test_a_run_that_changes_a_tensor_is_found(change: Callable[[nn.Module], None], name: str | None) -> None:
    """The change may be in place, through .data, or by assignment."""
    network = NetworkCopy(Network("s", "m", parse_inputs([INPUT]), module=Stateful(change)))
    assert network.changed_by(BATCH) == name


def test_a_program_without_a_module_is_the_original() -> None:
    """A .pt2 source has no module. Arguments are put back into their nested structure."""

    class Two(nn.Module):
        def forward(self, pair: dict[str, Tensor], scale: Tensor) -> dict[str, Tensor]:
            return {"sum": pair["a"] + pair["b"] * scale}

    a, b, scale = torch.rand(3, 3, 2)
    axis = {0: Dim("batch")}
    program = torch.export.export(
        Two(), ({"a": a, "b": b}, scale), dynamic_shapes=({"a": axis, "b": axis}, axis)
    )
    inputs = parse_inputs([f"{name}:float32[batch,2]" for name in ("a", "b", "scale")])
    network = Network("s", "pt2", inputs, program=program)
    arrays = {name: np.full((2, 2), value, np.float32) for name, value in (("a", 1), ("b", 2), ("scale", 3))}
    assert np.array_equal(
        NetworkCopy(network).float64(ProofBatch("b", 2, arrays, {}))[0], np.full((2, 2), 7.0)
    )


def test_each_run_draws_its_own_random_numbers() -> None:
    """Otherwise a network that draws random numbers would seem repeatable."""

    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.rand_like(x)

    network = NetworkCopy(Network("s", "m", parse_inputs([INPUT]), module=Drawing()))
    assert not np.array_equal(network.native(BATCH)[0], network.native(BATCH)[0])


def test_a_graph_alone_is_no_network() -> None:
    with pytest.raises(UntraceableError, match="got only a graph"):
        NetworkCopy(Network("s", "onnx", parse_inputs([INPUT])))
