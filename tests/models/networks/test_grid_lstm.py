"""Grid LSTMs: blocks, grids and whole networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.network_training import losses_in_training, with_random_weights
from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.networks.base import parameter_count
from turnpike.models.networks.grid_lstm import Grid, GridLstm, GridLstmBlock, GridLstmConfig

Same = Callable[[Tensor, Tensor], None]
Numbers = np.ndarray[Any, np.dtype[np.float64]]

CONFIGS = [
    GridLstmConfig(inputs=(4, 4), classes=4, dimensions=1, width=8, depth=2),
    GridLstmConfig(inputs=(4, 4), classes=4, dimensions=2, width=8, depth=2),
    GridLstmConfig(inputs=(2, 4, 6), classes=4, dimensions=3, width=8, depth=2, patch=2),
]


def sigmoid(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def recursion(grid: Grid, sizes: tuple[int, ...], h: Numbers, m: Numbers) -> Numbers:
    """h of the last layer, [positions, N, width], for one row, by recursion over the blocks."""
    sides = len(sizes)
    places = list(product(*map(range, sizes)))

    @cache
    def block(place: tuple[int, ...], layer: int) -> tuple[list[Numbers], list[Numbers]]:
        came_h, came_m = [], []
        for side in range(sides):
            if place[side] == 0:
                came_h.append(np.zeros(grid.width))
                came_m.append(np.zeros(grid.width))
            else:
                back = tuple(at - (axis == side) for axis, at in enumerate(place))
                came_h.append(block(back, layer)[0][side])
                came_m.append(block(back, layer)[1][side])
        if layer == 0:
            came_h.append(h[places.index(place)])
            came_m.append(m[places.index(place)])
        else:
            came_h.append(block(place, layer - 1)[0][sides])
            came_m.append(block(place, layer - 1)[1][sides])
        gates = grid.blocks[layer if len(grid.blocks) > 1 else 0].gates
        weight, bias = gates.weight.detach().numpy(), gates.bias.detach().numpy()
        everything = np.concatenate(came_h)
        out_h, out_m = [], []
        for dimension in range(sides + 1):
            u, f, o, c = (
                weight[(4 * dimension + gate) * grid.width :][: grid.width] @ everything
                + bias[(4 * dimension + gate) * grid.width :][: grid.width]
                for gate in range(4)
            )
            memory = sigmoid(f) * came_m[dimension] + sigmoid(u) * np.tanh(c)
            out_m.append(memory)
            out_h.append(np.tanh(sigmoid(o) * memory))
        return out_h, out_m

    return np.array([block(place, grid.depth - 1)[0] for place in places])


def test_a_block_worked_out_by_hand(same: Same) -> None:
    """Two dimensions of one number each: both read both h, each has its own m."""
    block = GridLstmBlock(2, 1).double()
    with torch.no_grad():
        block.gates.weight.zero_()
        block.gates.bias.zero_()
        block.gates.weight[3] = torch.tensor([2.0, 1.0])  # the candidate of the first dimension
        block.gates.bias[7] = 20.0  # and of the second, whose tanh is 1
        block.gates.bias[6] = 20.0  # whose output gate is open
    h = torch.tensor([[[0.5], [-1.0]]]).double()
    m = torch.tensor([[[3.0], [1.0]]]).double()
    got_h, got_m = block(h, m)
    # candidate: tanh(2 * 0.5 - 1) = 0, m = 3/2 + 0; and m = 1/2 + 1/2 * 1 = 1
    assert got_m.flatten().tolist() == pytest.approx([1.5, 1.0], abs=1e-8)
    assert got_h.flatten().tolist() == pytest.approx([np.tanh(0.75), np.tanh(1.0)], abs=1e-8)


def test_a_block_accepts_any_leading_axes(same: Same) -> None:
    """Rows and positions may share one axis or have two."""
    block = GridLstmBlock(3, 4)
    h, m = torch.randn(2, 5, 3, 4), torch.randn(2, 5, 3, 4)
    got = block(h, m)[0]
    same(block(h.flatten(0, 1), m.flatten(0, 1))[0], got.flatten(0, 1))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("sizes", [(), (5,), (3, 4), (2, 3, 2)])
def test_a_grid_equals_its_recursion(sizes: tuple[int, ...], tied: bool, same: Same) -> None:
    """For 1 to 4 dimensions, every block of the last layer agrees with a recursion over its neighbors."""
    grid = with_random_weights(Grid(sizes, 3, 3, tied=tied), 0.3)
    h, m = torch.randn(2, 2, grid.positions, 3, dtype=torch.float64)
    got, _ = grid(h, m)
    expected = [recursion(grid, sizes, h[row].numpy(), m[row].numpy()) for row in range(2)]
    same(got, torch.from_numpy(np.array(expected)))


def test_a_tied_grid_has_one_block_whatever_its_depth() -> None:
    """Tied layers have the parameters of one layer; untied ones multiply them."""
    one = parameter_count(Grid((4,), 3, 1))
    assert parameter_count(Grid((4,), 3, 5, tied=True)) == one
    assert parameter_count(Grid((4,), 3, 5, tied=False)) == 5 * one


def test_a_new_grid_has_only_forget_biases() -> None:
    """Only the biases of the forget gates start away from zero."""
    bias = GridLstmBlock(2, 3, forget_bias=2.5).gates.bias.view(2, 4, 3)
    assert bias[:, 1].unique().tolist() == [2.5]
    assert bias[:, [0, 2, 3]].unique().tolist() == [0.0]


def test_gain_multiplies_the_first_weights() -> None:
    """The deviation of the weights is Glorot's for one gate, times the gain."""
    for gain in (1.0, 3.0):
        spread = GridLstmBlock(2, 60, gain=gain).gates.weight.std().item()
        assert spread == pytest.approx(gain * (2 / (120 + 60)) ** 0.5, rel=0.02)


