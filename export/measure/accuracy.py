"""Accuracy and cross entropy of a classifier's output, and the share of answers that changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Score:
    """Share of correct answers, and mean cross entropy in nats."""

    accuracy: float
    loss: float


def is_classification(output: Array, classes: Array | None) -> bool:
    """Whether an output has one finite number per class for each row (or word), and all classes fit."""
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
    """Whether an output has been through a softmax: values from 0 to 1 that add up to 1."""
    return bool((output >= 0).all() and (output <= 1).all() and np.allclose(output.sum(-1), 1, atol=1e-3))


def score(output: Array, classes: Array, *, probabilities: bool) -> Score:
    """Accuracy and loss of logits or probabilities."""
    values = output.astype(np.float64).reshape(-1, output.shape[-1])
    expected = classes.reshape(-1)
    at = (np.arange(len(expected)), expected)
    if probabilities:
        # a probability of 0 counts as the smallest normal float32, so that the loss stays finite
        losses = -np.log(np.maximum(values[at], np.finfo(np.float32).tiny))
    else:
        top = values.max(-1, keepdims=True)
        losses = np.log(np.exp(values - top).sum(-1)) - (values[at] - top[:, 0])
    return Score(float((values.argmax(-1) == expected).mean()), float(losses.mean()))


def share_changed(output: Array, previous: Array) -> float:
    """The share of answers whose highest-scoring class changed."""
    return float((output.argmax(-1) != previous.argmax(-1)).mean())
