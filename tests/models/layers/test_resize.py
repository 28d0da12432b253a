"""Layers that change the number of units: zero padding, sub-sampling, plain layers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.resize import SubSample, ZeroPad
from turnpike.models.layers.transform import PlainLayer


def test_padding_appends_zeros() -> None:
    """The input comes first and unchanged, for any leading dimensions."""
    assert ZeroPad(2, 5)(torch.tensor([3.0, -4.0])).tolist() == [3.0, -4.0, 0.0, 0.0, 0.0]
    assert ZeroPad(1, 2)(torch.tensor([[[1.0], [2.0]]])).tolist() == [[[1.0, 0.0], [2.0, 0.0]]]
    x = torch.randn(3, 4)
    assert torch.equal(ZeroPad(4, 4)(x), x)


@pytest.mark.parametrize(
    ("inputs", "units", "indices"),
    [
        (6, 3, [0, 2, 4]),
        (7, 3, [0, 2, 4]),
        (5, 4, [0, 1, 2, 3]),
        (10, 4, [0, 2, 5, 7]),
        (9, 1, [0]),
        (3, 3, [0, 1, 2]),
    ],
)
def test_sub_sampling_keeps_evenly_spaced_values(inputs: int, units: int, indices: list[int]) -> None:
    """Unit i is input floor(i * inputs / units), worked out by hand, for any leading dimensions."""
    layer = SubSample(inputs, units)
    assert layer(torch.arange(inputs)).tolist() == indices
    x = torch.randn(2, 3, inputs)
    y = layer(x)
    assert y.shape == (2, 3, units)
    assert all(torch.equal(y[..., unit], x[..., place]) for unit, place in enumerate(indices))


def test_sub_sampling_keeps_no_value_twice() -> None:
    """At any ratio the indices increase strictly and lie within the row."""
    for inputs in range(1, 40):
        for units in range(1, inputs + 1):
            places = SubSample(inputs, units).indices.tolist()
            assert places[0] == 0
            assert places[-1] < inputs
            assert all(before < after for before, after in pairwise(places))


@pytest.mark.parametrize(("inputs", "units"), [(3, 7), (7, 3)])
def test_a_plain_layer_may_shrink_or_widen_rows(inputs: int, units: int) -> None:
    """It has units times inputs weights, and a bias per unit."""
    layer = PlainLayer(inputs, units)
    assert layer(torch.randn(2, 5, inputs)).shape == (2, 5, units)
    assert sum(p.numel() for p in layer.parameters()) == units * inputs + units


def test_padding_and_sub_sampling_have_no_parameters() -> None:
    """They have no parameters and add nothing to a state dict."""
    for layer in (ZeroPad(2, 3), SubSample(3, 2)):
        assert list(layer.parameters()) == []
        assert layer.state_dict() == {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ZeroPad(5, 4), "zero padding: expected 5 or more units, got 4"),
        (lambda: ZeroPad(0, 4), "zero padding: expected 0 or more units, got 4"),
        (lambda: SubSample(4, 5), "sub-sampling: expected 1 to 4 units, got 5"),
        (lambda: SubSample(4, 0), "sub-sampling: expected 1 to 4 units, got 0"),
    ],
)
def test_sizes_in_the_wrong_direction_are_refused(make: type[nn.Module], message: str) -> None:
    """Padding cannot shrink a row, and sub-sampling cannot widen one."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize("layer", [ZeroPad(3, 5), SubSample(3, 2), PlainLayer(3, 2)])
@pytest.mark.parametrize("shape", [(), (4,), (3, 2), (2, 5)])
def test_rows_of_another_size_are_refused(layer: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError) as caught:
        layer(torch.zeros(shape))
    sizes = ", ".join(map(str, shape))
    assert str(caught.value) == (
        f"{type(layer).__name__}: expected 3 values along axis -1, got shape [{sizes}]"
    )
