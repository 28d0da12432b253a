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

from tests.support.identity_operators import aten_elementwise, aten_layers, aten_reductions, aten_shapes
from tests.support.identity_operators.aten_case import AtenCase, floats, integers
from tests.support.identity_operators.runs import Interpreters
from turnpike.export.identity.algebra.terms import UndecidedError
from turnpike.export.identity.aten.run_program import OPERATORS

CASES = {**aten_elementwise.CASES, **aten_reductions.CASES, **aten_shapes.CASES, **aten_layers.CASES}
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
    "another norm": (lambda x: x.norm(p=3, dim=0), (floats(3),), "a norm of order 3"),
    "argmax of a constant": (lambda x: x + torch.arange(4).argmax(), (floats(3),), "argmax of a constant"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_what_it_cannot_compute(name: str) -> None:
    network, inputs, message = REFUSALS[name]
    with pytest.raises(UndecidedError, match=message):
        AtenCase(name, network, inputs).run(INTERPRETERS)
