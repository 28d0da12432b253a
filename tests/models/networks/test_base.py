"""Checks and scaling of rows, which all networks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from turnpike.models.checks import expect_axis_size, expect_choice
from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.networks.base import Net, NetConfig, parameter_count

Same = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True, kw_only=True)
class ToyConfig(NetConfig):
    family: ClassVar[str] = "toy"

    width: int = 3


class Toy(Net):
    """Its logits are the scaled rows."""

    def logits(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class FreeToy(Toy):
    free_axes = (1,)


class IdsToy(Toy):
    reads_ids = True


def toy(kind: type[Net] = Toy, inputs: tuple[int, ...] = (2, 3), **settings: Any) -> Net:
    return kind(ToyConfig(inputs=inputs, classes=6, **settings))


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        (Toy, (), "input: expected shape [batch, 2, 3], got []"),
        (Toy, (2, 3), "input: expected shape [batch, 2, 3], got [2, 3]"),
        (Toy, (5, 3, 2), "input: expected shape [batch, 2, 3], got [5, 3, 2]"),
        (Toy, (5, 2, 4), "input: expected shape [batch, 2, 3], got [5, 2, 4]"),
        (Toy, (5, 2, 3, 1), "input: expected shape [batch, 2, 3], got [5, 2, 3, 1]"),
        (FreeToy, (5, 1, 3), "input: expected shape [batch, 2, *], got [5, 1, 3]"),
        (FreeToy, (5, 2, 0), "input: expected shape [batch, 2, *], got [5, 2, 0]"),
        (FreeToy, (5, 2), "input: expected shape [batch, 2, *], got [5, 2]"),
    ],
)
def test_rows_of_another_shape_are_refused(kind: type[Net], shape: tuple[int, ...], message: str) -> None:
    """The message has the expected shape, with * for free axes, and the actual one."""
    with pytest.raises(ShapeError) as caught:
        toy(kind)(torch.zeros(shape))
    assert str(caught.value) == message


@pytest.mark.parametrize("size", [1, 3, 8])
def test_free_axes_take_any_size(size: int) -> None:
    """Free axes may differ from the config, as the batch may."""
    assert toy(FreeToy)(torch.zeros(4, 2, size)).shape == (4, 2 * size)


@pytest.mark.parametrize(
    ("kind", "dtype", "message"),
    [
        (Toy, torch.int64, "input: expected floating point numbers, got int64"),
        (Toy, torch.uint8, "input: expected floating point numbers, got uint8"),
        (Toy, torch.float64, "input: expected float32, got float64"),
        (Toy, torch.float16, "input: expected float32, got float16"),
        (IdsToy, torch.float32, "input: expected integer ids, got float32"),
    ],
)
def test_rows_of_another_dtype_are_refused(kind: type[Net], dtype: torch.dtype, message: str) -> None:
    """Numbers must have the network's precision, and ids must be integers."""
    with pytest.raises(ShapeError) as caught:
        toy(kind)(torch.zeros(5, 2, 3, dtype=dtype))
    assert str(caught.value) == message


