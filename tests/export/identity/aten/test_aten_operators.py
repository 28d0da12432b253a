"""Each ATen operator of export/identity, run in float64, computes what PyTorch computes.

Both interpreters share the operators of export/identity/algebra. An error in these would change both sides
of a decision in the same way, so that only a comparison with other implementations finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.identity_operators import (
    aten_elementwise,
    aten_layers,
    aten_reductions,
    aten_shapes,
    aten_writes,
)
from tests.support.identity_operators.aten_case import AtenCase, booleans, floats, integers
from tests.support.identity_operators.runs import Interpreters
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError
from turnpike.export.identity.aten.run_program import OPERATORS

CASES = {
    **aten_elementwise.CASES,
    **aten_reductions.CASES,
    **aten_shapes.CASES,
    **aten_layers.CASES,
    **aten_writes.CASES,
}
INTERPRETERS = Interpreters.load()


@pytest.mark.parametrize("name", CASES)
def test_float64_run_equals_pytorch(name: str) -> None:
    assert CASES[name].difference(INTERPRETERS) is None


def test_cases_have_every_operator() -> None:
    found: set[str] = set()
    for case in CASES.values():
        found |= case.run(INTERPRETERS)[0].operators
    assert OPERATORS.keys() - found == REFUSED_OPERATORS


# operators that are only known to say why nothing is decided
REFUSED_OPERATORS = {"linspace"}
REFUSALS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "an operator without a table": (lambda x: x.median(0)[0], (floats(4),), "median"),
    "linspace": (lambda x: x + torch.linspace(0, 1, 4), (floats(4),), "linspace, which rounds"),
    "dropout": (lambda x: functional.dropout(x, 0.5, training=True), (floats(4),), "training mode"),
    "batch norm": (
        lambda x: functional.batch_norm(x, None, None, training=True),
        (floats(4, 3),),
        "of the batch",
    ),
    "instance norm": (
        nn.InstanceNorm1d(3, track_running_stats=True),
        (floats(2, 3, 4),),
        "running statistics",
    ),
    "grouped attention": (
        lambda q, k: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (floats(1, 4, 3, 5), floats(1, 2, 3, 5)),
        "enable_gqa",
    ),
    "bits": (lambda n: n & 3, (integers(4),), "bitwise_and of integers"),
    "uneven pooling": (nn.AdaptiveAvgPool1d(3), (floats(2, 3, 7),), "unequal windows"),
    "projections": (nn.LSTM(3, 4, proj_size=2), (floats(5, 2, 3),), "projections"),
    "another diagonal": (lambda x: torch.diag_embed(x, 1), (floats(3),), "diag_embed"),
    "numbers of another mask": (
        lambda x, b: x.index_put((b,), x[x > 0]),
        (torch.tensor([1.0, -1.0, 2.0]), torch.tensor([True, True, False])),
        "where one mask holds are written where another one does",
    ),
    "numbers of a mask in other places": (
        lambda x, b: x.index_put((torch.tensor([0, 1]),), x[b]),
        (floats(3), torch.tensor([True, False, True])),
        "are written to other places",
    ),
    "a number for each true place": (
        lambda x, b, y: x.index_put((b,), y),
        (floats(3), torch.tensor([True, False, True]), floats(2)),
        "a number for each place where a mask",
    ),
    "an axis of a mask": (lambda x, b: x[:, b].sum(), (floats(2, 3), booleans(3)), "behind other axes"),
    "a result of unknown length": (lambda x: x[x > 0], (floats(3),), "a length that depends on the input"),
    "a sort under a mask": (
        lambda x: x[x > 0].sort()[0].sum(),
        (floats(3),),
        "sort of a tensor whose length",
    ),
    "a sum within rows under a mask": (
        lambda x, b: x.index_put((b,), x[b].sum(-1, keepdim=True)),
        (floats(3, 4), booleans(3)),
        "a sum within each of the numbers",
    ),
    "a softmax under a mask": (
        lambda x, b: x.index_put((b,), x[b].softmax(0)),
        (floats(3, 4), booleans(3)),
        "_?softmax of a tensor whose length",
    ),
    "places of an input": (lambda x: x + x.nonzero().sum(), (floats(3),), "the number of places where"),
    "two writes to one place": (
        lambda x, y: x.index_put((torch.tensor([1, 1]),), y),
        (floats(3), floats(2)),
        "different numbers to one place",
    ),
    "scatter_reduce of means": (
        lambda x: x.scatter_reduce(0, torch.tensor([0, 1]), x, "mean"),
        (floats(3),),
        "scatter_reduce by mean",
    ),
    "scatter_reduce without numbers": (
        lambda x: x.scatter_reduce(0, torch.tensor([0, 1]), x, "amax", include_self=False),
        (floats(3),),
        "by amax without the numbers",
    ),
    "a known mask": (
        lambda x: x.masked_scatter(torch.tensor([True, False, True]), x),
        (floats(3),),
        "masked_scatter with a known mask",
    ),
    "argmax of a constant": (lambda x: x + torch.arange(4).argmax(), (floats(3),), "argmax of a constant"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_what_it_cannot_compute(name: str) -> None:
    network, inputs, message = REFUSALS[name]
    with pytest.raises(UndecidedError, match=message):
        AtenCase(name, network, inputs).run(INTERPRETERS)
