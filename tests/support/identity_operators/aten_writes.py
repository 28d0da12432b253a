"""Cases of ATen operators that write into tensors, and of numbers where a mask holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.support.identity_operators.aten_case import AtenCases, booleans, floats, integers

CASES = AtenCases()
aten = torch.ops.aten
known = torch.tensor

CASES.add(
    "copy",
    lambda x, y: (aten.copy(x, y), aten.copy(x, y[0]), aten.copy(x, known(2))),
    floats(2, 3),
    floats(2, 3),
)
CASES.add("fill", lambda x, y: (aten.fill(x, 2), aten.fill(x, y)), floats(2, 3), floats())


def written_in_place(x: Tensor, y: Tensor) -> Tensor:
    out = torch.zeros(3, 8)
    out[:, :4] = x
    out[1:, -1] = y[:2, 0]
    out[:, 5] = 2
    out[0] *= 3
    return out


CASES.add("written in place", written_in_place, floats(3, 4), floats(3, 4))
CASES.add(
    "slice_scatter",
    lambda x, y: (
        torch.slice_scatter(x, y[:, :2], 1, 1, 3),
        torch.slice_scatter(x, y[:, :2], -1, -3, None, 2),
        torch.slice_scatter(x, y[:1], 0, 2, 9),
    ),
    floats(3, 4),
    floats(3, 4),
)
CASES.add(
    "slice_scatter of integers",
    lambda n: (
        torch.slice_scatter(torch.zeros(4).long(), n, 0, 1, 3),
        n.new_zeros(3).slice_scatter(n, 0, 0, 2),
    ),
    integers(2),
)
CASES.add(
    "select_scatter",
    lambda x, y: (torch.select_scatter(x, y[:, 0], 1, 2), torch.select_scatter(x, y[0], 0, -1)),
    floats(3, 4),
    floats(3, 4),
)
CASES.add(
    "index_put",
    lambda x, y: (
        x.index_put((known([2, 0]),), y[:2]),
        x.index_put((known([2, -1]), known([0, 3])), y[0, :2]),
        x.index_put((known([[1], [2]]), known([[0, 3]])), y[:2, :2]),
        x.index_put((known([0]),), known(5.0)),
    ),
    floats(3, 4),
    floats(3, 4),
)
CASES.add(
    "index_put in later axes",
    lambda x, y: (
        aten.index_put(x, [None, known([2, 0])], y[:, :2]),
        aten.index_put(x, [None, None, known([1, 0])], y[..., :2]),
        aten.index_put(x, [None, known([2, 0]), known([1, 3])], y[:, 0, :2]),
        aten.index_put(x, [known([1, 0]), None, known([1, 3])], y[:, :, 0]),
        aten.index_put(x, [None, known([[2, 0]])], y[:, None, :2]),
        aten._unsafe_index_put(x, [known([1])], y[:1]),
    ),
    floats(2, 3, 4),
    floats(2, 3, 4),
)
CASES.add(
    "index_put at a known mask",
    lambda x, y: aten.index_put(x, [None, known([True, False, True])], y[:, :2]),
    floats(2, 3, 4),
    floats(2, 3, 4),
)
CASES.add(
    "index_put, added",
    lambda x, y: (
        x.index_put((known([2, 0, 2, 2]),), y, accumulate=True),
        aten.index_put(x, [None, known([1, 1])], y[:3, :2], True),
    ),
    floats(3, 5),
    floats(4, 5),
)
CASES.add(
    "index_put at ids of the input",
    lambda x, y, n: (
        x.index_put((n,), y[:2]),
        x.index_put((known([0, 2]), n), y[:2, 0]),
        aten.index_put(x, [None, n], y[:3, :2]),
        x.index_put((n,), known(1.5)),
    ),
    floats(3, 4),
    floats(3, 4),
    known([2, 0]),
)
CASES.add(
    "index_put at equal ids of the input",
    lambda x, y, n: (
        x.index_put((n,), y[:3], accumulate=True),
        x.index_put((n, n), y[:, 0], accumulate=True),
    ),
    floats(3, 4),
    floats(3, 4),
    known([2, 0, 2]),
)
CASES.add(
    "index_put of a flag",
    lambda x, n: torch.where((x > 0).index_put((n,), known(True)), x, 0),
    floats(5),
    known([2, 0]),
)
CASES.add(
    "index_put of integers into flags",
    lambda x, n: (x > 0).long().index_put((known([1, 2]),), n + 2),
    floats(5),
    integers(2),
)
CASES.add("index_add", lambda x, y: x.index_add(1, known([0, 2, 2]), y, alpha=2), floats(3, 4), floats(3, 3))
CASES.add("index_copy", lambda x, y: x.index_copy(0, known([2, 0]), y), floats(3, 4), floats(2, 4))
CASES.add("index_fill", lambda x: x.index_fill(1, known([2, 0]), 1.5), floats(3, 4))
columns = known([[0, 2], [1, 3]])
CASES.add(
    "scatter.src",
    lambda x, y: (
        x.scatter(1, columns, y),
        x.scatter(0, columns[:, :1] % 3, y),
        x.scatter(-1, columns[:1], y),
    ),
    floats(3, 4),
    floats(3, 4),
)
CASES.add(
    "scatter.value",
    lambda x: (x.scatter(1, columns, 1.5), x.scatter(1, columns, 2), x.scatter(1, columns * 0, 2.5)),
    floats(3, 4),
)
CASES.add(
    "scatter_add", lambda x, y: x.scatter_add(1, known([[0, 2, 2], [1, 1, 1]]), y), floats(3, 4), floats(3, 4)
)
CASES.add(
    "scatter at ids of the input",
    lambda x, y, n: (
        x.scatter(1, n, y),
        x.scatter(0, n % 3, y),
        x.scatter(1, n, 0.5),
        x.scatter_add(1, n, y),
    ),
    floats(3, 4),
    floats(3, 4),
    known([[1, 3, 0], [2, 1, 0]]),
)
CASES.add(
    "scatter_add at equal ids of the input",
    lambda x, y, n: (x.scatter_add(1, n, y), x.scatter_add(0, n, y)),
    floats(3, 4),
    floats(3, 4),
    known([[1, 1, 1], [2, 1, 2]]),
)
for reduction in ("sum", "prod", "amax", "amin"):
    for include_self in (True, False) if reduction in ("sum", "prod") else (True,):
        CASES.add(
            f"scatter_reduce {reduction} {include_self}",
            lambda x, y, n, how=reduction, both=include_self: (
                x.scatter_reduce(1, known([[0, 2, 2], [1, 1, 1]]), y, how, include_self=both),
                x.scatter_reduce(1, n, y, how, include_self=both),
            ),
            floats(3, 4),
            floats(3, 4),
            known([[1, 1, 1], [2, 1, 2]]),
        )
CASES.add(
    "masked_scatter",
    lambda x, b, y: (x.masked_scatter(b, y), x.masked_scatter(b[:, :1], y), x.masked_scatter(x > 0, y)),
    floats(3, 4),
    booleans(3, 4),
    floats(4, 5),
)
fold: dict[str, Any] = {"stride": (1, 2), "padding": (1, 0), "dilation": (2, 1)}
CASES.add(
    "col2im",
    lambda x: (functional.fold(x, (5, 6), (2, 3), **fold), functional.fold(x[0], (5, 6), (2, 3), **fold)),
    floats(2, 12, 10),
)
CASES.add("unfold and fold", lambda x: functional.fold(functional.unfold(x, 3), 5, 3), floats(2, 3, 5, 5))
CASES.add(
    "diagonal",
    lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-1, 0, 2), aten.diagonal_copy(x, 0, -1, -2)),
    floats(3, 4, 5),
)

CASES.add("index_put under a mask", lambda x, b: x.index_put((b,), known(1.5)), floats(3, 4), booleans(3, 4))
CASES.add(
    "rows under a mask",
    lambda x, b, y: (x.index_put((b,), y), x.index_put((b,), y, accumulate=True)),
    floats(3, 4),
    booleans(3),
    floats(4),
)
CASES.add(
    "a flag under a mask",
    lambda x, b: torch.where((x > 0).index_put((b,), known(True)), x, 0),
    floats(5),
    booleans(5),
)


def changed_under_mask(x: Tensor, b: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    a, c, d = x.clone(), x.clone(), x.clone()
    a[b] = torch.sigmoid(y[b]) * 2 + x[b]
    c[b[:, 0]] *= y[0]
    d[b] += 1.5
    return a, c, d


CASES.add(
    "numbers under a mask",
    changed_under_mask,
    floats(3, 4),
    known([[True, False] * 2] * 2 + [[False] * 4]),
    floats(3, 4),
)


def rows_under_mask(x: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """As experts compute their rows."""
    weight = torch.arange(16.0).view(4, 4) / 10
    a, c = x.clone(), x.clone()
    a[b] = functional.layer_norm(torch.relu(x[b] @ weight), (4,))
    c[b] = functional.linear(x[b], weight, weight[0]).softmax(-1)
    return a, c


CASES.add("layers of rows under a mask", rows_under_mask, floats(3, 4), known([True, False, True]))
CASES.add(
    "sums under a mask",
    lambda x, b: (
        x[b].sum(),
        x[b].mean(),
        x[b[:, 0]].sum(0),
        x[b[:, 0]].mean(0),
        x[b[:, 0]].mean(),
        x[b].exp().sum() + x,
    ),
    floats(3, 4),
    known([[True, False] * 2] * 2 + [[False] * 4]),
)
CASES.add("nonzero", lambda x: x + known([0, 2, 0, 1]).nonzero().sum(), floats(3))
