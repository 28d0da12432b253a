"""How good a network is on rows it was not trained on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from models.data.dataset import Split
from models.networks.base import Net

EVALUATION_BATCH_ROWS = 1000


def predict_logits(net: Net, rows: Tensor) -> Tensor:
    """The logits of rows, batch by batch, in eval mode; the net's own mode is put back."""
    was_training = net.training
    net.eval()
    with torch.inference_mode():
        parts = [
            net(to_network_input(net, part.to(net.shift.device))).float().cpu()
            for part in torch.split(rows, EVALUATION_BATCH_ROWS)
        ]
    net.train(was_training)
    return torch.cat(parts)


def evaluate(net: Net, split: Split) -> tuple[float, float]:
    """Mean cross-entropy and accuracy on a split."""
    logits = predict_logits(net, split.x)
    right = int((logits.argmax(1) == split.y).sum())
    return F.cross_entropy(logits, split.y).item(), right / len(split)


def to_network_input(net: Net, rows: Tensor) -> Tensor:
    """Rows as data keeps them (pixels in bytes, say) made what the network reads."""
    return rows if net.reads_ids else rows.float()
