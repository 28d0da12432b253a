"""Grid LSTM: LSTM cells along every dimension of a grid, the depth of the network among them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.activation import initialise
from models.net import Net, NetConfig, expect, expect_choice, expect_last
from models.sequence import as_sequence, sequence_shape

Place = tuple[int, ...]


class GridLstmBlock(nn.Module):
    """One block of N dimensions: an LSTM for each, all of which look at the hidden vectors of all.

    With H = [h_1; ...; h_N], and for each dimension, with weights of its own:

        g_u, g_f, g_o = sigmoid(W H + b), each with its own W and b      g_c = tanh(W_c H + b_c)
        m' = g_f * m + g_u * g_c
        h' = tanh(g_o * m')

    Kalchbrenner, Danihelka and Graves 2015, "Grid Long Short-Term Memory"; the biases b are ours. Those
    of the forget gates start above zero, so that a memory crosses the grid before anything is learnt;
    each W starts as Glorot and Bengio 2010 for tanh. All 4 N maps are computed as one.
    Shapes: h and m (..., N, width) -> h' and m' (..., N, width).
    """

    def __init__(self, dimensions: int, width: int, *, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.width = width
        self.gates = nn.Linear(dimensions * width, dimensions * 4 * width)
        with torch.no_grad():
            for part in self.gates.weight.chunk(dimensions * 4):
                nn.init.xavier_normal_(part)
            self.gates.bias.zero_()
            self.gates.bias.view(dimensions, 4, width)[:, 1] = forget_bias

    def forward(self, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        for x in (h, m):
            expect_last(self, x, self.width)
            expect_last(self, x, self.dimensions, axis=-2)
        gates = self.gates(h.flatten(-2)).unflatten(-1, (self.dimensions, 4, self.width))
        update, forget, output, candidate = gates.unbind(-2)
        m = torch.sigmoid(forget) * m + torch.sigmoid(update) * torch.tanh(candidate)
        return torch.tanh(torch.sigmoid(output) * m), m


class Wave(nn.Module):
    """The positions of a grid whose coordinates have one sum: none waits for another, so they go together.

    `here` is where they stand among all positions, `before` where each finds, along each side, the
    vector that comes to it from the wave before (flattened), whose last place is the zero that comes
    in from outside the grid.
    Shapes: h, m (batch, positions, width) from depth, and the wave before (batch, its places + 1, N, width)
    -> (batch, own places, N, width), twice.
    """

    here: Tensor
    before: Tensor

    def __init__(self, here: list[int], before: list[list[int]]) -> None:
        super().__init__()
        self.sides = len(before[0])
        self.register_buffer("here", torch.tensor(here), persistent=False)
        self.register_buffer("before", torch.tensor(before, dtype=torch.long).flatten(), persistent=False)

    def forward(self, block: nn.Module, depth: list[Tensor], before: list[Tensor]) -> list[Tensor]:
        state = [x.index_select(1, self.here).unsqueeze(2) for x in depth]
        if self.sides:
            sides = [x.flatten(1, 2).index_select(1, self.before) for x in before]
            state = [
                torch.cat([torch.unflatten(side, 1, (-1, self.sides)), x], dim=2)
                for side, x in zip(sides, state, strict=True)
            ]
        return list(block(*state))


def waves(sizes: tuple[int, ...]) -> tuple[list[Wave], Tensor]:
    """All waves of a grid with these sides, in order, and where each position stands among their places."""
    places = list(product(*map(range, sizes)))
    found: list[Wave] = []
    walked: list[int] = []
    last: list[Place] = []
    for number in range(sum(sizes) - len(sizes) + 1):
        wave = [place for place in places if sum(place) == number]
        before = [
            [
                (last.index(came) if (came := step_back(place, side)) in last else len(last))
                * (len(sizes) + 1)
                + side
                for side in range(len(sizes))
            ]
            for place in wave
        ]
        here = [places.index(place) for place in wave]
        found.append(Wave(here, before))
        walked += here
        last = wave
    return found, torch.tensor(walked).argsort()


def step_back(place: Place, side: int) -> Place:
    """The position that a position's vectors come from along one side."""
    return (*place[:side], place[side] - 1, *place[side + 1 :])


class Grid(nn.Module):
    """A grid of blocks: `sizes` are its sides other than depth, () for a grid of depth alone.

    The block at a position takes h and m of each side from the block before it there, zero at the edge,
    and those of depth from the layer below; what goes into the first layer is given. A layer has one
    block for all of its positions (weights are always shared along the sides); when the grid is tied,
    all layers have the same one.
    Shapes: h and m (batch, positions, width) of depth, positions in C order of `sizes`
    -> those of the last layer along every dimension, depth last, (batch, positions, N, width).
    """

    order: Tensor

    def __init__(
        self, sizes: tuple[int, ...], width: int, depth: int, *, tied: bool = True, forget_bias: float = 1.0
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
            GridLstmBlock(self.dimensions, width, forget_bias=forget_bias)
            for _ in range(1 if tied else depth)
        )
        found, order = waves(sizes)
        self.waves = nn.ModuleList(found)
        self.register_buffer("order", order, persistent=False)

    def forward(self, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        for x in (h, m):
            expect_last(self, x, self.width)
            expect_last(self, x, self.positions, axis=-2)
        state = self._layer(self.blocks[0], [h, m])
        for layer in range(1, self.depth):
            block = self.blocks[layer % len(self.blocks)]
            state = self._layer(block, [x[:, :, -1] for x in state])
        h, m = state
        return h, m

    def _layer(self, block: nn.Module, depth: list[Tensor]) -> list[Tensor]:
        nothing = depth[0].new_zeros(depth[0].shape[0], 1, self.dimensions, self.width)
        before = [nothing, nothing]
        done = []
        for wave in self.waves:
            done.append(wave(block, depth, before))
            before = [F.pad(x, (0, 0, 0, 0, 0, 1)) for x in done[-1]]
        return [torch.cat(x, dim=1).index_select(1, self.order) for x in zip(*done, strict=True)]


@dataclass(frozen=True, kw_only=True)
class GridLstmConfig(NetConfig):
    """A grid over depth alone (1), time x depth (2) or height x width x depth (3 dimensions).

    One dimension takes any row, flattened. Two take a sequence (time, features), plain numbers (time,)
    or an image read line by line. Three take an image (channels, height, width) cut into squares with
    an edge of `patch`, which the other two ignore. `tied` layers share their weights.
    """

    family: ClassVar[str] = "grid-lstm"

    dimensions: int = 2
    width: int = 64
    depth: int = 3
    tied: bool = True
    patch: int = 4
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_choice("dimensions", self.dimensions, (1, 2, 3))
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        expect(self.depth > 0, f"depth: expected 1 or more, got {self.depth}")
        expect(self.patch > 0, f"patch: expected 1 or more, got {self.patch}")
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
    """

    config: GridLstmConfig

    def __init__(self, config: GridLstmConfig) -> None:
        super().__init__(config)
        sizes, features = config.grid_shape()
        self.into = nn.Linear(features, 2 * config.width)
        self.grid = Grid(sizes, config.width, config.depth, tied=config.tied, forget_bias=config.forget_bias)
        self.out = nn.Linear(config.dimensions * config.width, config.classes)
        initialise(self.into, "tanh")
        initialise(self.out, "tanh")

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
