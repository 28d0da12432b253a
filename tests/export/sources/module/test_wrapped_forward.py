"""A module gets another forward, and stays what it is otherwise."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from turnpike.export.sources.module.wrapped_forward import wrap_forward


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.layer(x) * scale


def doubled(forward: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    return 2 * forward(*args, **kwargs)


@pytest.mark.parametrize("same_arguments", [True, False])
def test_the_new_forward_calls_the_old_one(same_arguments: bool) -> None:
    """Weights keep their names, and a copy uses its own weights."""
    net, x = Net(), torch.ones(1, 2)
    expected, names = net(x, scale=3.0), list(net.state_dict())
    wrapped = wrap_forward(net, doubled, same_arguments=same_arguments)
    assert torch.equal(wrapped(x, scale=3.0), 2 * expected)
    assert list(wrapped.state_dict()) == names
    assert isinstance(wrapped, Net)
    assert type(wrapped).__name__ == "Net"
    other = copy.deepcopy(wrapped)
    nn.init.zeros_(other.layer.weight)
    nn.init.zeros_(other.layer.bias)
    assert not other(x).any()
    parameters = list(inspect.signature(wrapped.forward).parameters)
    assert parameters == (["x", "scale"] if same_arguments else ["args", "kwargs"])
