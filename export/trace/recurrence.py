"""Recurrent layers of PyTorch at any length: kept whole while tracing, as ONNX has an operator for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._decomp import decomposition_table

KEPT = (torch.ops.aten.gru.input, torch.ops.aten.lstm.input)


@contextlib.contextmanager
def any_length() -> Iterator[None]:
    """Tell torch.export the shapes that nn.GRU and nn.LSTM answer with, while the block runs.

    Left to itself it finds them by stepping through time, which fixes the number of steps.
    """
    own = {torch._C.DispatchKey.CompositeImplicitAutograd: shapes}
    with contextlib.ExitStack() as patched:
        patched.enter_context(patch.dict(decomposition_table, dict.fromkeys(KEPT, shapes)))
        for operator in KEPT:
            patched.callback(operator._dispatch_cache.clear)
            patched.enter_context(patch.dict(operator.py_kernels, own, clear=True))
            operator._dispatch_cache.clear()
        yield


def shapes(
    x: Tensor,
    state: Tensor | list[Tensor],
    weights: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """What a recurrent layer answers with, but for the values: outputs, then each state."""
    states = [state] if isinstance(state, Tensor) else state
    units = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty((*x.shape[:2], units)), *(torch.empty_like(one) for one in states))
