"""Writes in place, scatters, and reads at computed ids, as the code of real networks has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.export.identity.honest.written import ROWS, ConvHighway, Highway, Honest, Written, WrittenForTwo

STEPS = ("x:float32[batch,time,6]",)
FIVE_STEPS = ("x:float32[batch,5,6]",)
WITH_IDS = (ROWS, "other:int64[batch]")
WITH_COLUMNS = (ROWS, "other:int64[batch,3]")
WITH_MASK = (ROWS, "other:bool[batch,6]")
STEPS_WITH_LENGTHS = ("x:float32[batch,5,6]", "other:int64[batch]")
IMAGE = ("x:float32[batch,4,6,6]",)

Write = Callable[[Tensor, Tensor], Any]


def set_where(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[y < 0] = 0.5
    return y


def set_where_as(y: Tensor, z: Tensor) -> Tensor:
    """A mask of a whole tensor, and its numbers of another one."""
    y = y.clone()
    mask = y > z
    y[mask] = z[mask]
    return y


def set_rows_where(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[y[:, 0] > 0] = 0.0
    return y


def set_row_where(y: Tensor, z: Tensor) -> Tensor:
    """One row for all rows that a mask chooses."""
    y = y.clone()
    y[z[:, 0] > 0] = torch.arange(6.0)
    return y


def added_where(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[y < 0] += 1.5
    return y


def scaled_where(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[z > 0] *= 0.1
    return y


def set_column(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, 0] = z[:, 1]
    return y


def set_last_column(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, -1] = 0
    return y


def set_columns(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, 1:4] = z[:, :3] * 2
    return y


def set_every_other(y: Tensor, z: Tensor) -> Tensor:
    """As positions are interleaved."""
    pairs = torch.zeros(y.shape[0], 12)
    pairs[:, 0::2] = torch.sin(y)
    pairs[:, 1::2] = torch.cos(z)
    return pairs


def filled_buffer(y: Tensor, z: Tensor) -> Tensor:
    out = torch.zeros(y.shape[0], 10)
    out[:, :6] = y
    out[:, 6:] = z[:, :4]
    return out


def like_buffer(y: Tensor, z: Tensor) -> Tensor:
    out = torch.zeros_like(y)
    out[:, 2:] = z[:, 2:]
    out[..., 0] = 1.0
    return out


def empty_buffer(y: Tensor, z: Tensor) -> Tensor:
    out = y.new_empty(y.shape[0], 2, 6)
    out[:, 0] = y
    out[:, 1] = z
    return out


def step_by_step(y: Tensor, z: Tensor) -> Tensor:
    out = torch.zeros(y.shape[0], 3, 6)
    for step in range(3):
        y = torch.tanh(y + z)
        out[:, step] = y
    return out


def swapped_columns(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, [0, 1]] = y[:, [1, 0]]
    return y


def set_chosen(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, torch.tensor([4, 1])] = z[:, :2]
    return y


def added_chosen(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, torch.tensor([4, 1])] += z[:, :2]
    return y


def put_and_added(y: Tensor, z: Tensor) -> Tensor:
    """Ids that come twice."""
    ids = torch.tensor([1, 3, 1])
    t = y.t().contiguous()
    return t.index_put((ids,), z.t()[:3], accumulate=True).t()


def set_diagonal(y: Tensor, z: Tensor) -> Tensor:
    outer = y[:, :, None] * z[:, None, :]
    ids = torch.arange(6)
    outer[:, ids, ids] = 0.0
    return outer


def added_in_place(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, :3] += z[:, 3:]
    y[:, 3:] *= 2
    y += z
    return y.relu_()


def copied(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y.copy_(z)
    y[:, 1].copy_(torch.sigmoid(z[:, 0]))
    return y


def filled(y: Tensor, z: Tensor) -> Tensor:
    y = y.clone()
    y[:, 2].fill_(3.0)
    y[:, 3].zero_()
    return y * torch.empty_like(z).fill_(0.5)


class Experts(nn.Module):
    """Each row goes to the expert with the largest score, which computes the chosen rows alone."""

    def __init__(self) -> None:
        super().__init__()
        self.h, self.router = Highway(6), nn.Linear(6, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 6)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.h(x)
        chosen = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = chosen == number
            out[rows] = expert(x[rows])
        return out + x


WRITES: dict[str, Write] = {
    "a mask and a number": set_where,
    "a mask and its numbers": set_where_as,
    "rows of a mask and a number": set_rows_where,
    "rows of a mask and a row": set_row_where,
    "adding under a mask": added_where,
    "scaling under a mask": scaled_where,
    "a column": set_column,
    "the last column": set_last_column,
    "columns": set_columns,
    "every other column": set_every_other,
    "parts of a buffer": filled_buffer,
    "parts like another": like_buffer,
    "parts of an empty buffer": empty_buffer,
    "steps of a buffer": step_by_step,
    "swapped columns": swapped_columns,
    "chosen columns": set_chosen,
    "adding to chosen columns": added_chosen,
    "ids that come twice": put_and_added,
    "a diagonal": set_diagonal,
    "arithmetic in place": added_in_place,
    "copies": copied,
    "fills": filled,
    "masked_fill_": lambda y, z: y.clone().masked_fill_(z > 0, -1.0),
    "masked_fill": lambda y, z: y.masked_fill(z > y, 2.0),
    "masked_scatter": lambda y, z: y.masked_scatter(y > z, z),
    "select_scatter": lambda y, z: torch.select_scatter(y, z[:, 0], 1, 2),
    "slice_scatter": lambda y, z: torch.slice_scatter(y, z[:, :2], 1, 1, 3),
    "a slice_scatter by steps": lambda y, z: torch.slice_scatter(y, z[:, :3], 1, 0, 6, 2),
    "tril_": lambda y, z: (y[:, :, None] * z[:, None, :]).tril_(),
    "triu_": lambda y, z: (y[:, :, None] + z[:, None, :]).triu_(1),
    "index_add": lambda y, z: y.index_add(1, torch.tensor([0, 2, 2]), z[:, :3]),
    "index_add with alpha": lambda y, z: y.index_add(1, torch.tensor([0, 3]), z[:, :2], alpha=0.5),
    "index_copy": lambda y, z: y.index_copy(1, torch.tensor([5, 0]), z[:, :2]),
    "index_fill": lambda y, z: y.index_fill(1, torch.tensor([5, 0]), 2.0),
    "scatter at known ids": lambda y, z: y.scatter(1, torch.tensor([[0, 2]]).expand(y.shape[0], 2), z[:, :2]),
    "scatter of a number": lambda y, z: y.scatter(1, torch.tensor([[3, 2]]).expand(y.shape[0], 2), 1.5),
    "scatter_add at known ids": lambda y, z: y.scatter_add(
        1, torch.tensor([[0, 2, 2]]).expand(y.shape[0], 3), z[:, :3]
    ),
    "scatter_reduce of maxima": lambda y, z: y.scatter_reduce(
        1, torch.tensor([[0, 2, 2]]).expand(y.shape[0], 3), z[:, :3], "amax"
    ),
    "scatter_reduce of products": lambda y, z: y.scatter_reduce(
        1, torch.tensor([[0, 2, 2]]).expand(y.shape[0], 3), z[:, :3], "prod"
    ),
}


def kept_largest(y: Tensor, z: Tensor) -> Tensor:
    """As routers of experts write the weights of the best ones."""
    values, ids = y.topk(2, -1)
    return torch.zeros_like(y).scatter_(1, ids, values.softmax(-1)) * z


def masked_largest(y: Tensor, z: Tensor) -> Tensor:
    """Logits outside of the best three become -inf."""
    ids = y.topk(3, -1)[1]
    mask = torch.full_like(y, float("-inf")).scatter(1, ids, 0.0)
    return (y + mask).softmax(-1)


def straight_through(y: Tensor, z: Tensor) -> Tensor:
    """As in gumbel_softmax(hard=True)."""
    soft = y.softmax(-1)
    ids = soft.argmax(-1, keepdim=True)
    hard = torch.zeros_like(y).scatter_(-1, ids, 1.0)
    return hard - soft + soft + z


def nucleus(y: Tensor, z: Tensor) -> Tensor:
    values, ids = y.sort(-1, descending=True)
    keep = values.softmax(-1).cumsum(-1) < 0.9
    return y.gather(1, ids) * keep


def unsorted(y: Tensor, z: Tensor) -> Tensor:
    values, ids = torch.sort(y, -1)
    return torch.zeros_like(y).scatter(1, ids, values + z)


READS: dict[str, Write] = {
    "scatter of the largest": kept_largest,
    "all but the largest masked": masked_largest,
    "a straight-through choice": straight_through,
    "a nucleus": nucleus,
    "a sort undone": unsorted,
    "gather at the largest": lambda y, z: z.gather(1, y.topk(2, -1)[1]),
    "gather at argmax": lambda y, z: z.gather(1, y.argmax(-1, keepdim=True)),
    "gather at argsort": lambda y, z: z.gather(1, y.argsort(-1)),
    "one row by argmax": lambda y, z: torch.eye(6)[y.argmax(-1)] * z,
    "one_hot of argmax": lambda y, z: F.one_hot(y.argmax(-1), 6).float() * z,
    "one_hot of argmax without a number": lambda y, z: y * F.one_hot(y.argmax(-1), 6),
    "bucketize": lambda y, z: z + torch.bucketize(y, torch.tensor([-1.0, 0.0, 0.5])),
    "bucketize from the right": lambda y, z: (
        z + torch.bucketize(y, torch.tensor([-1.0, 0.0, 0.5]), right=True)
    ),
    "nonzero": lambda y, z: y[(y > 0).nonzero(as_tuple=True)].sum() + z,
    "max with ids": lambda y, z: z.gather(1, y.max(-1, keepdim=True)[1]),
    "unfold": lambda y, z: y.unfold(1, 3, 1) @ z[:, :3, None],
    "roll": lambda y, z: torch.roll(y, 2, -1) + z,
    "flip": lambda y, z: torch.flip(y, (-1,)) + z,
    "pairwise_distance": F.pairwise_distance,
    "cosine_similarity": F.cosine_similarity,
    "outer products": lambda y, z: torch.einsum("bi,bj->bij", y, z),
    "a trace by einsum": lambda y, z: torch.einsum("bii->b", y[:, :, None] * z[:, None, :]),
    "a diagonal by einsum": lambda y, z: torch.einsum("bii->bi", y[:, :, None] * z[:, None, :]),
    "a diagonal": lambda y, z: torch.diagonal(y[:, :, None] * z[:, None, :], dim1=1, dim2=2),
    "diag_embed": lambda y, z: torch.diag_embed(y) + z[:, None],
    "diag_embed off the diagonal": lambda y, z: torch.diag_embed(y, 1),
    "cumsum": lambda y, z: y.cumsum(-1) + z,
    "a reversed cumsum": lambda y, z: y.flip(-1).cumsum(-1).flip(-1) + z,
    "logcumsumexp": lambda y, z: torch.logcumsumexp(y, -1) + z,
    "nan_to_num": lambda y, z: torch.nan_to_num(y / z),
    "isnan": lambda y, z: torch.where(torch.isnan(y), z, y),
    "isfinite": lambda y, z: torch.where(torch.isfinite(y), y, z),
    "var_mean": lambda y, z: torch.cat([*torch.var_mean(y, -1, keepdim=True), z], -1),
    "std_mean": lambda y, z: torch.cat([*torch.std_mean(y, -1, keepdim=True), z], -1),
    "norm of order 1": lambda y, z: z / y.norm(1, -1, keepdim=True),
    "norm of order 2": lambda y, z: z / y.norm(2, -1, keepdim=True),
    "norm of order inf": lambda y, z: z / y.norm(float("inf"), -1, keepdim=True),
    "norm of order 3": lambda y, z: z / y.norm(3, -1, keepdim=True),
    "norm of order 0": lambda y, z: z + y.norm(0, -1, keepdim=True),
    "norm of a matrix": lambda y, z: torch.linalg.matrix_norm(y[:, :, None] * z[:, None, :]),
    "normalize of order 1": lambda y, z: F.normalize(y, 1, -1) + z,
    "normalize": lambda y, z: F.normalize(y, 2, -1) + z,
    "atan2": torch.atan2,
    "logsumexp": lambda y, z: torch.logsumexp(y, -1, keepdim=True) + z,
    "amin and amax": lambda y, z: (y - y.amin(-1, True)) / (y.amax(-1, True) - y.amin(-1, True)) + z,
    "aminmax": lambda y, z: torch.aminmax(y, dim=-1)[0][:, None] + z,
    "diff": lambda y, z: torch.diff(y, dim=-1) + z[:, 1:],
    "prod": lambda y, z: y.prod(-1, keepdim=True) + z,
    "tensordot": lambda y, z: torch.tensordot(y, z.t() @ z, dims=1),
    "cross": lambda y, z: torch.linalg.cross(y[:, :3], z[:, 3:]),
    "tile": lambda y, z: y.tile(1, 2),
    "meshgrid": lambda y, z: (
        sum(torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")) + y[:, None]
    ),
    "heaviside": lambda y, z: torch.heaviside(y, torch.tensor(0.5)) + z,
    "softmin": lambda y, z: F.softmin(y, -1) + z,
    "threshold": lambda y, z: F.threshold(y, 0.1, 20.0) + z,
    "hardshrink": lambda y, z: F.hardshrink(y) + F.softshrink(z),
    "tanhshrink": lambda y, z: F.tanhshrink(y) + F.logsigmoid(z),
    "addbmm": lambda y, z: torch.addbmm(torch.zeros(6, 6), y[:, :, None], z[:, None, :]),
    "addr": lambda y, z: torch.addr(torch.zeros(6, 6), y[0], z[0]),
    "bitwise tricks": lambda y, z: ((y > 0) & ~(z > 0) | (y < z)).float(),
    "count_nonzero": lambda y, z: z + torch.count_nonzero(y > 0, -1)[:, None],
    "remainder": lambda y, z: y % 2.0 + z // 0.5,
    "unbind and stack": lambda y, z: torch.stack(y.unbind(-1)[::-1], -1) + z,
    "a linspace": lambda y, z: y * torch.linspace(0, 1, 6) + z,
    "renorm": lambda y, z: torch.renorm(y, 2, 0, 1.0) + z,
    "erfc": lambda y, z: torch.erfc(y) + z,
    "lgamma": lambda y, z: torch.special.expit(y) + z,
    "float_power": lambda y, z: y.abs().pow(1.5) + z,
    "xlogy": lambda y, z: torch.xlogy(torch.sigmoid(y), torch.sigmoid(z)),
    "polar parts": lambda y, z: torch.cat([(y**2 + z**2).sqrt(), torch.atan2(z, y)], -1),
}


def at_ids(function: Callable[[Tensor, Tensor, Tensor], Any]) -> Callable[..., Any]:
    return lambda net, x, other: function(net.h(x), net.g(x), other)


def set_last_valid(y: Tensor, other: Tensor) -> Tensor:
    """The step after the last valid one is an end token."""
    y = y.clone()
    y[torch.arange(y.shape[0]), other] = 1.0
    return y


def zero_after(y: Tensor, other: Tensor) -> Tensor:
    y = y.clone()
    y[torch.arange(5)[None] >= other[:, None]] = 0.0
    return y


def edges(y: Tensor, other: Tensor) -> Tensor:
    """As in a graph network: messages of edges are added to their nodes."""
    out = torch.zeros(4, 6)
    return out.index_add(0, other % 4, y) + y.sum()


AT_IDS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "index_add at an input": lambda y, z, n: torch.zeros(4, 6).index_add(0, n % 4, y),
    "index_put at an input": lambda y, z, n: torch.zeros(4, 6).index_put((n % 4,), y, accumulate=True),
    "index_copy at an input": lambda y, z, n: torch.zeros(4, 6).index_copy(0, n % 4, y),
    "rows at an input": lambda y, z, n: y @ torch.eye(6)[n % 6][:, :, None].mean(0),
    "rows of computed at an input": lambda y, z, n: y[n % 2] + z,
    "select at an input": lambda y, z, n: y.gather(1, n[:, None] % 6) + z,
    "one_hot of an input": lambda y, z, n: F.one_hot(n % 6, 6) * y + z,
    "a place of a row": lambda y, z, n: y[torch.arange(y.shape[0]), n % 6],
}
AT_COLUMNS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "scatter at an input": lambda y, z, n: y.scatter(1, n % 6, z[:, :3]),
    "scatter_ of a number at an input": lambda y, z, n: torch.zeros_like(y).scatter_(1, n % 6, 1.0) * z,
    "scatter_add at an input": lambda y, z, n: y.scatter_add(1, n % 6, z[:, :3]),
    "scatter_reduce at an input": lambda y, z, n: y.scatter_reduce(1, n % 6, z[:, :3], "amax"),
    "gather at an input": lambda y, z, n: y.gather(1, n % 6),
}
UNDER_MASK: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "a mask of the input": lambda y, z, b: y.masked_fill(b, 0.0) + z,
    "a mask written": lambda y, z, b: y.clone().index_put_((b,), torch.tensor(2.0)),
    "masked_scatter_": lambda y, z, b: y.clone().masked_scatter_(b, z),
    "a masked mean": lambda y, z, b: (y * b).sum(1) / b.sum(1).clamp(min=1),
}
OF_STEPS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "an end token": set_last_valid,
    "zeros after the end": zero_after,
    "the last step": lambda y, n: y[torch.arange(y.shape[0]), n - 1],
}


def shifted(y: Tensor) -> Tensor:
    """As a decoder shifts its inputs to the right."""
    out = torch.zeros_like(y)
    out[:, 1:] = y[:, :-1].clone()
    out[:, 0] = 2.0
    return out


def running(y: Tensor) -> Tensor:
    """A state that is written step by step."""
    out = torch.zeros_like(y)
    state = torch.zeros_like(y[:, 0])
    for step in range(5):
        state = 0.5 * state + y[:, step]
        out[:, step, :] = state
    return out


def first_step(y: Tensor) -> Tensor:
    y = y.clone()
    y[:, 0] = 0
    return y


def last_step(y: Tensor) -> Tensor:
    y = y.clone()
    y[:, -1, 2:] = y[:, 0, 2:]
    return y


SEQUENCES: dict[str, tuple[Callable[[Tensor], Any], tuple[str, ...]]] = {
    "shifted steps": (shifted, STEPS),
    "five shifted steps": (shifted, FIVE_STEPS),
    "a running state": (running, FIVE_STEPS),
    "the first step": (first_step, STEPS),
    "the last step": (last_step, STEPS),
}


def bordered(y: Tensor) -> Tensor:
    out = torch.zeros(y.shape[0], 4, 8, 8)
    out[:, :, 1:-1, 1:-1] = y
    return out


MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "fold": lambda y: F.fold(F.unfold(y, 2, stride=2), (6, 6), 2, stride=2),
    "overlapping fold": lambda y: F.fold(F.unfold(y, 3, padding=1), (6, 6), 3, padding=1),
    "dilated fold": lambda y: F.fold(F.unfold(y, 2, dilation=2), (6, 6), 2, dilation=2),
    "grid_sample": lambda y: F.grid_sample(y, torch.tanh(y[:, :2].permute(0, 2, 3, 1)), align_corners=False),
    "pixel_shuffle": lambda y: F.pixel_shuffle(y, 2),
    "a border of zeros": bordered,
    "unpooled": lambda y: y.repeat_interleave(2, 2).repeat_interleave(2, 3),
    "adaptive average, uneven": lambda y: F.adaptive_avg_pool2d(y, 4),
    "adaptive maximum": lambda y: F.adaptive_max_pool2d(y, 3),
    "LayerNorm of channels": lambda y: F.layer_norm(y.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2),
    "antialiased": lambda y: F.interpolate(y, size=(3, 3), mode="bilinear", antialias=True),
}


def pair() -> dict[str, nn.Module]:
    return {"h": Highway(6), "g": Highway(6)}


def of_pair(function: Write) -> nn.Module:
    return Written(lambda net, x: function(net.h(x), net.g(x)), **pair())


def with_other(function: Callable[..., Any]) -> nn.Module:
    return WrittenForTwo(at_ids(function), **pair())


def with_lengths(function: Callable[[Tensor, Tensor], Any]) -> nn.Module:
    def forward(net: Any, *inputs: Tensor) -> Any:
        return function(net.h(inputs[0]), inputs[1])

    return WrittenForTwo(forward, h=Highway(6))


def of_steps(function: Callable[[Tensor], Any]) -> nn.Module:
    return Written(lambda net, x: function(net.h(x)), h=Highway(6))


def of_map(function: Callable[[Tensor], Any]) -> nn.Module:
    return Written(lambda net, x: function(net.h(x)), h=ConvHighway(4, 2))


NETWORKS = [
    Honest("experts of chosen rows", Experts),
    *(Honest(f"write {name}", partial(of_pair, function)) for name, function in WRITES.items()),
    *(Honest(f"read {name}", partial(of_pair, function)) for name, function in READS.items()),
    *(Honest(f"write {name}", partial(with_other, function), WITH_IDS) for name, function in AT_IDS.items()),
    *(
        Honest(f"write {name}", partial(with_other, function), WITH_COLUMNS)
        for name, function in AT_COLUMNS.items()
    ),
    *(
        Honest(f"write {name}", partial(with_other, function), WITH_MASK)
        for name, function in UNDER_MASK.items()
    ),
    *(
        Honest(f"steps {name} by lengths", partial(with_lengths, function), STEPS_WITH_LENGTHS)
        for name, function in OF_STEPS.items()
    ),
    *(
        Honest(f"steps {name}", partial(of_steps, function), inputs)
        for name, (function, inputs) in SEQUENCES.items()
    ),
    *(Honest(f"image {name}", partial(of_map, function), IMAGE) for name, function in MAPS.items()),
]