def test_a_float64_network_accepts_float64() -> None:
    """The expected precision is the network's, not always float32."""
    assert toy().double()(torch.zeros(5, 2, 3, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_unit_scaling_divides_by_the_largest_magnitude(dtype: torch.dtype, same: Same) -> None:
    """The largest magnitude becomes 1 and zero stays zero, for any dtype of rows."""
    net = toy(inputs=(2,), scaling="unit")
    rows = torch.tensor([[0, 4], [200, 100]]).to(dtype)
    net.fit_scale(rows)
    same(net(rows.float()), torch.tensor([[0.0, 0.02], [1.0, 0.5]]))
    net.fit_scale(torch.tensor([[-8.0, 4.0]]))
    same(net(torch.tensor([[-8.0, 4.0]])), torch.tensor([[-1.0, 0.5]]))


def test_standard_scaling_worked_out_by_hand(same: Same) -> None:
    """All values together get mean 0 and deviation 1: one shift and one scale, not one per column."""
    net = toy(inputs=(2,), scaling="standard")
    # mean (1 + 3 + 5 + 7) / 4 = 4, variance (9 + 1 + 1 + 9) / 4 = 5
    rows = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    net.fit_scale(rows)
    same(net(rows), torch.tensor([[-3.0, -1.0], [1.0, 3.0]]) / 5**0.5)


def test_columns_are_standardized_one_by_one(same: Same) -> None:
    """Each column gets mean 0 and deviation 1; a constant one becomes 0, whatever comes later."""
    net = toy(inputs=(3,), scaling="columns")
    net.fit_scale(torch.tensor([[1.0, 1000.0, 0.1], [3.0, 3000.0, 0.1]]))
    rows = torch.tensor([[1.0, 3000.0, 0.1], [4.0, 2000.0, 9.0]])
    same(net(rows), torch.tensor([[-1.0, 1.0, 0.0], [2.0, 0.0, 0.0]]))


def test_column_scaling_needs_rows_of_one_axis() -> None:
    """Images have no columns."""
    with pytest.raises(ConfigError, match="scaling: columns needs rows of one axis"):
        toy(inputs=(2, 3), scaling="columns")


def test_without_scaling_rows_do_not_change() -> None:
    """scaling="none" ignores the training rows, and so does a network that reads ids."""
    rows = torch.tensor([[1, 30], [500, 7]])
    for net, x in ((toy(inputs=(2,), scaling="none"), rows.float()), (toy(IdsToy, inputs=(2,)), rows)):
        net.fit_scale(rows)
        assert torch.equal(net(x), x)
        assert (net.shift.item(), net.scale.item()) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("scaling", "value", "scaled"),
    [("unit", 0.0, 0.0), ("unit", 0.1, 1.0), ("standard", 0.0, 0.0), ("standard", 0.1, 0.0)],
)
def test_scaling_of_constant_rows_is_finite(scaling: str, value: float, scaled: float, same: Same) -> None:
    """There is no deviation to divide by; other rows still give finite values."""
    net = toy(inputs=(2,), scaling=scaling)
    rows = torch.full((1001, 2), value)
    net.fit_scale(rows)
    same(net(rows), torch.full((1001, 2), scaled))
    assert net(rows + 1).abs().max() < 12


def test_raw_rows_equal_scaled_rows_without_scaling(same: Same) -> None:
    """Raw rows give the same as scaled rows do with scaling="none"."""
    rows = torch.randn(50, 2, 3) * 20 + 100
    net, bare = toy(), toy(scaling="none")
    net.fit_scale(rows)
    double = rows.double()
    same(net(rows), bare(((double - double.mean()) / double.std(correction=0)).float()))


def test_scaling_is_saved_with_the_weights() -> None:
    """A state dict contains shift and scale."""
    net, other = toy(), toy()
    rows = torch.randn(4, 2, 3) * 3 + 7
    net.fit_scale(rows)
    assert net.state_dict().keys() == {"shift", "scale"}
    assert not torch.equal(other(rows), net(rows))
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(rows), net(rows))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": ()}, "inputs: expected positive sizes, got ()"),
        ({"inputs": (3, 0)}, "inputs: expected positive sizes, got (3, 0)"),
        ({"inputs": (-1,)}, "inputs: expected positive sizes, got (-1,)"),
        ({"classes": 0}, "classes: expected 1 or more, got 0"),
        ({"scaling": "minmax"}, "scaling: expected one of none, unit, standard, columns, got 'minmax'"),
    ],
)
def test_an_invalid_config_is_refused(settings: dict[str, Any], message: str) -> None:
    """The message names the field, its value and the valid ones."""
    with pytest.raises(ConfigError) as caught:
        ToyConfig(**{"inputs": (2,), "classes": 2, **settings})
    assert str(caught.value) == message


def test_a_config_can_be_converted_to_other_data() -> None:
    """The dict begins with the family; `for_data` changes nothing else."""
    config = ToyConfig(inputs=(2, 3), classes=6, width=9, scaling="unit")
    expected = {"family": "toy", "inputs": (2, 3), "classes": 6, "scaling": "unit", "width": 9}
    assert list(config.to_dict().items()) == list(expected.items())
    other = config.for_data((5,), 4, alphabet_size=7)
    assert other == ToyConfig(inputs=(5,), classes=4, width=9, scaling="unit")


@pytest.mark.parametrize(
    ("shape", "axis", "axes", "fits"),
    [
        ((4,), -1, None, True),
        ((2, 4), -1, None, True),
        ((4, 2), -1, None, False),
        ((), -1, None, False),
        ((4, 2), -2, None, True),
        ((4,), -2, None, False),
        ((2, 4), 1, None, True),
        ((4,), 1, None, False),
        ((2, 4, 9), 1, 3, True),
        ((2, 4, 9), 1, 4, False),
    ],
)
def test_a_layer_expects_a_size_along_an_axis(
    shape: tuple[int, ...], axis: int, axes: int | None, fits: bool
) -> None:
    """A shape without that axis is refused, as one of another size is."""
    if fits:
        expect_axis_size(nn.Identity(), torch.zeros(shape), 4, axis, axes)
        return
    of = "" if axes is None else f" of {axes} axes"
    with pytest.raises(ShapeError) as caught:
        expect_axis_size(nn.Identity(), torch.zeros(shape), 4, axis, axes)
    sizes = ", ".join(map(str, shape))
    assert str(caught.value) == f"Identity: expected 4 values along axis {axis}{of}, got shape [{sizes}]"


def test_expect_choice_lists_the_choices() -> None:
    expect_choice("size", 2, (1, 2))
    with pytest.raises(ConfigError, match=r"^size: expected one of 1, 2, got 3$"):
        expect_choice("size", 3, (1, 2))


def test_only_trainable_parameters_are_counted() -> None:
    """Frozen parameters and buffers do not count."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert parameter_count(net) == 12 + 4 + 8
    net[0].weight.requires_grad_(False)
    assert parameter_count(net) == 4 + 8


def test_a_network_must_define_logits() -> None:
    with pytest.raises(NotImplementedError):
        toy(Net)(torch.zeros(1, 2, 3))
