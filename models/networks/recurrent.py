"""Recurrent highway networks, deep in each step of time, and LSTM stacks joined by depth gates.

Time is a Python loop, which an export unrolls: a net reads rows of the one length its config names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from models.checks import expect, expect_axis_size, expect_choice
from models.errors import ShapeError
from models.layers.activation import initialize_weights
from models.layers.gate import Carry, DenseGate, GatedJoin
from models.networks.base import Net, NetConfig
from models.networks.sequence import as_sequence, expect_sequence, sequence_shape


class RecurrentHighwayStep(GatedJoin):
    """One step of depth: s_l = h_l * t_l + s_{l-1} * c_l (Zilly et al. 2016, "Recurrent Highway Networks").

        h_l = tanh(W_H x_t [l = 1 only] + R_H s_{l-1} + b_H)
        t_l = sigmoid(W_T x_t [l = 1 only] + R_T s_{l-1} + b_T)
        c_l = 1 - t_l, or a gate of its own of the same form when the carry is independent

    W and R are one map of [x_t, s_{l-1}]; a step that reads no x_t has `inputs` 0. The map starts as
    Glorot and Bengio 2010 for tanh; the gate starts at a negative bias, so that a state is mostly kept.
    Shapes: s (batch, width), x (batch, inputs) -> (batch, width).
    """

    def __init__(
        self, inputs: int, width: int, *, gate_bias: float | None = -2.0, carry: Carry = "coupled"
    ) -> None:
        super().__init__(lambda: DenseGate(inputs + width, width), gate_bias=gate_bias, carry=carry)
        self.inputs = inputs
        self.transform = nn.Linear(inputs + width, width)
        initialize_weights(self.transform, "tanh")

    def forward(self, s: Tensor, x: Tensor | None = None) -> Tensor:
        if (x is None) != (self.inputs == 0):
            raise ShapeError(
                f"RecurrentHighwayStep: expected {'an' if self.inputs else 'no'} input beside the state, "
                f"got {'none' if x is None else list(x.shape)}"
            )
        expect_axis_size(self, s, self.transform.out_features)
        if x is not None:
            expect_axis_size(self, x, self.inputs)
        by = s if x is None else torch.cat([x, s], dim=-1)
        return self.join(torch.tanh(self.transform(by)), x=s, gate_input=by)


class RecurrentHighway(nn.Module):
    """A recurrent highway layer: `depth` highway steps for every step of time, the first of which reads x_t.

    The state after the last step of depth is the layer's output at t, and the state that t + 1 begins
    from; it is zero before the first, unless one is given. Weights differ along depth, not along time.
    Shapes: x (batch, time, inputs), state (batch, width) -> (batch, time, width).
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        depth: int,
        *,
        gate_bias: float | None = -2.0,
        carry: Carry = "coupled",
    ) -> None:
        super().__init__()
        expect(depth > 0, f"depth: expected 1 or more, got {depth}")
        self.inputs = inputs
        self.width = width
        self.steps = nn.ModuleList(
            RecurrentHighwayStep(inputs if step == 0 else 0, width, gate_bias=gate_bias, carry=carry)
            for step in range(depth)
        )

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        expect_sequence(self, x, self.inputs)
        s = x.new_zeros(x.shape[0], self.width) if state is None else state
        states = []
        for x_t in x.unbind(1):
            for number, step in enumerate(self.steps):
                s = step(s, x_t) if number == 0 else step(s)
            states.append(s)
        return torch.stack(states, dim=1)


class DepthGate(nn.Module):
    """d = sigmoid(W x_t + w_time * c_{t-1} + w_depth * c_below + b), how much of the cell below comes up.

    The vectors w start at zero: at first only the bias and the input decide.
    Shapes: x (batch, inputs), c_before and c_below (batch, width) -> (batch, width).
    """

    def __init__(self, inputs: int, width: int, bias: float) -> None:
        super().__init__()
        self.map = nn.Linear(inputs, width)
        initialize_weights(self.map, "tanh")
        nn.init.constant_(self.map.bias, bias)
        self.time = nn.Parameter(torch.zeros(width))
        self.depth = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, c_before: Tensor, c_below: Tensor) -> Tensor:
        return torch.sigmoid(self.map(x) + self.time * c_before + self.depth * c_below)


