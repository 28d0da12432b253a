"""How good answers are: accuracy, cross entropy, and how many changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Score:
    """The share of answers that are right, and the mean cross entropy in nats."""

    accuracy: float
    loss: float


def is_classification(output: Array, classes: Array | None) -> bool:
    """Whether an output is a number for each class of each row (or word) whose class is known."""
    return (
        classes is not None
        and output.dtype.kind == "f"
        and output.ndim >= 2
        and output.shape[:-1] == classes.shape
        and output.shape[-1] >= 2
        and classes.size > 0
        and bool(np.isfinite(output).all())
        and 0 <= int(classes.min()) <= int(classes.max()) < output.shape[-1]
    )


def are_probabilities(output: Array) -> bool:
    """Whether an output has been through a softmax: its values lie from 0 to 1 and add up to 1."""
    return bool((output >= 0).all() and (output <= 1).all() and np.allclose(output.sum(-1), 1, atol=1e-3))


def score(output: Array, classes: Array, *, probabilities: bool) -> Score:
    """Accuracy and loss of logits, or of probabilities."""
    values = output.astype(np.float64).reshape(-1, output.shape[-1])
    right = classes.reshape(-1)
    at = (np.arange(len(right)), right)
    if probabilities:
        # no probability is smaller than what single precision can hold
        losses = -np.log(np.maximum(values[at], np.finfo(np.float32).tiny))
    else:
        top = values.max(-1, keepdims=True)
        losses = np.log(np.exp(values - top).sum(-1)) - (values[at] - top[:, 0])
    return Score(float((values.argmax(-1) == right).mean()), float(losses.mean()))


def share_changed(output: Array, was: Array) -> float:
    """The share of answers that are other classes than they were."""
    return float((output.argmax(-1) != was.argmax(-1)).mean())
