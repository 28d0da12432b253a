"""The gate budget: a penalty on open gates, which makes a network transform little and carry the rest.

A unit whose gate hardly ever opens can be removed, because it passes its input on: see `turnpike compress`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from turnpike.models.errors import ConfigError
from turnpike.models.layers.gate import GatedJoin


class GatePenalty:
    """Sums the mean transform gate T over the gated layers of a network, in its training passes.

    A recurrent layer is called once per time step; its mean is over all calls of a pass.
    """

    def __init__(self, net: nn.Module) -> None:
        """Watch the gates of `net` from now on; a ConfigError if it has none."""
        self._layers: list[list[Tensor]] = []
        for module in net.modules():
            if isinstance(module, GatedJoin):
                means: list[Tensor] = []
                self._layers.append(means)
                module.gate.register_forward_hook(_append_mean_to(means))
        if not self._layers:
            raise ConfigError("gate budget: expected a network with gates, and this one has none")

    def take(self) -> Tensor:
        """The sum for the pass since the last call, with its gradient."""
        layer_means = [torch.stack(means).mean() for means in self._layers]
        for means in self._layers:
            means.clear()
        return torch.stack(layer_means).sum()


def _append_mean_to(means: list[Tensor]) -> Callable[[nn.Module, Any, Tensor], None]:
    def append(module: nn.Module, arguments: Any, t: Tensor) -> None:
        if module.training:
            means.append(t.float().mean())

    return append
