"""Evaluation: what a network answers on given rows, the loss, and how good the answers are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.networks.base import Net

EVALUATION_BATCH_ROWS = 1000  # limits memory; the result does not depend on it


def predict_logits(net: Net, rows: Tensor, batch_rows: int = EVALUATION_BATCH_ROWS) -> Tensor:
    """Return the outputs for rows, computed batch by batch in eval mode; the network's mode is restored."""
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


def loss_of(net: Net, outputs: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """The mean cross-entropy, or the mean square error in standard deviations of the training's numbers.

    With weights of classes, the cross-entropy of each row is multiplied by that of its class.
    """
    if net.config.classes == 1:
        return F.mse_loss(outputs[:, 0] / net.target_scale, y / net.target_scale)
    if class_weights is None:
        return F.cross_entropy(outputs, y)
    return (F.cross_entropy(outputs, y, reduction="none") * class_weights[y]).mean()


def evaluate(
    net: Net,
    split: Split,
    batch_rows: int = EVALUATION_BATCH_ROWS,
    *,
    class_weights: Tensor | None = None,
    rarest_class: int | None = None,
) -> dict[str, float]:
    """Return the loss and how good the answers are on a split.

    These are "accuracy" for classes, and "r2" and "mae" (the mean absolute error) for numbers.

    Args:
        net: The network.
        split: The rows.
        batch_rows: Rows that are computed at a time.
        class_weights: What the loss of a row of each class is multiplied by.
        rarest_class: If given, "balanced_accuracy" (the mean share of right answers in each class) and
            "rarest_recall" (the share in this class, if the split has it) are computed, too.
    """
    outputs = predict_logits(net, split.x, batch_rows)
    device = net.shift.device
    with torch.no_grad():
        loss = loss_of(net, outputs.to(device), split.y.to(device), class_weights).item()
    if net.config.classes == 1:
        numbers = outputs[:, 0]
        mae = (numbers.double() - split.y.double()).abs().mean().item()
        return {"loss": loss, "r2": r2(numbers, split.y), "mae": mae}
    right = outputs.argmax(1) == split.y
    scores = {"loss": loss, "accuracy": int(right.sum()) / len(split)}
    if rarest_class is not None:
        rows = torch.bincount(split.y, minlength=net.config.classes).double()
        recalls = torch.bincount(split.y[right], minlength=net.config.classes) / rows
        scores["balanced_accuracy"] = recalls.nanmean().item()  # NaN for a class without rows
        if rows[rarest_class] > 0:
            scores["rarest_recall"] = recalls[rarest_class].item()
    return scores


def baseline(data: Dataset) -> dict[str, float]:
    """How good a constant answer is on the test rows: the commonest class, or the mean, of training rows."""
    if data.task == "number":
        mean = data.train.y.double().mean()
        return {"baseline_mae": (data.test.y.double() - mean).abs().mean().item()}
    commonest = int(data.class_counts.argmax())
    return {"baseline_accuracy": int((data.test.y == commonest).sum()) / len(data.test)}


def r2(predicted: Tensor, true: Tensor) -> float:
    """The share of the variance that is predicted: 1 for all of it, 0 for no better than the mean."""
    numbers, errors = true.double(), (predicted.double() - true.double()).square().sum()
    total = (numbers - numbers.mean()).square().sum()
    return 1 - (errors / total).item() if total > 0 else float(errors == 0)


def to_network_input(net: Net, rows: Tensor) -> Tensor:
    """Convert rows from the data set's dtype (bytes for pixels) to the dtype that the network reads."""
    return rows if net.reads_ids else rows.float()
