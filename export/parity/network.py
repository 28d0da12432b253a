"""The original network, asked in its own precision and in float64, and left as it was."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from export.errors import UntraceableError
from export.parity.batches import Batch
from export.parity.float64 import copy_of, double, widened
from export.source import Array, Source


class Network:
    """A copy of a module in eval mode, or of the program that came in a module's place."""

    def __init__(self, source: Source) -> None:
        self._inputs = [one.name for one in source.inputs]
        self._in_spec: pytree.TreeSpec | None = None
        if source.module is not None:
            self._module = copy_of(source.module).eval()
        elif source.program is not None:
            with undisturbed():
                self._module = copy_of(source.program.module())
            self._in_spec = source.program.call_spec.in_spec
        else:
            raise UntraceableError("expected a network to compare with, and there is only a graph")
        self._wide: dict[str, Tensor] | None = None

    def own(self, batch: Batch) -> list[Array]:
        """The outputs that are tensors, in order; whatever the network raises comes out as it is."""
        with undisturbed():
            return self._answers(self._module, self.tensors(batch))

    def wide(self, batch: Batch) -> list[Array]:
        """The same in float64."""
        with undisturbed(), double():
            tensors = [widened(tensor) for tensor in self.tensors(batch)]
            return self._answers(lambda *args, **kw: self._with_wide(args, kw), tensors)

    def tensors(self, batch: Batch) -> list[Tensor]:
        """What the network is called with; memory of its own for each, in case the network writes there."""
        return [_tensor(batch.arrays[name], batch.strided) for name in self._inputs]

    def wide_weights(self) -> dict[str, Tensor]:
        """Every parameter and buffer in float64, by name."""
        if self._wide is None:
            self._wide = {name: widened(tensor.detach()) for name, tensor in self._weights().items()}
        return self._wide

    def changed_by(self, batch: Batch) -> str | None:
        """The name of a parameter or buffer that a run leaves other than it was; None where all stay."""
        before = self._digests()
        self.own(batch)
        changed = before.items() ^ self._digests().items()
        return min((name for name, _ in changed), default=None)

    def _digests(self) -> dict[str, object]:
        return {
            name: (tensor.dtype, tensor.shape, zlib.crc32(tensor.detach().contiguous().numpy().data))
            for name, tensor in self._weights().items()
        }

    def _weights(self) -> dict[str, Tensor]:
        return {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}

    def _with_wide(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return functional_call(self._module, self.wide_weights(), args, kwargs)

    def _answers(self, call: Callable[..., Any] | nn.Module, tensors: list[Tensor]) -> list[Array]:
        args, kwargs = tensors, dict[str, Any]()
        if self._in_spec is not None:
            args, kwargs = pytree.tree_unflatten(tensors, self._in_spec)
        given = pytree.tree_leaves(call(*args, **kwargs))
        return [leaf.detach().numpy() for leaf in given if isinstance(leaf, Tensor)]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run a network without gradients and warnings, and without a trace in torch's random numbers."""
    with torch.no_grad(), warnings.catch_warnings(action="ignore"), torch.random.fork_rng(devices=[]):
        # each run draws its own random numbers, so that a network that uses them is found out
        torch.seed()
        yield


def _tensor(array: Array, strided: bool) -> Tensor:
    tensor = torch.from_numpy(array.copy())
    return torch.stack([tensor, tensor], dim=-1)[..., 0] if strided else tensor
