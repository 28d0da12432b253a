"""Grid LSTM: LSTM cells along every dimension of a grid, the depth of the network among them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.checks import expect, expect_choice
from models.errors import ShapeError
from models.layers.activation import initialize_weights
from models.networks.base import Net, NetConfig
from models.networks.sequence import as_sequence, sequence_shape

Position = tuple[int, ...]


class GridLstmBlock(nn.Module):
    """One block of N dimensions: an LSTM for each, all of which look at the hidden vectors of all.

    With H = [h_1; ...; h_N], and for each dimension, with weights of its own:

        g_u, g_f, g_o = sigmoid(W H + b), each with its own W and b      g_c = tanh(W_c H + b_c)
        m' = g_f * m + g_u * g_c
        h' = tanh(g_o * m')

    Kalchbrenner, Danihelka and Graves 2015, "Grid Long Short-Term Memory"; the biases b are ours. Those
    of the forget gates start above zero, so that a memory crosses the grid before anything is learnt;
    each W starts as Glorot and Bengio 2010 for tanh, times `gain`: above 1, gates and candidates are
    nearer to switches from the start. All 4 N maps are computed as one.
    Shapes: h and m (..., N, width) -> h' and m' (..., N, width).
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


class Grid(nn.Module):
    """A grid of blocks: `sizes` are its sides other than depth, () for a grid of depth alone.

    The block at a position takes h and m of each side from the block before it there, zero at the edge,
    and those of depth from the layer below; what goes into the first layer is given. A layer has one
    block for all of its positions (weights are always shared along the sides); when the grid is tied,
    all layers have the same one. Positions whose coordinates have one sum wait for none of each other,
    so they are computed together, as a wave.
    Shapes: h and m (batch, positions, width) of depth, positions in C order of `sizes`
    -> those of the last layer along every dimension, depth last, (batch, positions, N, width).
    """

    walk: Tensor
    order: Tensor

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
        places = list(product(*map(range, sizes)))
        waves = [
            [place for place in places if sum(place) == number]
            for number in range(sum(sizes) - len(sizes) + 1)
        ]
        walk = torch.tensor([places.index(place) for wave in waves for place in wave])
        self.lengths = [len(wave) for wave in waves]
        self.register_buffer("walk", walk, persistent=False)
        self.register_buffer("order", walk.argsort(), persistent=False)
        for number, (before, wave) in enumerate(pairwise([[], *waves])):
            self.register_buffer(f"before_{number}", incoming_indices(before, wave), persistent=False)

    def forward(self, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        expect_states(self, h, m, self.positions, self.width)
        given = torch.stack([h, m], dim=2).index_select(1, self.walk).unsqueeze(2)
        depth = list(torch.split(given, self.lengths, dim=1))
        for layer in range(self.depth):
            state = self._layer(self.blocks[layer % len(self.blocks)], depth)
            depth = [wave[:, :, -1:] for wave in state]
        h, m = torch.cat(state, dim=1).index_select(1, self.order).unbind(3)
        return h, m

    def _layer(self, block: nn.Module, depth: list[Tensor]) -> list[Tensor]:
        """Every wave's [h, m], (batch, its places, N, 2, width), from those that come along depth."""
        sides = self.dimensions - 1
        outside = depth[0].new_zeros(depth[0].shape[0], 1, 2, self.width)
        before = outside
        done = []
        for number, below in enumerate(depth):
            come = below
            if sides:
                aside = before.index_select(1, self.get_buffer(f"before_{number}"))
                come = torch.cat([torch.unflatten(aside, 1, (-1, sides)), below], dim=2)
            done.append(torch.stack(block(*come.unbind(3)), dim=3))
            before = torch.cat([outside, done[-1].flatten(1, 2)], dim=1)
        return done


def incoming_indices(before: list[Position], wave: list[Position]) -> Tensor:
    """For each place of a wave and each side but depth: which vector of the wave before comes in.

    The wave before has one vector for each of its places and dimensions, in this order, after a first
    one that stands for the outside of the grid.
    """
    dimensions = len(wave[0]) + 1
    found = []
    for place in wave:
        for side in range(len(place)):
            came = (*place[:side], place[side] - 1, *place[side + 1 :])
            found.append(1 + before.index(came) * dimensions + side if came in before else 0)
    return torch.tensor(found, dtype=torch.long)


def expect_states(layer: nn.Module, h: Tensor, m: Tensor, count: int, width: int) -> None:
    """Stop with a ShapeError unless h and m are alike and end in `count` vectors of the layer's width."""
    for name, x in (("h", h), ("m", m)):
        if x.shape[-2:] != (count, width) or x.shape != h.shape:
            raise ShapeError(
                f"{type(layer).__name__}: expected {name} of shape [..., {count}, {width}], the same for "
                f"h and m, got [{', '.join(map(str, x.shape))}]"
            )


@dataclass(frozen=True, kw_only=True)
class GridLstmConfig(NetConfig):
    """A grid over depth alone (1), time x depth (2) or height x width x depth (3 dimensions).

    One dimension takes any row, flattened. Two take a sequence (time, features), plain numbers (time,)
    or an image read line by line. Three take an image (channels, height, width) cut into squares with
    an edge of `patch`, which the other two ignore. `tied` layers share their weights.

    Where a class hangs on every step of a long row at once, as parity does, begin with a `forget_bias`
    of about 8 and a `gain` of 1.5: a new memory is then nearly a counter, to which all steps count alike,
    and its tanh nearly a threshold.
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
        """The sides of the grid other than depth, and how many numbers come in at each position."""
        if self.dimensions == 1:
            return (), prod(self.inputs)
        if self.dimensions == 2:
            time, features = (self.inputs[0], 1) if len(self.inputs) == 1 else sequence_shape(self.inputs)
            return (time,), features
        channels, height, width = self.inputs
        return (height // self.patch, width // self.patch), channels * self.patch**2


class GridLstm(Net):
    """Projects each position's input to h and m on the grid's near side, and classifies by its last block.

    The last block is the one that everything before has reached; its h of all N dimensions are read.
    The projection's weights start at a deviation of 1/sqrt(features) (LeCun et al. 1998): h and m are
    then as large as the standardised inputs, even where a position has only one.
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
        """Rows as (batch, positions, features), in C order of the grid's sides."""
        if self.config.dimensions == 1:
            return x.flatten(1).unsqueeze(1)
        if self.config.dimensions == 2:
            return x.unsqueeze(2) if x.dim() == 2 else as_sequence(x)
        patch = self.config.patch
        squares = torch.unflatten(torch.unflatten(x, 3, (-1, patch)), 2, (-1, patch))
        return squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