def test_initialization_settings_reach_every_block() -> None:
    config = GridLstmConfig(inputs=(6,), classes=2, depth=2, tied=False, forget_bias=8.0, gain=2.0)
    blocks = GridLstm(config).grid.blocks
    assert len(blocks) == 2
    for block in blocks:
        assert block.gates.bias.max().item() == 8.0
        assert block.gates.weight.std().item() == pytest.approx(2 * (2 / (128 + 64)) ** 0.5, rel=0.02)


def test_the_projection_keeps_the_scale_of_its_inputs() -> None:
    """Standardized rows give h and m a deviation of about 1, from one feature or from many."""
    for inputs in [(1,), (400,)]:
        net = GridLstm(GridLstmConfig(inputs=inputs, classes=2, dimensions=1, width=200))
        assert net.into(torch.randn(500, *inputs)).std().item() == pytest.approx(1, rel=0.15)


@pytest.mark.parametrize("config", CONFIGS)
def test_logits_come_from_the_last_block(config: GridLstmConfig, same: Same) -> None:
    """Logits come from h of the last position's block; the projection is the input along depth."""
    net = with_random_weights(GridLstm(config), 0.3)
    x = torch.randn(3, *config.inputs, dtype=torch.float64)
    if config.dimensions == 1:
        sizes: tuple[int, ...] = ()
        read = x.reshape(3, 1, -1)
    elif config.dimensions == 2:
        sizes = (4,)
        read = x
    else:
        sizes = (2, 3)
        squares = [x[:, :, r : r + 2, c : c + 2].reshape(3, -1) for r in (0, 2) for c in (0, 2, 4)]
        read = torch.stack(squares, dim=1)
    both = (read @ net.into.weight.T + net.into.bias).detach().numpy()
    expected = []
    for row in both:
        last = recursion(net.grid, sizes, row[:, : config.width], row[:, config.width :])[-1]
        expected.append(net.out.weight.detach().numpy() @ last.flatten() + net.out.bias.detach().numpy())
    same(net(x), torch.from_numpy(np.array(expected)))


def test_plain_numbers_are_read_as_a_sequence_in_two_dimensions(same: Same) -> None:
    """A row of k numbers equals a sequence of k steps with one feature."""
    row = GridLstm(GridLstmConfig(inputs=(6,), classes=2, dimensions=2, width=4)).eval()
    sequence = GridLstm(GridLstmConfig(inputs=(6, 1), classes=2, dimensions=2, width=4)).eval()
    sequence.load_state_dict(row.state_dict())
    x = torch.randn(3, 6)
    same(row(x), sequence(x.unsqueeze(2)))


