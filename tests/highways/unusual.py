"""Highway layers in forms that few authors choose: unusual gates, and sums that hide their products."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

UNITS = 6
# the output of a layer from H, the logit of the gate, and x; and its transform gate
Formula = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Unusual(nn.Module):
    """Two layers of one formula."""

    def __init__(self, formula: Formula) -> None:
        super().__init__()
        self.h = nn.ModuleList(nn.Linear(UNITS, UNITS) for _ in range(2))
        self.t = nn.ModuleList(nn.Linear(UNITS, UNITS) for _ in range(2))
        self.formula = formula

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)[0]

    def run(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The output, and the transform gates."""
        gates = []
        for h, t in zip(self.h, self.t, strict=True):
            x, gate = self.formula(torch.relu(h(x)), t(x), x)
            gates.append(gate)
        return x, gates


def mixed(gate: Callable[[Tensor], Tensor]) -> Formula:
    """T H + (1 - T) x with an unusual T."""

    def formula(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        t = gate(z)
        return t * h + (1 - t) * x, t

    return formula


def exponential(z: Tensor) -> Tensor:
    e = torch.exp(z)
    return e / (e + 1)


def root(z: Tensor) -> Tensor:
    return 0.5 + 0.5 * z * torch.rsqrt(1 + z * z)


def quotient_by_root(z: Tensor) -> Tensor:
    return 0.5 + 0.5 * (z / torch.sqrt(z**2 + 1))


def stable_where(z: Tensor) -> Tensor:
    e = torch.exp(-z.abs())
    return torch.where(z >= 0, 1 / (1 + e), e / (1 + e))


def normalized_exponentials(z: Tensor) -> Tensor:
    e = torch.exp(torch.stack([z, torch.zeros_like(z)], -1))
    return (e / e.sum(-1, keepdim=True))[..., 0]


def two_parts_of_log_softmax(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t, c = torch.log_softmax(torch.stack([z, -z], -1), -1).exp().unbind(-1)
    return t * h + c * x, t


def diagonal_matrix(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    return x + (torch.diag_embed(t) @ (h - x).unsqueeze(-1)).squeeze(-1), t


def joined_and_split(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    candidate, t = torch.cat([h, torch.sigmoid(z)], -1).split(UNITS, -1)
    return x + t * (candidate - x), t


def of_transposed(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    difference = t.mT * (h.mT - x.mT)
    return (difference + x.mT).mT, t


def in_einsum(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    return torch.einsum("...i,...i->...i", t, h - x) + x, t


def difference_of_squares(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    d = h - x
    return x + ((t + d) ** 2 - (t - d) ** 2) / 4, t


def weight_of_a_tanh(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.tanh(z)
    return 0.5 * ((1 + q) * h + (1 - q) * x), 0.5 + 0.5 * q


def carried_by_a_tanh(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.tanh(z)
    return 0.5 * ((1 - q) * h + (1 + q) * x), 0.5 - 0.5 * q


def half_a_difference(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.tanh(z)
    middle = (h + x) / 2
    return middle + q * (h - middle), 0.5 + 0.5 * q


def tanh_in_einsum(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.tanh(z)
    return torch.einsum("...i,...i->...i", 1 - q, (h - x) / 2) + x, 0.5 - 0.5 * q


def stacked_weights_of_a_tanh(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    q = torch.tanh(z)
    return (torch.stack([1 + q, 1 - q]) / 2 * torch.stack([h, x])).sum(0), 0.5 + 0.5 * q


def two_steps_in_place(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    return x.clone().mul_(1 - t).addcmul_(t, h), t


def batched_diagonals(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    diagonal = torch.diag_embed(t.reshape(-1, UNITS))
    products = (
        torch.bmm(diagonal, h.reshape(-1, UNITS, 1)),
        torch.bmm(torch.eye(UNITS) - diagonal, x.reshape(-1, UNITS, 1)),
    )
    return sum(products, torch.zeros(())).reshape(x.shape), t


def attention_over_sources(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    shares = torch.softmax(torch.stack([z, 2 - z], -2), -2)
    return (shares * torch.stack([h, x], -2)).sum(-2), shares[..., 0, :]


def per_head(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z[..., :2]).unsqueeze(-1)
    heads, carried = h.unflatten(-1, (2, UNITS // 2)), x.unflatten(-1, (2, UNITS // 2))
    return (t * heads + (1 - t) * carried).flatten(-2), t


GATES: dict[str, Formula] = {
    "e / (e + 1)": mixed(exponential),
    "power": mixed(lambda z: torch.pow(1 + torch.exp(-z), -1)),
    "atan": mixed(lambda z: 0.5 + torch.atan(z) / math.pi),
    "softsign": mixed(lambda z: 0.5 + 0.5 * z / (1 + z.abs())),
    "rsqrt": mixed(root),
    "quotient by a root": mixed(quotient_by_root),
    "stable where": mixed(stable_where),
    "normalized exponentials": mixed(normalized_exponentials),
    "log softmax": two_parts_of_log_softmax,
    "clamped": mixed(lambda z: torch.sigmoid(z).clamp(1e-7, 1 - 1e-7)),
    "attention over sources": attention_over_sources,
}
SUMS: dict[str, Formula] = {
    "diagonal matrix": diagonal_matrix,
    "joined and split": joined_and_split,
    "transposed": of_transposed,
    "einsum": in_einsum,
    "difference of squares": difference_of_squares,
    "two steps in place": two_steps_in_place,
    "batched diagonals": batched_diagonals,
    "per head": per_head,
    "weight of a tanh": weight_of_a_tanh,
    "carried by a tanh": carried_by_a_tanh,
    "half a difference": half_a_difference,
    "tanh in einsum": tanh_in_einsum,
    "stacked weights of a tanh": stacked_weights_of_a_tanh,
}
