"""How good answers are: accuracy and cross entropy of classes, R2 and mean absolute error of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnpike.export.network import Array, Rows


@dataclass(frozen=True)
class Score:
    """Share of correct answers, and mean cross entropy in nats; of numbers, R2 and mean absolute error."""

    accuracy: float
    loss: float


def judge(output: Array, rows: Rows, *, probabilities: bool | None = None) -> Score | None:
    """The score of an output for rows; None if their true answers are not known, or not of its form.

    Args:
        output: What a network gave.
        rows: The rows, with their classes or the numbers to predict.
        probabilities: Whether the output has been through a softmax; None to tell by its values.
    """
    if rows.classes is not None and is_classification(output, rows.classes):
        if probabilities is None:
            probabilities = are_probabilities(output)
        return score(output, rows.classes, probabilities=probabilities)
    if rows.numbers is not None and _is_number(output, rows.numbers):
        return _score_numbers(output, rows.numbers)
    return None


def _is_number(output: Array, numbers: Array) -> bool:
    """Whether an output has one finite number for each row."""
    return (
        output.dtype.kind == "f"
        and output.shape in (numbers.shape, (*numbers.shape, 1))
        and numbers.size > 0
        and bool(np.isfinite(output).all())
    )


def _score_numbers(output: Array, numbers: Array) -> Score:
    """R2, the share of the variance that is predicted, and the mean absolute error."""
    true = numbers.astype(np.float64)
    errors = output.astype(np.float64).reshape(true.shape) - true
    squares, total = float((errors**2).sum()), float(((true - true.mean()) ** 2).sum())
    return Score(1 - squares / total if total else float(squares == 0), float(np.abs(errors).mean()))


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


def share_changed(output: Array, previous: Array, error: float) -> float:
    """The share of answers whose highest class changed; of numbers, that moved by more than `error`."""
    if output.ndim < 2 or output.shape[-1] == 1:
        return float((np.abs(output.astype(np.float64) - previous) > error).mean())
    return float((output.argmax(-1) != previous.argmax(-1)).mean())
