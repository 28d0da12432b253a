"""How good a network is on rows it was not trained on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from models.data import Split
from models.net import Net

EVALUATION_ROWS = 1000


def evaluate(net: Net, split: Split, device: torch.device | str = "cpu") -> tuple[float, float]:
    """Mean cross-entropy and accuracy on a split, in eval mode; the net's own mode is put back."""
    was_training = net.training
    net.eval()
    loss, right = 0.0, 0
    with torch.inference_mode():
        for x, y in _batches(split):
            logits = net(as_input(net, x.to(device)))
            loss += F.cross_entropy(logits, y.to(device), reduction="sum").item()
            right += int((logits.argmax(1) == y.to(device)).sum())
    net.train(was_training)
    return loss / len(split), right / len(split)


def _batches(split: Split) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(split), EVALUATION_ROWS):
        rows = slice(start, start + EVALUATION_ROWS)
        yield split.x[rows], split.y[rows]


def as_input(net: Net, rows: Tensor) -> Tensor:
    """Rows as data keeps them (pixels in bytes, say) made what the network reads."""
    return rows if net.reads_ids else rows.float()
