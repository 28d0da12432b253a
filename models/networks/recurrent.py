"""Recurrent highway networks (several highway layers per time step), and LSTM stacks with depth gates.

The loop over time is a Python loop, which an export unrolls. So a network reads rows of one length only,
that of its config.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, get_args

import torch
from torch import Tensor, nn

from turnpike.models.checks import expect, expect_axis_size, expect_choice
from turnpike.models.errors import ShapeError
from turnpike.models.layers.activation import initialize_weights
from turnpike.models.layers.gate import Carry, DenseGate, GatedJoin
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.sequence import as_sequence, expect_sequence, sequence_shape


class RecurrentHighwayStep(GatedJoin):
    """One highway layer of a time step (Zilly et al. 2016, "Recurrent Highway Networks").

        s_l = h_l * t_l + s_{l-1} * c_l
        h_l = tanh(W_H x_t [l = 1 only] + R_H s_{l-1} + b_H)
        t_l = sigmoid(W_T x_t [l = 1 only] + R_T s_{l-1} + b_T)
        c_l = 1 - t_l, or a gate of its own of the same form when the carry is independent

    W and R are one linear map of [x_t, s_{l-1}]. Its weights are drawn after Glorot and Bengio 2010 for
    tanh. The gate starts at a negative bias, so that the state is mostly carried.
    Shapes: s (batch, width), x (batch, inputs) -> (batch, width).

    Args:
        inputs: Features of x_t; 0 for a step that does not read x_t.
        width: Units of the state.
        gate_bias: Initial bias of the transform gate; None keeps PyTorch's own initialization.
        carry: "coupled" or "independent".
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
                f"RecurrentHighwayStep: expected {'an' if self.inputs else 'no'} input besides the state, "
                f"got {'none' if x is None else list(x.shape)}"
            )
        expect_axis_size(self, s, self.transform.out_features)
        if x is not None:
            expect_axis_size(self, x, self.inputs)
        inputs = s if x is None else torch.cat([x, s], dim=-1)
        return self.join(torch.tanh(self.transform(inputs)), x=s, gate_input=inputs)


class RecurrentHighway(nn.Module):
    """A recurrent highway layer: `depth` highway steps per time step, the first of which reads x_t.

    The state after the last highway step is the output at time t, and the initial state at time t + 1.
    The state before the first time step is zero, unless the caller passes one. Each highway step has its
    own weights, which are the same at all time steps.
    Shapes: x (batch, time, inputs), state (batch, width) -> (batch, time, width).

    Args:
        inputs: Features of one time step.
        width: Units of the state.
        depth: Number of highway steps per time step.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
        carry: "coupled" or "independent".
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
            RecurrentHighwayStep(inputs if level == 0 else 0, width, gate_bias=gate_bias, carry=carry)
            for level in range(depth)
        )

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        expect_sequence(self, x, self.inputs)
        s = x.new_zeros(x.shape[0], self.width) if state is None else state
        states = []
        for x_t in x.unbind(1):
            for level, step in enumerate(self.steps):
                s = step(s, x_t) if level == 0 else step(s)
            states.append(s)
        return torch.stack(states, dim=1)

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor, state: Tensor | None = None) -> Tensor: ...


class DepthGate(nn.Module):
    """d = sigmoid(W x_t + w_time * c_{t-1} + w_depth * c_below + b): how much of the cell below to add.

    W is drawn after Glorot and Bengio 2010. The vectors w start at zero, so at first only the bias and the
    input decide.
    Shapes: x (batch, inputs), c_previous and c_below (batch, width) -> (batch, width).
    """

    def __init__(self, inputs: int, width: int, bias: float) -> None:
        super().__init__()
        self.map = nn.Linear(inputs, width)
        initialize_weights(self.map, "tanh")
        nn.init.constant_(self.map.bias, bias)
        self.time = nn.Parameter(torch.zeros(width))
        self.depth = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, c_previous: Tensor, c_below: Tensor) -> Tensor:
        return torch.sigmoid(self.map(x) + self.time * c_previous + self.depth * c_below)


class HighwayLstmLayer(nn.Module):
    """An LSTM layer that adds the cells of the layer below to its own, through a depth gate.

        i, f, o = sigmoid(W x_t + R h_{t-1} + b), each with its own weights
        g = tanh(W_g x_t + R_g h_{t-1} + b_g)
        d = sigmoid(W_d x_t + w_time * c_{t-1} + w_depth * c_below_t + b_d)
        c_t = d * c_below_t + f * c_{t-1} + i * g
        h_t = o * tanh(c_t)

    Zhang et al. 2015, "Highway Long Short-Term Memory RNNs", and Yao et al. 2015, "Depth-Gated LSTM".
    The gates i, f and o do not read the cells (no peepholes); d does. x_t is h_t of the layer below. The
    lowest layer has no layer below, hence no d: it is a plain LSTM.
    The biases start at b_f = -b_d = 1, where d = 1 - f, so cells keep their size at any depth. W is drawn
    after Glorot and Bengio 2010 for tanh. Each R is orthogonal, which rotates a state but keeps its size.
    Shapes: x (batch, time, inputs), c_below (batch, time, width) -> h and c, each (batch, time, width).

    Args:
        inputs: Features of one time step.
        width: Units of h and c.
        lowest: Whether this is the lowest layer of a stack, which has no depth gate.
        forget_bias: Initial bias b_f of the forget gate.
        depth_bias: Initial bias b_d of the depth gate.
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
        for time, from_input in enumerate(self.read(x).unbind(1)):
            i, f, o, g = (from_input + self.recur(h)).chunk(4, dim=-1)
            carried = torch.sigmoid(f) * c
            if self.depth_gate is not None and c_below is not None:
                carried = carried + self.depth_gate(x[:, time], c, c_below[:, time]) * c_below[:, time]
            c = carried + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            hidden.append(h)
            cells.append(c)
        return torch.stack(hidden, dim=1), torch.stack(cells, dim=1)

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor, c_below: Tensor | None = None) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class RhnConfig(NetConfig):
    """A recurrent highway network over a sequence (time, features), or an image read line by line.

    Attributes:
        width: Units of the state.
        depth: Highway steps per time step.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
        carry: "coupled" or "independent".
    """

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
    """A recurrent highway layer, then a linear classifier of its last state.

    The last state and not a mean over time, because only the last one has seen the whole row.
    Shapes: (batch, time, features) or (batch, channels, height, width) -> (batch, classes).
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
    """A stack of LSTM layers with depth gates over a sequence, or an image read line by line.

    Attributes:
        width: Units of each layer.
        depth: Number of layers.
        forget_bias: Initial bias of the forget gates.
        depth_bias: Initial bias of the depth gates.
    """

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
    """A stack of highway LSTM layers, then a linear classifier of the top layer's last state.

    Shapes: (batch, time, features) or (batch, channels, height, width) -> (batch, classes).
    """

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
