"""Cases of ATen reductions: axes of either sign, several axes, and kept axes."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.support.identity_operators.aten_case import AtenCases, booleans, floats, integers

CASES = AtenCases()
# all rows of three booleans
EVERY_ROW = torch.cartesian_prod(*(torch.tensor([False, True]) for _ in range(3)))
aten = torch.ops.aten

for function in (torch.sum, torch.mean, torch.amax, torch.amin, torch.logsumexp, torch.std, torch.var):
    CASES.add(
        function.__name__,
        lambda x, run=function: (run(x, 1), run(x, -1), run(x, (0, -1)), run(x, -2, keepdim=True)),
        floats(2, 3, 4),
    )
    CASES.add(
        f"{function.__name__} of all and of two",
        lambda x, run=function: (run(x, (0, 1, 2)), run(x, (2, 1)), run(x[:, :2], 1)),
        floats(2, 3, 4),
    )
CASES.add("sum and mean of all", lambda x: (x.sum(), x.mean(), x.max(), x.min(), x.prod()), floats(3, 4))
CASES.add("sum, integers", lambda n: (n.sum(), n.sum(1), n.amax(1), n.amin(0), n.prod(1)), integers(3, 4))
CASES.add("sum, known", lambda x: x * torch.arange(12).reshape(3, 4).sum(0), floats(4))
CASES.add("amax, known", lambda x: x * torch.arange(12).reshape(3, 4).amax(1), floats(3))
CASES.add("mean, known", lambda x: x * torch.arange(12.0).reshape(3, 4).mean(1, keepdim=True), floats(3, 1))
CASES.add(
    "var, correction", lambda x: (x.var(1, correction=0), x.var(1, unbiased=False), x.var()), floats(3, 4)
)
CASES.add(
    "std, correction", lambda x: (x.std(1, correction=2), x.std(1, unbiased=False), x.std()), floats(3, 4)
)
CASES.add(
    "var_mean", lambda x: (*torch.var_mean(x, 1), *torch.var_mean(x, -1, correction=0)), floats(2, 3, 4)
)
CASES.add("std_mean", lambda x: torch.std_mean(x, 1, keepdim=True), floats(2, 3, 4))
CASES.add(
    "prims.sum",
    lambda x: (torch.ops.prims.sum(x, [1, 2]), torch.ops.prims.sum(x, [0])),
    floats(2, 3, 4),
)
CASES.add("logcumsumexp", lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)), floats(2, 3, 4))
CASES.add(
    "norms of other orders",
    lambda x: (x.norm(3, 1), x.norm(4, -1, True), x.norm(2.5, 0), x.norm(-1, 1), (x * (x > 0)).norm(0, 1)),
    floats(2, 3, 4),
)
CASES.add("prims.var", lambda x: torch.ops.prims.var(x, [1, 2], 0.0), floats(2, 3, 4))
CASES.add("max of an axis", lambda x: (x.max(1)[0], x.max(-1, keepdim=True)[0], x.min(0)[0]), floats(2, 3, 4))
CASES.add("max and its index", lambda x: (*x.max(1), *x.max(-1, keepdim=True)), floats(2, 3, 4))
CASES.add("min and its index", lambda x: (*x.min(1), *x.min(-1, keepdim=True)), floats(2, 3, 4))
CASES.add("argmax", lambda x: (x.argmax(1), x.argmax(-1, keepdim=True), x.argmax()), floats(2, 3, 4))
CASES.add("argmin", lambda x: (x.argmin(1), x.argmin(-1, keepdim=True), x.argmin()), floats(2, 3, 4))
CASES.add("argmax of ties", lambda x: (x.argmax(1), x.argmin(1)), integers(9, 4, high=2).float())
CASES.add("any", lambda b: (b.any(), b.any(1), b.any(-1, keepdim=True)), EVERY_ROW)
CASES.add("all", lambda b: (b.all(), b.all(1), b.all(-1, keepdim=True)), EVERY_ROW)
CASES.add("any of numbers", lambda x: (x.any(1), x.all(1), x[:, :2].any(1)), integers(9, 4, high=2).float())
CASES.add("any, known", lambda x: x * (torch.eye(3, 4) > 0).any(0) * (torch.ones(3, 4) > 0).all(0), floats(4))
CASES.add("any of two axes", lambda b: (torch.any(b, (1, 2)), torch.all(b, (0, 2))), booleans(2, 3, 2))
CASES.add("prod", lambda x: (x.prod(1), x.prod(-1, keepdim=True)), floats(2, 3, 4))
CASES.add("softmax", lambda x: (x.softmax(-1), x.softmax(1), functional.softmin(x, 0)), floats(2, 3, 4))
CASES.add("log_softmax", lambda x: (x.log_softmax(-1), x.log_softmax(1)), floats(2, 3, 4))
CASES.add(
    "_softmax", lambda x: (aten._softmax(x, 1, False), aten._log_softmax(x, -1, False)), floats(2, 3, 4)
)
CASES.add(
    "softmax of masks", lambda x, b: x.masked_fill(b, -torch.inf).softmax(-1), floats(2, 9), booleans(9)
)
CASES.add("cumsum", lambda x: (x.cumsum(0), x.cumsum(-1), x.cumsum(1)), floats(2, 3, 4))
CASES.add("cumsum, integers", lambda n: n.cumsum(1), integers(3, 4))
CASES.add(
    "cumsum, known", lambda x: x * torch.arange(4).cumsum(0) * (torch.arange(4) > 1).cumsum(-1), floats(4)
)
CASES.add(
    "norms",
    lambda x: (x.norm(dim=-1), x.norm(p=1, dim=1, keepdim=True), torch.linalg.vector_norm(x, 2, (0, 1))),
    floats(2, 3, 4),
)
CASES.add(
    "normalize", lambda x: (functional.normalize(x, dim=-1), functional.normalize(x, 1.0, 0)), floats(3, 4)
)
CASES.add("topk", lambda x: x.topk(2), floats(3, 5))
CASES.add("topk of the smallest", lambda x: x.topk(2, dim=0, largest=False), floats(5, 3))
CASES.add("sort", lambda x: x.sort(-1), floats(3, 5))
CASES.add("sort descending", lambda x: x.sort(0, descending=True), floats(5, 3))
