"""Evaluation: what a network answers on given rows, the loss, and how good the answers are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from turnpike.models.data.dataset import Split
from turnpike.models.networks.base import Net

EVALUATION_BATCH_ROWS = 1000  # limits memory; the result does not depend on it


def predict_logits(net: Net, rows: Tensor, batch_rows: int = EVALUATION_BATCH_ROWS) -> Tensor:
    """Return the outputs for rows, computed batch by batch in eval mode; the network's own mode is restored."""
    was_training = net.training
    net.eval()
    with torch.inference_mode():
        logits = [
            net(to_network_input(net, batch.to(net.shift.device))).float().cpu()
            for batch in torch.split(rows, batch_rows)
        ]
    net.train(was_training)
    return torch.cat(logits)


def metric_of(net: Net) -> str:
    """How the answers of a network are judged: "accuracy" of classes, or "r2" of numbers."""
    return "accuracy" if net.config.classes > 1 else "r2"


def loss_of(net: Net, outputs: Tensor, y: Tensor) -> Tensor:
    """The mean cross-entropy, or the mean square error in standard deviations of the training's numbers."""
    if net.config.classes > 1:
        return F.cross_entropy(outputs, y)
    return F.mse_loss(outputs[:, 0] / net.target_scale, y / net.target_scale)


def evaluate(net: Net, split: Split, batch_rows: int = EVALUATION_BATCH_ROWS) -> tuple[float, float]:
    """Return the loss, and the accuracy or R2, on a split."""
    outputs = predict_logits(net, split.x, batch_rows)
    with torch.no_grad():
        loss = loss_of(net, outputs.to(net.shift.device), split.y.to(net.shift.device)).item()
    if net.config.classes > 1:
        return loss, int((outputs.argmax(1) == split.y).sum()) / len(split)
    return loss, r2(outputs[:, 0], split.y)


def r2(predicted: Tensor, true: Tensor) -> float:
    """The share of the variance that is predicted: 1 for all of it, 0 for no better than the mean."""
    numbers, errors = true.double(), (predicted.double() - true.double()).square().sum()
    total = (numbers - numbers.mean()).square().sum()
    return 1 - (errors / total).item() if total > 0 else float(errors == 0)


def to_network_input(net: Net, rows: Tensor) -> Tensor:
    """Convert rows from the data set's dtype (bytes for pixels) to the dtype that the network reads."""
    return rows if net.reads_ids else rows.float()
