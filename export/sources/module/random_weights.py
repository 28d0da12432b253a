"""Notices that a factory draws the weights of its module at random and loads none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class WeightWatch:
    """What a factory did with weights while it was watched."""

    def __init__(self) -> None:
        self.drew = False
        self.loaded = False

    @property
    def random(self) -> bool:
        """Whether the weights are random, as far as can be seen from outside."""
        return self.drew and not self.loaded


@contextmanager
def watched_weights() -> Iterator[WeightWatch]:
    """Watch PyTorch's random numbers, and whether a state_dict is loaded."""
    watch = WeightWatch()
    load = nn.Module.load_state_dict
    before = torch.get_rng_state()

    def load_and_tell(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        watch.loaded = True
        return load(module, *args, **kwargs)

    nn.Module.load_state_dict = load_and_tell  # type: ignore[assignment, method-assign]
    try:
        yield watch
    finally:
        nn.Module.load_state_dict = load  # type: ignore[method-assign]
        watch.drew = not torch.equal(before, torch.get_rng_state())