class HighwayLstmLayer(nn.Module):
    """An LSTM layer whose cells also take in the cells of the layer below, through a depth gate.

        i, f, o = sigmoid(W x_t + R h_{t-1} + b), each with weights of its own
        g = tanh(W_g x_t + R_g h_{t-1} + b_g)
        d = sigmoid(W_d x_t + w_time * c_{t-1} + w_depth * c_below_t + b_d)
        c_t = d * c_below_t + f * c_{t-1} + i * g
        h_t = o * tanh(c_t)

    Zhang et al. 2015, "Highway Long Short-Term Memory RNNs", and Yao et al. 2015, "Depth-Gated LSTM";
    the gates i, f and o look at no cell here (no peepholes), d does. x_t is the h_t of the layer below.
    The lowest layer has no cell below, hence no d: it is a plain LSTM. The biases start at
    b_f = -b_d = 1, where d = 1 - f: a cell is then as large as those it comes from, at any depth.
    W starts as Glorot and Bengio 2010 for tanh, each R orthogonal (a state turns, but keeps its size).
    Shapes: x (batch, time, inputs), c_below (batch, time, width) -> h and c, each (batch, time, width).
    """

    def __init__(
        self, inputs: int, width: int, *, lowest: bool, forget_bias: float = 1.0, depth_bias: float = -1.0
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.width = width
        self.read = nn.Linear(inputs, 4 * width)
        self.recur = nn.Linear(width, 4 * width, bias=False)
        with torch.no_grad():
            for part in self.read.weight.chunk(4):
                nn.init.xavier_normal_(part)
            for part in self.recur.weight.chunk(4):
                nn.init.orthogonal_(part)
            self.read.bias.zero_()
            self.read.bias[width : 2 * width] = forget_bias
        self.depth_gate = None if lowest else DepthGate(inputs, width, depth_bias)

    def forward(self, x: Tensor, c_below: Tensor | None = None) -> tuple[Tensor, Tensor]:
        expect_sequence(self, x, self.inputs)
        if (c_below is None) != (self.depth_gate is None):
            raise ShapeError(
                f"HighwayLstmLayer: expected {'no' if self.depth_gate is None else 'the'} cells of a layer "
                f"below, got {'none' if c_below is None else list(c_below.shape)}"
            )
        if c_below is not None:
            expect_sequence(self, c_below, self.width)
        h = c = x.new_zeros(x.shape[0], self.width)
        hidden, cells = [], []
        for time, read in enumerate(self.read(x).unbind(1)):
            i, f, o, g = (read + self.recur(h)).chunk(4, dim=-1)
            kept = torch.sigmoid(f) * c
            if self.depth_gate is not None and c_below is not None:
                kept = kept + self.depth_gate(x[:, time], c, c_below[:, time]) * c_below[:, time]
            c = kept + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            hidden.append(h)
            cells.append(c)
        return torch.stack(hidden, dim=1), torch.stack(cells, dim=1)


@dataclass(frozen=True, kw_only=True)
class RhnConfig(NetConfig):
    """A recurrent highway layer over a sequence (time, features), or an image read line by line."""

    family: ClassVar[str] = "rhn"

    width: int = 64
    depth: int = 3
    gate_bias: float | None = -2.0
    carry: Carry = "coupled"

    def __post_init__(self) -> None:
        super().__post_init__()
        sequence_shape(self.inputs)
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        expect(self.depth > 0, f"depth: expected 1 or more, got {self.depth}")
        expect_choice("carry", self.carry, get_args(Carry))


class Rhn(Net):
    """Reads a row with a recurrent highway layer and classifies by its last state.

    The last state, not a mean over time: it alone has read the whole row, in order.
    """

    def __init__(self, config: RhnConfig) -> None:
        super().__init__(config)
        _, features = sequence_shape(config.inputs)
        self.layer = RecurrentHighway(
            features, config.width, config.depth, gate_bias=config.gate_bias, carry=config.carry
        )
        self.out = nn.Linear(config.width, config.classes)
        initialize_weights(self.out, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        return self.out(self.layer(as_sequence(x))[:, -1])


@dataclass(frozen=True, kw_only=True)
class HighwayLstmConfig(NetConfig):
    """A stack of LSTM layers with depth gates over a sequence, or an image read line by line."""

    family: ClassVar[str] = "highway-lstm"

    width: int = 64
    depth: int = 3
    forget_bias: float = 1.0
    depth_bias: float = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        sequence_shape(self.inputs)
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        expect(self.depth > 0, f"depth: expected 1 or more, got {self.depth}")


class HighwayLstm(Net):
    """Reads a row with a stack of highway LSTM layers and classifies by the last state of the uppermost."""

    def __init__(self, config: HighwayLstmConfig) -> None:
        super().__init__(config)
        _, features = sequence_shape(config.inputs)
        self.layers = nn.ModuleList(
            HighwayLstmLayer(
                features if level == 0 else config.width,
                config.width,
                lowest=level == 0,
                forget_bias=config.forget_bias,
                depth_bias=config.depth_bias,
            )
            for level in range(config.depth)
        )
        self.out = nn.Linear(config.width, config.classes)
        initialize_weights(self.out, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        h, c = as_sequence(x), None
        for layer in self.layers:
            h, c = layer(h, c)
        return self.out(h[:, -1])
