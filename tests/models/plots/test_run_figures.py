"""Figures of a run: the values they show, for every kind of data and network."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

from turnpike.common.columns import ColumnForm
from turnpike.models.data.dataset import Dataset, RowKind, Split
from turnpike.models.data.table.kinds import Column
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.character_cnn import CharacterCnnConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import ConvConfig, MlpConfig
from turnpike.models.networks.recurrent import RhnConfig
from turnpike.models.plots import gates as gate_picture
from turnpike.models.plots import run_figures as pictures
from turnpike.models.training.checkpoint import TrainingRecord

IMAGE = (1, 8, 8)
MLP = MlpConfig(inputs=IMAGE, classes=3, width=6, layers=4)


def dataset(rows: Tensor, kind: RowKind = "image", alphabet: str = "") -> Dataset:
    split = Split(rows, torch.arange(len(rows)) % 3)
    return Dataset("made", split, split, split, ("$a", "b_b", "a label that is rather long"), kind, alphabet)


def record(config: NetConfig, epochs: int = 3) -> TrainingRecord:
    history = [
        {"epoch": n, "loss": 2 / n, "accuracy": 0.3 * n, "valid_loss": 2.1 / n, "valid_accuracy": 0.29 * n}
        for n in range(1, epochs + 1)
    ]
    metrics = {**history[1], "test_loss": 0.5, "test_accuracy": 0.875} if epochs else {}
    return TrainingRecord("net", config.to_dict(), {"name": "made"}, {}, 0, metrics, history, "2")


def images(rows: int = 30) -> Tensor:
    return torch.randint(0, 17, (rows, *IMAGE)).to(torch.uint8)


def words(figure: Figure) -> list[str]:
    """All texts in a figure except the tick labels."""
    texts = [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title)]
    texts += [axes.get_title(loc="left") for axes in figure.axes]
    return [text for text in [figure.get_suptitle(), *texts] if text]


class Fixed(Net):
    """A network that returns fixed logits, whatever the rows."""

    def __init__(self, config: NetConfig, logits: Tensor) -> None:
        super().__init__(config)
        self.fixed_logits = logits

    def logits(self, x: Tensor) -> Tensor:
        return self.fixed_logits[: len(x)]


@pytest.mark.parametrize(
    ("config", "gated"),
    [
        (MLP, True),
        (replace(MLP, kind="plain"), False),
        pytest.param(
            ConvConfig(inputs=IMAGE, classes=3, stages=((4, 2), (6, 1))), True, marks=pytest.mark.slow
        ),
        pytest.param(RhnConfig(inputs=IMAGE, classes=3, width=5), True, marks=pytest.mark.slow),
    ],
)
def test_draw_writes_a_picture_of_gates_only_if_there_are_gates(
    tmp_path: Path, config: NetConfig, gated: bool
) -> None:
    """Every run gets a history and mistakes, and gates if it has some; the network's mode stays."""
    net = build_network(config).train()
    paths = pictures.draw_run(tmp_path, net, record(config), dataset(images()))
    names = ["history.png", "misclassified.png", *(["gates.png"] if gated else [])]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    for path in paths:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("L"))
        assert min(pixels.shape) > 300
        assert pixels.std() > 5  # something is drawn
    assert net.training


def test_history_shows_every_epoch_and_marks_the_best() -> None:
    """The four curves have the record's values; the best epoch is marked; the title has the test result."""
    run = record(MLP)
    figure = pictures.history_figure(run)
    for axes, name in zip(figure.axes, ("loss", "accuracy"), strict=True):
        curves = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
        assert curves["training"] == [[e["epoch"], e[name]] for e in run.history]
        assert curves["validation"] == [[e["epoch"], e[f"valid_{name}"]] for e in run.history]
        assert curves["best, epoch 2"] == [[2, run.history[1][f"valid_{name}"]]]
    assert figure.get_suptitle() == "net on made: test accuracy 87.50%, test loss 0.5"


