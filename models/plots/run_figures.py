"""Figures of a finished run: loss and score by epoch, misclassified test rows or numbers, and gates."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import ceil
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from turnpike.common.columns import cell_text
from turnpike.models.data.dataset import Dataset
from turnpike.models.networks.base import Net
from turnpike.models.plots import style
from turnpike.models.plots.gates import gate_figure
from turnpike.models.plots.style import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.models.training.evaluate import predict_logits

MAX_MISTAKES = 10  # misclassified rows to show
MAX_PANELS_ACROSS = 5
MAX_POINTS = 5000  # points that a figure shows
MAX_BARS = 64  # rows with more numbers are drawn as a curve


def draw_run(folder: Path, net: Net, record: TrainingRecord, data: Dataset) -> list[Path]:
    """Draw a run and return the paths of the figures.

    They are `history.png`, `misclassified.png` (or `predictions.png` for a number to predict), and
    `gates.png` if there are gates.
    """
    is_number = data.task == "number"
    figures = {
        "history.png": history_figure(record),
        **({} if is_number else {"misclassified.png": misclassified_figure(net, record, data)}),
        **({"predictions.png": predictions_figure(net, record, data)} if is_number else {}),
        "gates.png": gate_figure(net, record, data),
    }
    return [
        style.save_figure(figure, folder / name) for name, figure in figures.items() if figure is not None
    ]


def history_figure(record: TrainingRecord) -> Figure:
    """Draw loss, and accuracy or R2, by epoch, in training and validation."""
    figure = style.new_figure(10, 4.2)
    loss, score = figure.subplots(1, 2)
    metric = "r2" if "valid_r2" in record.metrics else "accuracy"
    style.set_title(figure, f"{record.preset} on {record.data['name']}: {_result_text(record.metrics)}")
    epochs = len(record.history)
    marker = "o" if epochs <= 30 else ""
    best_epoch = record.metrics.get("epoch")
    has_penalty = any("gate_penalty" in entry for entry in record.history)
    for axes, name in ((loss, "loss"), (score, metric)):
        style.style_axes(axes)
        style.set_epoch_axis(axes, epochs)
        axes.set_title({"r2": "R²"}.get(name, name.capitalize()), fontsize=11, loc="left", color=INK)
        for key, label, color in ((name, "training", BLUE), (f"valid_{name}", "validation", ORANGE)):
            axes.plot(
                *style.history_series(record.history, key),
                color=color,
                label=label,
                linewidth=1.8,
                marker=marker,
                markersize=3.5,
            )
        if name == "loss" and has_penalty:
            axes.plot(
                *style.history_series(record.history, "gate_penalty"),
                color=GREEN,
                label="penalty of open gates",
                linewidth=1.8,
                linestyle="--",
            )
        if best_epoch is not None:
            axes.axvline(best_epoch, color=GREY, linewidth=1, linestyle=":")
            axes.plot(
                [best_epoch],
                [record.metrics[f"valid_{name}"]],
                "o",
                markersize=9,
                markerfacecolor="none",
                markeredgecolor=INK,
                markeredgewidth=1.4,
                label=f"best, epoch {best_epoch:.0f}",
            )
        if epochs:
            axes.legend(frameon=False, fontsize=9)
    keys = ("loss", "valid_loss", *(["gate_penalty"] if has_penalty else []))
    losses = [entry[key] for entry in record.history for key in keys]
    if losses and 0 < 30 * min(losses) < max(losses):
        loss.set_yscale("log")
    if metric == "accuracy":
        score.yaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


def _result_text(metrics: dict[str, float]) -> str:
    if "test_r2" in metrics:
        return f"test R² {metrics['test_r2']:.4f}, mean absolute error {metrics['test_mae']:.4g}"
    if "test_accuracy" not in metrics:
        return "not finished, so not tested"
    return f"test accuracy {metrics['test_accuracy']:.2%}, test loss {metrics['test_loss']:.3g}"


def misclassified_figure(net: Net, record: TrainingRecord, data: Dataset) -> Figure:
    """Draw the misclassified test rows with the highest probabilities of the predicted class."""
    probabilities, predictions = predict_probabilities(net, data.test.x).max(1)
    wrong = (predictions != data.test.y).nonzero().flatten()
    shown = wrong[probabilities[wrong].argsort(descending=True, stable=True)[:MAX_MISTAKES]]
    heading = f"{record.preset}: {_mistakes_text(len(wrong), len(data.test))}"
    if len(shown) == 0:
        figure = style.new_figure(6, 2.4)
        style.set_title(figure, heading)
        style.show_message(figure.subplots(), "nothing to show: every test row is classified correctly")
        return figure
    rows = [
        (
            data.test.x[row],
            data.labels[int(data.test.y[row])],
            data.labels[int(predictions[row])],
            f"{float(probabilities[row]):.1%}",
        )
        for row in shown.tolist()
    ]
    if data.kind == "text":
        return _draw_text_table(heading, rows, lambda row: decode_text(row, data.alphabet))
    if net.config.columns:
        return _draw_text_table(heading, rows, lambda row: describe_row(row, data))
    return _draw_grid(heading, rows, data)


def predictions_figure(net: Net, record: TrainingRecord, data: Dataset) -> Figure:
    """Draw the predicted numbers of test rows over the true ones."""
    predicted, true = predict_logits(net, data.test.x)[:, 0], data.test.y
    figure = style.new_figure(6.4, 6)
    style.set_title(figure, f"{record.preset}: {data.target} of {len(true):,} test rows")
    axes = figure.subplots()
    style.style_axes(axes)
    shown = torch.arange(0, len(true), -(-len(true) // MAX_POINTS))
    axes.scatter(true[shown].numpy(), predicted[shown].numpy(), s=12, color=BLUE, alpha=0.5, linewidths=0)
    low, high = float(true.min()), float(true.max())
    axes.plot([low, high], [low, high], color=GREY, linewidth=1, linestyle="--")
    axes.set_xlabel("true", fontsize=10)
    axes.set_ylabel("predicted", fontsize=10)
    return figure


def predict_probabilities(net: Net, rows: Tensor) -> Tensor:
    """Return the probability of each class for each row."""
    return predict_logits(net, rows).softmax(1)


def _mistakes_text(wrong: int, rows: int) -> str:
    if wrong == 0:
        return f"all {rows:,} test rows are correct"
    if wrong == 1:
        return f"the only mistake in {rows:,} test rows"
    if wrong <= MAX_MISTAKES:
        return f"all {wrong} mistakes in {rows:,} test rows"
    return f"the {MAX_MISTAKES} most confident of {wrong:,} mistakes in {rows:,} test rows"


Mistake = tuple[Tensor, str, str, str]  # row, true label, predicted label, probability


def _draw_grid(heading: str, rows: list[Mistake], data: Dataset) -> Figure:
    """Draw images or rows of numbers side by side."""
    across = min(MAX_PANELS_ACROSS, len(rows))
    down = ceil(len(rows) / across)
    figure = style.new_figure(max(6.4, 2.2 * across), 0.6 + 2.6 * down)
    style.set_title(figure, heading)
    all_axes = list(figure.subplots(down, across, squeeze=False).flat)
    low, high = float(data.train.x.min()), float(data.train.x.max())
    for axes, (row, true, predicted, probability) in zip(all_axes, rows, strict=False):
        if data.kind == "image":
            _draw_image(axes, row, low, high)
        else:
            _draw_numbers(axes, row, low, high)
        text_style = {"fontsize": 9, "parse_math": False, "ha": "left", "transform": axes.transAxes}
        axes.text(0, 1.13, f"true: {style.shorten(true, 22)}", va="bottom", color=INK, **text_style)
        axes.text(
            0,
            1.03,
            f"predicted: {style.shorten(predicted, 12)}, {probability}",
            va="bottom",
            color=RED,
            **text_style,
        )
    for axes in all_axes[len(rows) :]:
        axes.axis("off")
    return figure


def _draw_image(axes: Axes, row: Tensor, low: float, high: float) -> None:
    """Draw an image (channels, height, width); unless it has three channels, draw their mean."""
    pixels = (row.double() - low) / ((high - low) or 1.0)
    picture = pixels.permute(1, 2, 0) if len(row) == 3 else pixels.mean(0)
    axes.imshow(picture.clamp(0, 1).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(FAINT)


def _draw_numbers(axes: Axes, row: Tensor, low: float, high: float) -> None:
    """Draw few numbers as bars, many as a curve, and a sequence (time, features) as a strip."""
    values = row.double().squeeze()
    if values.dim() > 1:
        strip = values.flatten(1).T.numpy()
        axes.imshow(strip, aspect="auto", cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
    else:
        values = values.reshape(-1)
        style.style_axes(axes)
        axes.set_ylim(min(low, 0.0), max(high, 0.0) or 1.0)
        if len(values) <= MAX_BARS:
            axes.bar(range(len(values)), values.numpy(), color=BLUE, width=0.8)
        else:
            axes.plot(values.numpy(), color=BLUE, linewidth=1)
    axes.tick_params(labelsize=7)


def _draw_text_table(heading: str, rows: list[Mistake], text_of: Callable[[Tensor], str]) -> Figure:
    """Draw rows as texts, one per line."""
    figure = style.new_figure(10, 1.1 + 0.32 * (len(rows) + 1))
    style.set_title(figure, heading)
    axes = figure.subplots()
    axes.axis("off")
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows) + 0.5, -0.5)
    columns = (0.0, 0.66, 0.78, 0.9)
    for x, head in zip(columns, ("row", "true", "predicted", "probability"), strict=True):
        axes.text(x, 0, head, fontsize=9, color=GREY, va="center")
    for line, (row, true, predicted, probability) in enumerate(rows, start=1):
        axes.axhline(line - 0.5, color=FAINT, linewidth=0.6)
        cells = (
            style.shorten(text_of(row), 62),
            style.shorten(true, 11),
            style.shorten(predicted, 11),
        )
        for x, cell, color in zip(columns, (*cells, probability), (INK, INK, RED, RED), strict=True):
            axes.text(x, line, cell, fontsize=9.5, color=color, va="center", parse_math=False)
    return figure


def describe_row(row: Tensor, data: Dataset) -> str:
    """The cells of a table's row, without blanks."""
    forms = [column.form for column in data.columns if column.form is not None]
    return ", ".join(
        f"{name} {cell_text(form, value)}"
        for name, form, value in zip(data.features, forms, row.tolist(), strict=True)
        if not math.isnan(value)
    )


def decode_text(row: Tensor, alphabet: str) -> str:
    """Return the text of a row of ids, (words, characters) or (characters,)."""
    words = row.reshape(-1, row.shape[-1]).tolist()
    return " ".join("".join(alphabet[i] for i in word if i) for word in words if any(word))
