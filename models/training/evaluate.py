"""Evaluation: logits, loss and accuracy of a network on given rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from turnpike.models.data.dataset import Split
from turnpike.models.networks.base import Net

EVALUATION_BATCH_ROWS = 1000  # limits memory; the result does not depend on it


def predict_logits(net: Net, rows: Tensor, batch_rows: int = EVALUATION_BATCH_ROWS) -> Tensor:
    """Return the logits of rows, computed batch by batch in eval mode; the network's own mode is restored."""
    was_training = net.training
    net.eval()
    with torch.inference_mode():
        logits = [
            net(to_network_input(net, batch.to(net.shift.device))).float().cpu()
            for batch in torch.split(rows, batch_rows)
        ]
    net.train(was_training)
    return torch.cat(logits)


def evaluate(net: Net, split: Split, batch_rows: int = EVALUATION_BATCH_ROWS) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy on a split."""
    logits = predict_logits(net, split.x, batch_rows)
    correct = int((logits.argmax(1) == split.y).sum())
    return F.cross_entropy(logits, split.y).item(), correct / len(split)


def to_network_input(net: Net, rows: Tensor) -> Tensor:
    """Convert rows from the data set's dtype (bytes for pixels) to the dtype that the network reads."""
    return rows if net.reads_ids else rows.float()
