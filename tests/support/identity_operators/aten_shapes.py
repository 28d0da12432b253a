"""Cases of ATen operators that move, join, repeat or make numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.identity_operators.aten_case import AtenCases, booleans, floats, integers

CASES = AtenCases()
aten = torch.ops.aten

CASES.add("clone", lambda x: (x.clone(), x.detach(), x.contiguous(), aten.alias(x) * 2), floats(3, 4))
CASES.add("lift_fresh_copy", lambda x: x + aten.lift_fresh_copy(torch.ones(4)), floats(4))
CASES.add(
    "dropout", nn.Sequential(nn.Dropout(), nn.AlphaDropout(), nn.FeatureAlphaDropout()), floats(2, 3, 4)
)
CASES.add("feature_dropout", nn.Dropout1d(), floats(2, 3, 4))
CASES.add("native_dropout", lambda x: aten.native_dropout(x, 0.5, False)[0], floats(2, 3, 4))

CASES.add("view", lambda x: (x.view(6, 4), x.view(-1, 8), x.reshape(4, -1, 2), x.view(24)), floats(2, 3, 4))
CASES.add(
    "reshape of a transposed",
    lambda x: (x.mT.reshape(2, 12), x.permute(2, 0, 1).reshape(-1)),
    floats(2, 3, 4),
)
CASES.add(
    "_unsafe_view", lambda x: (aten._unsafe_view(x, [6, 4]), aten.view_copy(x, [3, -1])), floats(2, 3, 4)
)
CASES.add(
    "flatten", lambda x: (x.flatten(), x.flatten(1), x.flatten(0, 1), x.flatten(-2, -1)), floats(2, 3, 4)
)
CASES.add("flatten a number", lambda x: x.sum().flatten(), floats(4))
CASES.add(
    "unflatten",
    lambda x: (x.unflatten(-1, (2, 3)), x.unflatten(0, (-1, 2)), x.unflatten(1, (3, -1))),
    floats(4, 3, 6),
)
CASES.add("permute", lambda x: (x.permute(2, 0, 1), x.permute(-1, -3, -2), x.movedim(0, -1)), floats(2, 3, 4))
CASES.add(
    "permute_copy",
    lambda x: (aten.permute_copy(x, [1, 2, 0]), aten.transpose_copy(x, 0, -1)),
    floats(2, 3, 4),
)
CASES.add("transpose", lambda x: (x.transpose(0, -1), x.transpose(1, 2), x.swapaxes(0, 1)), floats(2, 3, 4))
CASES.add("t", lambda x, y: (x.t(), x.T, y.t() + 1), floats(2, 3), floats(4))
CASES.add("unsqueeze", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(1), x[:, None]), floats(2, 3))
CASES.add("unsqueeze_copy", lambda x: (aten.unsqueeze_copy(x, -2), aten.squeeze_copy(x, 1)), floats(2, 1, 3))
CASES.add(
    "squeeze", lambda x: (x.squeeze(), x.squeeze(1), x.squeeze(-1), x.squeeze((0, -2))), floats(1, 2, 1, 3)
)
CASES.add("squeeze a number", lambda x: x.sum().squeeze(), floats(4))
CASES.add(
    "expand", lambda x: (x.expand(2, 3, 4), x.expand(5, -1, 3, 4), x.expand(-1, -1, 4) * 2), floats(2, 3, 1)
)
CASES.add("expand_copy", lambda x: (aten.expand_copy(x, [2, -1]), aten.broadcast_to(x, [3, 4])), floats(4))
CASES.add("expand_as", lambda x, y: x.expand_as(y) * y, floats(3, 1), floats(2, 3, 4))
CASES.add("broadcast_in_dim", lambda x: torch.ops.prims.broadcast_in_dim(x, [2, 3, 4], [0, 2]), floats(2, 4))
CASES.add("repeat", lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.tile((2,))), floats(2, 3))
CASES.add(
    "repeat_interleave",
    lambda x: (x.repeat_interleave(2, 0), x.repeat_interleave(3, -1), x.repeat_interleave(2)),
    floats(2, 3),
)

CASES.add("slice", lambda x: (x[1:], x[:, 1:-1], x[..., ::2], x[:, -2:], x[1:9:3, :, 1::3]), floats(6, 4, 5))
CASES.add("slice_copy", lambda x: (aten.slice_copy(x, 1, 1, 4, 2), aten.slice(x, -1, -3)), floats(3, 6))
CASES.add("narrow", lambda x: (x.narrow(1, 1, 2), x.narrow(-1, 2, 3)), floats(3, 6))
CASES.add("narrow, an operator", lambda x: aten.narrow(x, 1, 1, 2) * 2, floats(3, 6))
CASES.add(
    "select",
    lambda x: (x[1], x[:, -1], x.select(-1, 2), x[..., 0], aten.select_copy(x, 1, 1)),
    floats(2, 3, 4),
)
CASES.add("split", lambda x: (*x.split(2), *x.split(3, -1), *x.split([1, 3], 1)), floats(5, 4, 6))
CASES.add("split, uneven", lambda x: x.split(4, -1), floats(2, 9))
CASES.add(
    "split_copy",
    lambda x: (*aten.split_copy(x, 2, -1), *aten.split_with_sizes_copy(x, [1, 2], 0)),
    floats(3, 5),
)
CASES.add("chunk", lambda x: (*x.chunk(2), *x.chunk(3, -1), *x.chunk(4, 1)), floats(4, 5, 7))
CASES.add("unbind", lambda x: (*x.unbind(), *x.unbind(-1), *aten.unbind_copy(x, 1)), floats(2, 3, 4))
CASES.add(
    "cat",
    lambda x, y: (torch.cat([x, y], 1), torch.cat([y, x, y], -2), torch.cat([x, x])),
    floats(2, 3, 4),
    floats(2, 1, 4),
)
CASES.add(
    "concat",
    lambda x: (torch.concat([x, x * 2], -1), torch.hstack([x, x]), torch.vstack([x, x])),
    floats(2, 3),
)
CASES.add("cat of kinds", lambda x, n: torch.cat([x, n, torch.ones(2)]), floats(3), integers(4))
CASES.add("cat with an empty vector", lambda x: torch.cat([torch.zeros(0), x], 1), floats(2, 3))
CASES.add("cat, known", lambda x: x * torch.cat([torch.arange(2), torch.arange(3)]), floats(5))
CASES.add(
    "stack",
    lambda x, y: (torch.stack([x, y]), torch.stack([x, y], 1), torch.stack([y, x], -1)),
    floats(2, 3),
    floats(2, 3),
)
CASES.add("flip", lambda x: (x.flip(0), x.flip(-1, 1)), floats(2, 3, 4))
CASES.add("roll", lambda x: (x.roll(1, 0), x.roll((1, -2), (0, -1)), x.roll(3)), floats(3, 4))
CASES.add("tril", lambda x: (x.tril(), x.tril(-1), x.triu(), x.triu(1)), floats(2, 4, 5))
CASES.add(
    "tril, known",
    lambda x: x * torch.ones(4, 4).tril() * torch.ones(4, 4, dtype=torch.bool).triu(-1),
    floats(4, 4),
)
CASES.add(
    "pad",
    lambda x: (
        functional.pad(x, (1, 2)),
        functional.pad(x, (1, 0, 0, 2), value=1.5),
        functional.pad(x, (-1, 1, 2, -2), value=-1.0),
        functional.pad(x, (1, 2), mode="reflect"),
        functional.pad(x, (1, 2), mode="replicate"),
        functional.pad(x, (1, 2), mode="circular"),
    ),
    floats(2, 3, 4),
)
CASES.add("constant_pad_nd", lambda x: aten.constant_pad_nd(x, [1, 0, 2, 1], 0.5), floats(2, 3, 4))
CASES.add(
    "pad of two axes",
    nn.Sequential(nn.ReflectionPad2d((1, 2, 0, 1)), nn.ReplicationPad2d(1)),
    floats(1, 2, 3, 4),
)
CASES.add(
    "pad of three axes", nn.Sequential(nn.ReplicationPad3d(1), nn.CircularPad3d(1)), floats(1, 1, 2, 3, 4)
)
CASES.add(
    "reflection_pad1d",
    lambda x: (aten.reflection_pad1d(x, [1, 2]), aten.replication_pad1d(x, [1, 2])),
    floats(2, 3, 4),
)
CASES.add(
    "reflection_pad2d",
    lambda x: (aten.reflection_pad2d(x, [1, 2, 0, 1]), aten.replication_pad2d(x, [1, 2, 0, 1])),
    floats(2, 3, 4),
)
CASES.add(
    "unfold", lambda x: (x.unfold(1, 3, 2), x.unfold(-1, 2, 1), aten.unfold_copy(x, 0, 2, 1)), floats(2, 7, 4)
)


def _filled(x: Tensor) -> Any:
    made = (
        torch.full((2, 3), 0.5),
        torch.zeros(2, 3),
        torch.ones(2, 3),
        x.new_full((2, 3), 2.5),
        x.new_zeros(2, 3),
        x.new_ones(2, 3),
        torch.full_like(x, -1.5),
        torch.zeros_like(x),
        torch.ones_like(x),
    )
    return *(x + value for value in made), x + aten.scalar_tensor(1.5), x + torch.full((), 3)


CASES.add("full", _filled, floats(2, 3))
CASES.add(
    "full of integers",
    lambda n: (n + torch.ones_like(n), n * torch.full((5,), 3), n + n.new_zeros(5)),
    integers(5),
)
CASES.add(
    "empty",
    lambda x: [
        torch.where(torch.ones_like(x) > 0, x, y)
        for y in (torch.empty(2, 3), torch.empty_like(x), x.new_empty(3))
    ],
    floats(2, 3),
)
CASES.add(
    "masks",
    lambda x: (torch.ones_like(x, dtype=torch.bool), torch.zeros_like(x, dtype=torch.int64)),
    floats(2, 3),
)
CASES.add(
    "arange",
    lambda x: (
        x + torch.arange(4),
        x * torch.arange(1, 5),
        x + torch.arange(1, 9, 2),
        x * torch.arange(0, 0.3, 0.1).sum(),
    ),
    floats(4),
)
CASES.add(
    "arange of floats", lambda x: (x + torch.arange(4.0), x * torch.arange(4, dtype=torch.float32)), floats(4)
)
CASES.add("eye", lambda x: (x + torch.eye(3), (x @ torch.eye(3, 4))), floats(3, 3))
CASES.add("diag_embed", torch.diag_embed, floats(2, 3))
CASES.add("meshgrid", lambda x: torch.meshgrid(x, x * 2, indexing="ij"), floats(3))

# sizes that are not fixed
CASES.add(
    "sizes",
    lambda x: (x.reshape(x.shape[0] * 2, -1), x * x.shape[0], x / x.size(0)),
    floats(4, 6),
    dynamic=True,
)
CASES.add("arange of a size", lambda x: x * torch.arange(x.shape[0])[:, None], floats(4, 6), dynamic=True)
CASES.add(
    "full of a size",
    lambda x: (torch.zeros(x.shape[0], 2) + 1, x.new_ones(x.shape[0])),
    floats(4, 6),
    dynamic=True,
)
CASES.add(
    "slice to a size",
    lambda x: (x[: x.shape[0] // 2], x[:, : x.shape[0] - 1], x[x.shape[0] - 2 :]),
    floats(5, 6),
    dynamic=True,
)
CASES.add("expand to a size", lambda x: x[:1].expand(x.shape[0] + 1, -1), floats(4, 6), dynamic=True)
CASES.add("sym_size", lambda x: x * aten.sym_size.int(x, 0), floats(4, 6), dynamic=True)


def _checked(x: Tensor) -> Tensor:
    torch._check(x.shape[0] > 2)  # type: ignore[no-untyped-call]
    return x + 1


CASES.add("checks of a size", _checked, floats(4, 6), dynamic=True)


def _checked_value(x: Tensor) -> Tensor:
    aten._assert_async.msg((x > -9).all(), "a number below -9")
    return x + 1


CASES.add("_assert_async", _checked_value, floats(4))


def _branches(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: (x + 1, x * 2), lambda x: (x - 1, x.clone()), (x,))


def _known_branches(x: Tensor) -> Any:
    return torch.cond(torch.tensor(3) > 2, lambda x: x + 1, lambda x: x - 1, (x,))


CASES.add("cond, known", _known_branches, floats(3))
CASES.add("cond, true", _branches, floats(3, low=0))
CASES.add("cond, false", _branches, floats(3, high=0))
CASES.add(
    "index", lambda x: (x[torch.tensor([2, 0, -1])], x[:, torch.tensor([[1, 0], [2, 2]])]), floats(3, 4, 5)
)
CASES.add(
    "index by two",
    lambda x: (
        x[torch.tensor([0, 1]), torch.tensor([2, 0])],
        x[torch.tensor([0, 1]), :, torch.tensor([2, 0])],
    ),
    floats(3, 4, 5),
)
CASES.add("index by a mask", lambda x: x[:, torch.tensor([True, False, True, True])], floats(3, 4))
CASES.add("index by an input", lambda n: torch.arange(12.0).reshape(4, 3)[:, n], integers(2, 3, high=3))
CASES.add(
    "index_select",
    lambda x: (x.index_select(1, torch.tensor([2, 0])), x.index_select(-1, torch.tensor([1]))),
    floats(3, 4),
)
CASES.add(
    "gather",
    lambda x: (
        x.gather(1, torch.tensor([[2, 0, 1], [1, 1, 0]])),
        x.gather(0, torch.zeros(1, 4, dtype=torch.int64)),
    ),
    floats(2, 4),
)
CASES.add("gather of fewer rows", lambda x: x.gather(1, torch.tensor([[2, 0, 1]])), floats(2, 4))
CASES.add("take_along_dim", lambda x: torch.take_along_dim(x, torch.tensor([[1], [0]]), 1), floats(2, 4))
CASES.add(
    "masked sums",
    lambda x, b: (x * b.unsqueeze(-1)).sum(1) / b.sum(1, keepdim=True).clamp(min=1),
    floats(2, 3, 4),
    booleans(2, 3),
)
CASES.add("gather at ids of the input", lambda x, n: x.gather(1, n), floats(2, 4), integers(2, 3, high=4))
CASES.add("index by two inputs", lambda n: torch.eye(4)[n, n], integers(3, high=4))
CASES.add("rows of an input", lambda x, n: x[n], floats(4, 3), integers(2, high=4))
