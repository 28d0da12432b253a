"""Grid LSTM: LSTM cells along every dimension of a grid; the depth of the network is one of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from turnpike.models.checks import expect, expect_choice
from turnpike.models.errors import ShapeError
from turnpike.models.layers.activation import initialize_weights
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.sequence import as_sequence, sequence_shape

Position = tuple[int, ...]


class GridLstmBlock(nn.Module):
    """One block of N dimensions: one LSTM per dimension, each of which reads the hidden vectors of all.

    With H = [h_1; ...; h_N], and separate weights for each dimension:

        g_u, g_f, g_o = sigmoid(W H + b), each with its own W and b      g_c = tanh(W_c H + b_c)
        m' = g_f * m + g_u * g_c
        h' = tanh(g_o * m')

    Kalchbrenner, Danihelka and Graves 2015, "Grid Long Short-Term Memory"; the biases b are an addition.
    All 4 N maps are computed by one matrix product.
    Shapes: h and m (..., N, width) -> h' and m' (..., N, width).

    Args:
        dimensions: N.
        width: Units of h and m.
        forget_bias: Initial bias of the forget gates. Above zero, a memory crosses the grid before
            anything is learned. The other biases start at zero.
        gain: Factor on the initial weights, which are drawn after Glorot and Bengio 2010 for tanh. Above
            1, gates and candidates start closer to on/off switches.
    """

    def __init__(self, dimensions: int, width: int, *, forget_bias: float = 1.0, gain: float = 1.0) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.width = width
        self.gates = nn.Linear(dimensions * width, dimensions * 4 * width)
        with torch.no_grad():
            for part in self.gates.weight.chunk(dimensions * 4):
                nn.init.xavier_normal_(part, gain=gain)
            self.gates.bias.zero_()
            self.gates.bias.view(dimensions, 4, width)[:, 1] = forget_bias

    def forward(self, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        expect_states(self, h, m, self.dimensions, self.width)
        maps = torch.unflatten(self.gates(h.flatten(-2)), -1, (self.dimensions, 4, self.width))
        update, forget, output = torch.sigmoid(maps[..., :3, :]).unbind(-2)
        m = forget * m + update * torch.tanh(maps[..., 3, :])
        return torch.tanh(output * m), m

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]: ...


class Grid(nn.Module):
    """A grid of blocks: some sides (time, or height and width) and the depth of the network.

    The block at a position reads the h and m of each side from its neighbor before it along that side
    (zero at the edge), and those of depth from the layer below; the caller passes those of the first
    layer. All positions of a layer share one block. Positions whose coordinates have the same sum do not
    depend on each other, so they are computed together, as one wave.
    Shapes: h and m of depth (batch, positions, width), positions in C order of `sizes`
    -> h and m of the last layer along every dimension, depth last, (batch, positions, N, width).

    Args:
        sizes: Lengths of the sides; () for a grid of depth alone.
        width: Units of h and m.
        depth: Number of layers.
        tied: Whether all layers share one block.
        forget_bias: See `GridLstmBlock`.
        gain: See `GridLstmBlock`.
    """

    wave_order: Tensor
    position_order: Tensor

    def __init__(
        self,
        sizes: tuple[int, ...],
        width: int,
        depth: int,
        *,
        tied: bool = True,
        forget_bias: float = 1.0,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        expect(all(size > 0 for size in sizes), f"sizes: expected 1 or more each, got {sizes}")
        expect(width > 0, f"width: expected 1 or more, got {width}")
        expect(depth > 0, f"depth: expected 1 or more, got {depth}")
        self.positions = prod(sizes)
        self.dimensions = len(sizes) + 1
        self.width = width
        self.depth = depth
        self.blocks = nn.ModuleList(
            GridLstmBlock(self.dimensions, width, forget_bias=forget_bias, gain=gain)
            for _ in range(1 if tied else depth)
        )
        # group the positions into waves, by the sum of their coordinates
        positions = list(product(*map(range, sizes)))
        waves = [
            [position for position in positions if sum(position) == coordinate_sum]
            for coordinate_sum in range(sum(sizes) - len(sizes) + 1)
        ]
        self.wave_lengths = [len(wave) for wave in waves]
        # wave_order reorders positions from C order to waves, position_order from waves to C order
        wave_order = torch.tensor([positions.index(position) for wave in waves for position in wave])
        self.register_buffer("wave_order", wave_order, persistent=False)
        self.register_buffer("position_order", wave_order.argsort(), persistent=False)
        for number, (previous, wave) in enumerate(pairwise([[], *waves])):
            self.register_buffer(f"incoming_{number}", incoming_indices(previous, wave), persistent=False)

    def forward(self, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        expect_states(self, h, m, self.positions, self.width)
        states = torch.stack([h, m], dim=2).index_select(1, self.wave_order).unsqueeze(2)
        from_below = list(torch.split(states, self.wave_lengths, dim=1))
        for layer in range(self.depth):
            waves = self._run_layer(self.blocks[layer % len(self.blocks)], from_below)
            from_below = [wave[:, :, -1:] for wave in waves]
        h, m = torch.cat(waves, dim=1).index_select(1, self.position_order).unbind(3)
        return h, m

    def _run_layer(self, block: nn.Module, from_below: list[Tensor]) -> list[Tensor]:
        """Return [h, m] of every wave, (batch, positions of the wave, N, 2, width).

        `from_below` has those of the layer below along depth, (batch, positions of the wave, 1, 2, width).
        """
        sides = self.dimensions - 1
        edge = from_below[0].new_zeros(from_below[0].shape[0], 1, 2, self.width)
        previous = edge  # vectors of the previous wave, after one for the edge of the grid
        waves = []
        for number, below in enumerate(from_below):
            incoming = below
            if sides:
                from_sides = previous.index_select(1, self.get_buffer(f"incoming_{number}"))
                incoming = torch.cat([torch.unflatten(from_sides, 1, (-1, sides)), below], dim=2)
            waves.append(torch.stack(block(*incoming.unbind(3)), dim=3))
            previous = torch.cat([edge, waves[-1].flatten(1, 2)], dim=1)
        return waves


def incoming_indices(previous: list[Position], wave: list[Position]) -> Tensor:
    """For each position of a wave and each side: the index of the vector that comes in along that side.

    The vectors of the previous wave are numbered from 1, by position and then by dimension. Index 0 is the
    vector of zeros at the edge of the grid.
    """
    dimensions = len(wave[0]) + 1
    indices = []
    for position in wave:
        for side in range(len(position)):
            neighbor = (*position[:side], position[side] - 1, *position[side + 1 :])
            inside = neighbor in previous
            indices.append(1 + previous.index(neighbor) * dimensions + side if inside else 0)
    return torch.tensor(indices, dtype=torch.long)


def expect_states(layer: nn.Module, h: Tensor, m: Tensor, count: int, width: int) -> None:
    """Raise a ShapeError unless h and m have the same shape, (..., count, width)."""
    for name, x in (("h", h), ("m", m)):
        if x.shape[-2:] != (count, width) or x.shape != h.shape:
            raise ShapeError(
                f"{type(layer).__name__}: expected {name} of shape [..., {count}, {width}], the same for "
                f"h and m, got [{', '.join(map(str, x.shape))}]"
            )


@dataclass(frozen=True, kw_only=True)
class GridLstmConfig(NetConfig):
    """A Grid LSTM over depth alone, over time and depth, or over height, width and depth.

    If the class depends on every step of a long row at once, as with parity, start with a `forget_bias`
    of about 8 and a `gain` of 1.5. A new memory is then nearly a counter that weighs all steps equally, and
    its tanh is nearly a threshold.

    Attributes:
        dimensions: 1 for depth alone, which reads any row, flattened; 2 for time and depth, which reads a
            sequence (time, features), numbers (time,) or an image line by line; 3 for height, width and
            depth, which reads an image (channels, height, width) in square patches.
        width: Units of h and m.
        depth: Number of layers.
        tied: Whether all layers share their weights.
        patch: Edge of a patch in pixels, for 3 dimensions only.
        forget_bias: Initial bias of the forget gates.
        gain: Factor on the initial weights.
    """

    family: ClassVar[str] = "grid-lstm"

    dimensions: int = 2
    width: int = 64
    depth: int = 3
    tied: bool = True
    patch: int = 4
    forget_bias: float = 1.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_choice("dimensions", self.dimensions, (1, 2, 3))
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        expect(self.depth > 0, f"depth: expected 1 or more, got {self.depth}")
        expect(self.patch > 0, f"patch: expected 1 or more, got {self.patch}")
        expect(self.gain > 0, f"gain: expected a number above 0, got {self.gain}")
        if self.dimensions == 3:
            expect(
                len(self.inputs) == 3 and all(size % self.patch == 0 for size in self.inputs[1:]),
                "inputs: expected (channels, height, width) with sides that patches of "
                f"{self.patch} divide, got {self.inputs}",
            )
        self.grid_shape()

    def grid_shape(self) -> tuple[tuple[int, ...], int]:
        """Return the sides of the grid other than depth, and the number of features at each position."""
        if self.dimensions == 1:
            return (), prod(self.row_shape)
        if self.dimensions == 2:
            shape = self.row_shape
            time, features = (shape[0], 1) if len(shape) == 1 else sequence_shape(shape)
            return (time,), features
        channels, height, width = self.inputs
        return (height // self.patch, width // self.patch), channels * self.patch**2


class GridLstm(Net):
    """Projects the features of each position to h and m, runs the grid, and classifies by its last block.

    The last block is the only one that depends on all positions; the h of all its N dimensions are read.
    The projection's weights start with a deviation of 1/sqrt(features) (LeCun et al. 1998). h and m are
    then as large as the standardized inputs, even if a position has only one feature.
    """

    config: GridLstmConfig

    def __init__(self, config: GridLstmConfig) -> None:
        super().__init__(config)
        sizes, features = config.grid_shape()
        self.into = nn.Linear(features, 2 * config.width)
        self.grid = Grid(
            sizes,
            config.width,
            config.depth,
            tied=config.tied,
            forget_bias=config.forget_bias,
            gain=config.gain,
        )
        self.out = nn.Linear(config.dimensions * config.width, config.classes)
        nn.init.normal_(self.into.weight, std=features**-0.5)
        nn.init.zeros_(self.into.bias)
        initialize_weights(self.out, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        h, m = self.into(self._positions(x)).chunk(2, dim=-1)
        last, _ = self.grid(h, m)
        return self.out(last[:, -1].flatten(1))

    def _positions(self, x: Tensor) -> Tensor:
        """Return rows as (batch, positions, features), positions in C order of the grid's sides."""
        if self.config.dimensions == 1:
            return x.flatten(1).unsqueeze(1)
        if self.config.dimensions == 2:
            return x.unsqueeze(2) if x.dim() == 2 else as_sequence(x)
        patch = self.config.patch
        patches = torch.unflatten(torch.unflatten(x, 3, (-1, patch)), 2, (-1, patch))
        return patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