def test_history_without_a_complete_epoch_says_so(tmp_path: Path) -> None:
    """There is nothing to plot, and the title says so."""
    assert "not tested" in pictures.history_figure(record(MLP, epochs=0)).get_suptitle()
    assert pictures.draw_run(tmp_path, build_network(MLP), record(MLP, epochs=0), dataset(images()))[
        0
    ].exists()


def test_misclassified_shows_the_most_confident_mistakes_first() -> None:
    """Ten mistakes are shown, with both labels and the predicted probability."""
    rows = images(15)
    logits = torch.zeros(15, 3)
    logits[:, 0] = torch.linspace(1, 5, 15)  # every third row is right
    figure = pictures.misclassified_figure(Fixed(MLP, logits), record(MLP), dataset(rows))
    assert len(figure.axes) == 10
    said = words(figure)
    assert said[0] == "net: all 10 mistakes in 15 test rows"
    assert said[1:3] == ["true: a label that is rathe…", "predicted: $a, 98.7%"]
    assert f"{logits[14].softmax(0)[0].item():.1%}" == "98.7%"
    shown = figure.axes[0].images[0].get_array()
    torch.testing.assert_close(torch.as_tensor(np.asarray(shown)), rows[14, 0].double() / 16)


def test_misclassified_without_mistakes_says_so() -> None:
    data = dataset(images(6))
    figure = pictures.misclassified_figure(
        Fixed(MLP, nn.functional.one_hot(data.test.y) * 9.0), record(MLP), data
    )
    assert words(figure) == [
        "net: all 6 test rows are correct",
        "nothing to show: every test row is classified correctly",
    ]


@pytest.mark.parametrize(
    ("rows", "marks"),
    [
        (torch.rand(4, 16), "patches"),
        (torch.rand(4, 200), "lines"),
        (torch.rand(4, 9, 5), "images"),
        (torch.rand(4, 1), "patches"),
        (-torch.ones(4, 3), "patches"),
    ],
)
def test_misclassified_numbers_are_shown_as_bars_curve_or_strip(
    tmp_path: Path, rows: Tensor, marks: str
) -> None:
    """Few numbers are bars, many a curve, and sequences a strip with time along x."""
    data = dataset(rows, "numbers")
    wrong = nn.functional.one_hot((data.test.y + 1) % 3) * 9.0
    config = replace(MLP, inputs=data.inputs)
    figure = pictures.misclassified_figure(Fixed(config, wrong), record(config), data)
    drawn: Any = getattr(figure.axes[0], marks)
    assert len(drawn) == (rows.shape[1] if marks == "patches" else 1)
    if marks == "images":
        assert drawn[0].get_array().shape == (5, 9)
    figure.savefig(tmp_path / "figure.png")


def test_misclassified_texts_are_spelled_out() -> None:
    """A text is shown as its words, without padding."""
    rows = torch.tensor([[[1, 2, 0], [3, 0, 0], [0, 0, 0]]])
    data = dataset(rows, "text", alphabet=" $bc")
    config = CharacterCnnConfig(inputs=(3, 3), classes=3)
    net = Fixed(config, torch.tensor([[0.0, 9.0, 0.0]]))
    net.reads_ids = True  # type: ignore[misc]
    figure = pictures.misclassified_figure(net, record(config), data)
    assert {"$b c", "$a", "b_b", "100.0%"} <= set(words(figure))
    assert "the only mistake in 1 test rows" in words(figure)[0]