def test_an_image_is_read_line_by_line_in_two_dimensions(same: Same) -> None:
    """An image of one channel gives the logits of the sequence of its lines."""
    sequence = GridLstm(CONFIGS[1]).eval()
    image = GridLstm(CONFIGS[1].for_data((1, 4, 4), 4)).eval()
    image.load_state_dict(sequence.state_dict())
    x = torch.randn(3, 4, 4)
    same(image(x.unsqueeze(1)), sequence(x))


@pytest.mark.parametrize("config", CONFIGS)
def test_every_number_of_a_row_reaches_the_last_block(config: GridLstmConfig) -> None:
    x = torch.randn(1, *config.inputs, requires_grad=True)
    GridLstm(config)(x).pow(2).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert (x.grad != 0).all()


@pytest.mark.parametrize("config", CONFIGS)
def test_a_grid_lstm_can_be_trained(config: GridLstmConfig) -> None:
    """A few steps on four rows of four classes halve the loss."""
    net = GridLstm(config)
    losses = losses_in_training(net, torch.randn(4, *config.inputs), torch.arange(4))
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    "config", [CONFIGS[0], *(pytest.param(config, marks=pytest.mark.slow) for config in CONFIGS[1:])]
)
def test_a_grid_lstm_exports_with_any_batch(config: GridLstmConfig, same: Same) -> None:
    """A graph traced with two rows gives the network's result for five."""
    net = GridLstm(config).eval()
    graph = torch.export.export(
        net, (torch.randn(2, *config.inputs),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    x = torch.randn(5, *config.inputs)
    same(graph.module()(x), net(x))


def test_a_network_can_be_rebuilt_from_its_weights(same: Same) -> None:
    """Only parameters are saved: the order of the positions follows from the config."""
    net, other = GridLstm(CONFIGS[2]).eval(), GridLstm(CONFIGS[2]).eval()
    assert all(value.is_floating_point() for value in net.state_dict().values())
    other.load_state_dict(net.state_dict())
    x = torch.randn(2, *CONFIGS[2].inputs)
    same(other(x), net(x))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dimensions", {"dimensions": 4}),
        ("width", {"width": 0}),
        ("depth", {"depth": 0}),
        ("patch", {"patch": 0}),
        ("gain", {"gain": 0.0}),
        ("inputs", {"dimensions": 2, "inputs": (1, 2, 3, 4)}),
        ("inputs", {"dimensions": 3, "inputs": (8, 8)}),
        ("inputs", {"dimensions": 3, "inputs": (1, 8, 6)}),
    ],
)
def test_invalid_settings_are_refused(name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        GridLstmConfig(**{"inputs": (1, 8, 8), "classes": 4, **wrong})


def test_patches_must_divide_the_image() -> None:
    """The message has the patch size and the shape of the image."""
    with pytest.raises(ConfigError, match=r"patches of 4 divide, got \(1, 8, 6\)"):
        GridLstmConfig(inputs=(1, 8, 6), classes=4, dimensions=3, patch=4)


def test_layers_refuse_wrong_shapes() -> None:
    """A wrong width, number of dimensions or of positions is a ShapeError that names the layer."""
    block, grid = GridLstmBlock(2, 4), Grid((3,), 4, 2)
    fits = torch.zeros(5, 2, 4)
    for shape in [(5, 2, 3), (5, 3, 4), (4,), (6, 2, 4)]:
        with pytest.raises(ShapeError, match="GridLstmBlock"):
            block(torch.zeros(shape), fits)
        with pytest.raises(ShapeError, match="GridLstmBlock"):
            block(fits, torch.zeros(shape))
    for shape in [(5, 2, 4), (5, 3, 3), (3, 4)]:
        with pytest.raises(ShapeError, match="Grid: "):
            grid(torch.zeros(shape), torch.zeros(5, 3, 4))


@pytest.mark.parametrize("wrong", [{"sizes": (3, 0)}, {"width": 0}, {"depth": 0}])
def test_an_empty_grid_is_refused(wrong: dict[str, Any]) -> None:
    """Every side of a grid has a length of 1 or more."""
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))}: expected"):
        Grid(**{"sizes": (3,), "width": 4, "depth": 2, **wrong})