def test_gates_equal_a_loop_over_the_layers(same: Any) -> None:
    """Biases, mean gates, one row's gates and outputs agree with the layers called one by one."""
    net = build_network(replace(MLP, activation="tanh", scaling="none")).eval()
    rows = torch.rand(7, *IMAGE)
    with torch.no_grad():
        for layer in net.layers:  # type: ignore[union-attr]
            layer.gate.bias.normal_()
        grids = gate_picture.gate_grids(net, rows)
        assert grids is not None
        x = net.entry(rows.flatten(1))  # type: ignore[operator]
        for depth, layer in enumerate(net.layers):  # type: ignore[arg-type]
            t = layer.gate(x)
            x = layer(x)
            same(torch.tensor(grids.biases[depth]).float(), layer.gate.bias)
            same(torch.tensor(grids.mean_gates[depth]).float(), t.mean(0))
            same(torch.tensor(grids.gates[depth]).float(), t[0])
            same(torch.tensor(grids.outputs[depth]).float(), x[0])
    assert not grids.averaged


def test_gates_of_feature_maps_are_averaged_over_space(same: Any) -> None:
    """Each channel is one unit; a layer with fewer channels than the widest ends in NaN."""
    net = build_network(ConvConfig(inputs=IMAGE, classes=3, stages=((4, 1), (6, 1)), scaling="none")).eval()
    rows = torch.rand(5, *IMAGE)
    grids = gate_picture.gate_grids(net, rows)
    assert grids is not None
    assert grids.biases.shape == grids.outputs.shape == (2, 6)
    assert np.isnan(grids.gates[0, 4:]).all()
    assert np.isfinite(grids.gates[1]).all()
    with torch.no_grad():
        body: Any = net.body
        x = body[0](rows)
        same(torch.tensor(grids.mean_gates[0, :4]).float(), body[1].gate(x).mean((0, 2, 3)))
        same(torch.tensor(grids.outputs[0, :4]).float(), body[1](x)[0].mean((1, 2)))
    assert grids.averaged


def test_gates_of_recurrent_nets_are_averaged_over_time(same: Any) -> None:
    net = build_network(RhnConfig(inputs=(4, 2), classes=2, width=3, depth=1, scaling="none")).eval()
    rows = torch.rand(1, 4, 2)
    grids = gate_picture.gate_grids(net, rows)
    assert grids is not None
    step: Any = net.layer.steps[0]  # type: ignore[union-attr, index]
    with torch.no_grad():
        s, gates = torch.zeros(1, 3), []
        for x in rows.unbind(1):
            gates.append(step.gate(torch.cat([x, s], 1)))
            s = step(s, x)
        same(torch.tensor(grids.gates[0]).float(), torch.cat(gates).mean(0))


def test_gates_of_texts_exclude_padding(same: Any) -> None:
    """Padding words do not count, however many there are."""
    net = build_network(CharacterCnnConfig(inputs=(4, 5), classes=2, alphabet=9)).eval()
    full = torch.randint(1, 9, (3, 2, 5))
    filled = torch.cat([full, torch.zeros(3, 7, 5, dtype=torch.int64)], dim=1)
    short, long = gate_picture.gate_grids(net, full), gate_picture.gate_grids(net, filled)
    assert short is not None
    assert long is not None
    for name in ("mean_gates", "gates", "outputs"):
        same(torch.tensor(getattr(long, name)), torch.tensor(getattr(short, name)))


def test_gates_show_each_unit_of_a_wide_network() -> None:
    """The widest layer has one pixel per unit; biases are colored around their median, outputs around 0."""
    config = MlpConfig(inputs=IMAGE, classes=3, width=900, layers=2)
    net = build_network(config)
    with torch.no_grad():
        net.layers[0].gate.bias.add_(torch.rand(900))
    figure = gate_picture.gate_figure(net, record(config), dataset(images()))
    assert figure is not None
    shown = [axes.images[0] for axes in figure.axes[:4]]
    figure.canvas.draw()
    assert all(image.get_window_extent().width >= 900 for image in shown)
    biases = torch.cat([layer.gate.bias for layer in net.layers]).detach()
    for image, middle in zip(shown, (float(biases.quantile(0.5)), 0.5, 0.5, 0.0), strict=True):
        low, high = image.get_clim()
        assert (low + high) / 2 == pytest.approx(middle, abs=1e-6)
    assert shown[1].get_clim() == shown[2].get_clim() == (0, 1)
    assert figure.axes[0].get_ylim() == (1.5, -0.5)  # the first layer on top
    assert list(figure.axes[0].get_yticks()) == [0, 1]
    assert list(figure.axes[0].get_xticks()) == [0, 200, 400, 600, 899]


def test_labels_below_the_color_bars_do_not_touch() -> None:
    """Biases close to each other have long labels, such as -2.075."""
    config = MlpConfig(inputs=IMAGE, classes=3, width=64, layers=10)
    net = build_network(config)
    with torch.no_grad():
        for layer in net.layers:
            layer.gate.bias.add_(0.1 * torch.rand(64))
    figure = gate_picture.gate_figure(net, record(config), dataset(images()))
    assert figure is not None
    figure.canvas.draw()
    for bar in figure.axes[4:]:
        boxes = [
            label.get_window_extent()
            for label in bar.get_xticklabels()
            if label.get_text() and bar.viewLim.x0 <= label.get_position()[0] <= bar.viewLim.x1
        ]
        assert len(boxes) > 1
        assert all(left.x1 + 2 < right.x0 for left, right in itertools.pairwise(boxes))


def number_data(rows: Tensor, columns: tuple[Column, ...] = ()) -> Dataset:
    split = Split(rows, rows[:, 0].nan_to_num() * 2)
    names = tuple(column.name for column in columns)
    return Dataset(
        *("made", split, split, split, (), "numbers"),
        features=names,
        target="price",
        task="number",
        columns=columns,
    )


def test_numbers_are_drawn_over_the_true_ones(tmp_path: Path) -> None:
    """In place of misclassified rows; history and gates have R2 and the number of the row."""
    config = MlpConfig(inputs=(2,), classes=1, width=6, layers=2)
    net, data = build_network(config), number_data(torch.randn(30, 2))
    history = [
        {
            "epoch": n,
            "loss": 1 / n,
            "r2": 1 - 1 / n,
            "valid_loss": 1 / n,
            "valid_r2": 1 - 1 / n,
            "valid_mae": 2,
        }
        for n in (1, 2, 3)
    ]
    metrics = {**history[-1], "test_loss": 0.5, "test_r2": 0.5, "test_mae": 12.5}
    made = TrainingRecord("net", config.to_dict(), {"name": "made"}, {}, 0, metrics, history, "2")
    paths = pictures.draw_run(tmp_path, net, made, data)
    assert [path.name for path in paths] == ["history.png", "predictions.png", "gates.png"]
    figure = pictures.history_figure(made)
    assert "test R² 0.5000, mean absolute error 12.5" in words(figure)[0]
    assert list(figure.axes[1].lines[1].get_ydata()) == [entry["valid_r2"] for entry in history]
    (points,) = pictures.predictions_figure(net, made, data).axes[0].collections
    true, predicted = np.asarray(points.get_offsets()).T
    np.testing.assert_array_equal(true, data.test.y)
    np.testing.assert_allclose(predicted, net.eval()(data.test.x)[:, 0].detach(), rtol=1e-6)


def test_misclassified_rows_of_tables_are_spelled_out() -> None:
    """Words as the file has them; blanks are left out."""
    columns = (Column("size", ColumnForm()), Column("colour", ColumnForm("category", ("red", "blue"))))
    config = MlpConfig(
        inputs=(2,),
        classes=3,
        width=6,
        layers=2,
        scaling="columns",
        columns=(("number", 0, True), ("category", 2, False)),
    )
    rows = torch.tensor([[1.5, 1.0], [math.nan, 0.0]])
    split = Split(rows, torch.tensor([0, 1]))
    data = Dataset(
        *("made", split, split, split, ("a", "b", "c"), "numbers"),
        features=("size", "colour"),
        columns=columns,
    )
    net = Fixed(config, torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 1.0]]))
    shown = words(pictures.misclassified_figure(net, record(config), data))
    assert "size 1.5, colour blue" in shown
    assert "colour red" in shown
