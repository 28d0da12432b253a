"""The training loop: it learns, keeps the best network, resumes to the same bits, and reports divergence."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.errors import CheckpointError, ConfigError, TrainingError
from turnpike.models.networks.base import NetConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training import checkpoint
from turnpike.models.training.augment import random_distortion, random_shift, random_thickness
from turnpike.models.training.checkpoint import load_network, read_checkpoint
from turnpike.models.training.evaluate import evaluate
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan
from turnpike.models.training.train import StepReport, train

TINY = MlpConfig(inputs=(6,), classes=3, width=8, layers=2, dropout=0.3, batch_norm=True)
RECIPE = Recipe(epochs=3, batch=16, lr=0.01, schedule="onecycle", weight_decay=0.01, clip=1.0)


def rows(count: int, seed: int) -> Split:
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return Split(x, x[:, :3].argmax(1))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("blobs", rows(120, 1), rows(40, 2), rows(40, 3), ("a", "b", "c"), "numbers")


def plan(folder: Path, data: Dataset, config: NetConfig = TINY, recipe: Recipe = RECIPE) -> RunPlan:
    return RunPlan("tiny", config, recipe, data, folder, seed=5)


def stopping_after(steps: int) -> dict[str, object]:
    """Arguments for `train` that stop it after `steps` steps."""
    steps_taken = 0

    def on_step(report: StepReport) -> None:
        nonlocal steps_taken
        steps_taken = report.step

    return {"on_step": on_step, "should_stop": lambda: steps_taken >= steps}


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    return read_checkpoint(path)[0]


def assert_same_bits(one: Path, other: Path) -> None:
    a, b = tensors_of(one), tensors_of(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_training_learns_separable_rows(tmp_path: Path, data: Dataset) -> None:
    """Some epochs on separable rows give an accuracy far above chance."""
    calm = replace(TINY, dropout=0.0)
    outcome = train(plan(tmp_path, data, calm, replace(RECIPE, epochs=30)))
    assert outcome.finished
    assert outcome.record.metrics["test_accuracy"] > 0.75
    assert outcome.state.history[-1]["loss"] < outcome.state.history[0]["loss"] / 2


def test_the_saved_network_has_the_recorded_metrics(tmp_path: Path, data: Dataset) -> None:
    """The saved network reproduces the validation and test figures of its record."""
    train(plan(tmp_path, data))
    net, record = load_network(tmp_path / BEST_CHECKPOINT)
    assert evaluate(net, data.valid)["accuracy"] == record.metrics["valid_accuracy"]
    scores = evaluate(net, data.test)
    assert scores == {name: record.metrics[f"test_{name}"] for name in ("loss", "accuracy")}
    assert record.metrics["valid_accuracy"] == max(entry["valid_accuracy"] for entry in record.history)


@pytest.mark.parametrize("rising", [False, True])
def test_of_equally_accurate_networks_the_one_with_the_lower_loss_is_kept(
    tmp_path: Path, data: Dataset, rising: bool
) -> None:
    """Steps too small to change a class. The network learns to answer a, so the loss on rows of b rises."""
    learned = Split(data.train.x, torch.zeros_like(data.train.y))
    valid = Split(data.valid.x, torch.full_like(data.valid.y, 1 if rising else 0))
    small_steps = replace(RECIPE, lr=1e-6, schedule="constant", weight_decay=0.0)
    net = replace(TINY, dropout=0.0, batch_norm=False)
    outcome = train(plan(tmp_path, replace(data, train=learned, valid=valid), net, small_steps))
    losses = [entry["valid_loss"] for entry in outcome.state.history]
    assert losses == sorted(losses, reverse=not rising)
    assert len({entry["valid_accuracy"] for entry in outcome.state.history}) == 1
    assert outcome.record.metrics["valid_loss"] == min(losses)


def test_weight_decay_leaves_biases_and_norms_alone(tmp_path: Path, data: Dataset) -> None:
    """A decay of 1 / lr sets weights to zero in one step. A step of Adam then moves each by at most lr."""
    lr = 0.01
    recipe = replace(RECIPE, lr=lr, schedule="constant", weight_decay=1 / lr)
    train(plan(tmp_path, data, recipe=recipe), **stopping_after(1))
    weights = tensors_of(tmp_path / LAST_CHECKPOINT)
    checked = set()
    for name, parameter in build_network(TINY).named_parameters():
        after = weights[f"net.{name}"]
        if name.endswith("gate.bias"):
            initial = -2.0
        elif name.endswith("norm.weight"):
            initial = 1.0
        elif parameter.dim() > 1:
            initial = 0.0
        else:
            continue
        checked.add(initial)
        torch.testing.assert_close(after, torch.full_like(after, initial), rtol=0, atol=1.01 * lr)
    assert checked == {-2.0, 0.0, 1.0}


@pytest.mark.parametrize(
    "steps", [1, 7, 8, pytest.param(9, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.slow)]
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, data: Dataset, steps: int) -> None:
    """Stopped at any step (8 is the last of an epoch) and resumed, a run ends as one that never stopped."""
    train(plan(tmp_path / "whole", data))
    stopped = train(plan(tmp_path / "parts", data), **stopping_after(steps))
    assert not stopped.finished
    torch.rand(100)  # other code may draw random numbers between the two runs
    resumed = train(plan(tmp_path / "parts", data), resume=True)
    assert resumed.finished
    assert_same_bits(tmp_path / "whole" / BEST_CHECKPOINT, tmp_path / "parts" / BEST_CHECKPOINT)
    assert_same_bits(tmp_path / "whole" / LAST_CHECKPOINT, tmp_path / "parts" / LAST_CHECKPOINT)
    losses = [
        [entry["loss"] for entry in read_checkpoint(tmp_path / f / BEST_CHECKPOINT)[1].history]
        for f in ("whole", "parts")
    ]
    assert losses[0] == losses[1]


def test_a_run_with_a_constant_rate_can_get_more_epochs(tmp_path: Path, data: Dataset) -> None:
    """One epoch and then two more equal three, since the learning rate does not depend on their number."""
    constant = replace(RECIPE, schedule="constant")
    train(plan(tmp_path / "whole", data, recipe=constant))
    train(plan(tmp_path / "parts", data, recipe=replace(constant, epochs=1)))
    train(plan(tmp_path / "parts", data, recipe=constant), resume=True)
    assert_same_bits(tmp_path / "whole" / LAST_CHECKPOINT, tmp_path / "parts" / LAST_CHECKPOINT)


def test_resuming_with_fewer_epochs_is_refused(tmp_path: Path, data: Dataset) -> None:
    constant = replace(RECIPE, schedule="constant")
    train(plan(tmp_path, data, recipe=constant))
    with pytest.raises(CheckpointError, match="fewer epochs: expected 3 or more, got 2"):
        train(plan(tmp_path, data, recipe=replace(constant, epochs=2)), resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": replace(RECIPE, lr=0.02)}, "recipe of the run: expected lr 0.01, got 0.02"),
        ({"recipe": replace(RECIPE, epochs=9)}, "expected epochs 3, got 9"),
        (
            {"data": Dataset("blobs", rows(120, 1), rows(40, 2), rows(40, 9), ("a", "b", "c"), "numbers")},
            "digest",
        ),
        ({"config": replace(TINY, width=9)}, "network of the run: expected width 8, got 9"),
        ({"seed": 6}, "expected seed 5, got 6"),
        (
            {"data": Dataset("blobs", rows(120, 9), rows(40, 2), rows(40, 3), ("a", "b", "c"), "numbers")},
            "digest",
        ),
    ],
)
def test_resuming_with_another_plan_is_refused(
    tmp_path: Path, data: Dataset, change: dict[str, object], message: str
) -> None:
    """The error has the old and the new value."""
    train(plan(tmp_path, data), **stopping_after(3))
    before = (tmp_path / LAST_CHECKPOINT).read_bytes()
    with pytest.raises(CheckpointError, match=message):
        train(replace(plan(tmp_path, data), **change), resume=True)
    assert (tmp_path / LAST_CHECKPOINT).read_bytes() == before


def test_equal_seeds_give_equal_networks(tmp_path: Path, data: Dataset) -> None:
    """Their weights are equal bit for bit. Another seed gives another network."""
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        train(replace(plan(tmp_path / name, data), seed=seed))
    assert_same_bits(tmp_path / "a" / LAST_CHECKPOINT, tmp_path / "b" / LAST_CHECKPOINT)
    with pytest.raises(AssertionError):
        assert_same_bits(tmp_path / "a" / LAST_CHECKPOINT, tmp_path / "c" / LAST_CHECKPOINT)


def test_a_nan_loss_stops_and_names_the_module(tmp_path: Path, data: Dataset) -> None:
    """The error names the first module whose output overflowed, the epoch and the step."""
    wild = replace(RECIPE, lr=1e30, schedule="constant", clip=0.0, epochs=2)
    config = replace(TINY, batch_norm=False, dropout=0.0)
    with pytest.raises(
        TrainingError, match=r"at epoch 1, step \d+ of 8: (entry|layers|output)\S* is the first"
    ):
        train(plan(tmp_path, data, config, wild))


def test_a_diverged_network_is_not_saved(tmp_path: Path, data: Dataset) -> None:
    """The last step of an epoch can ruin the weights although its loss is finite: then nothing is saved."""
    one_step = Recipe(epochs=1, batch=1000, lr=1e30)
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) at epoch 1, step 1 of 1"):
        train(plan(tmp_path, data, replace(TINY, batch_norm=False, dropout=0.0), one_step))
    assert list(tmp_path.iterdir()) == []


def test_nan_in_the_rows_is_reported(tmp_path: Path, data: Dataset) -> None:
    x = data.train.x.clone()
    x[3, 2] = float("nan")
    data_with_nan = replace(data, train=Split(x, data.train.y))
    with pytest.raises(TrainingError, match="rows themselves hold NaN"):
        train(plan(tmp_path, data_with_nan, replace(TINY, scaling="none")))


def test_text_needs_a_network_that_reads_ids(tmp_path: Path, data: Dataset) -> None:
    with pytest.raises(ConfigError, match="mlp reads numbers, and blobs holds text"):
        train(plan(tmp_path, replace(data, kind="text")))


def test_a_missing_cuda_device_is_an_error(tmp_path: Path, data: Dataset) -> None:
    """Training never falls back to the CPU silently."""
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ConfigError, match="finds no CUDA device"):
        train(replace(plan(tmp_path, data), device="cuda"))


def test_a_last_batch_of_one_row_is_left_out(tmp_path: Path, data: Dataset) -> None:
    """113 rows in batches of 16 are 7 steps: batch norm cannot train on the 113th row alone."""
    shorter = replace(data, train=Split(data.train.x[:113], data.train.y[:113]))
    assert plan(tmp_path, shorter).steps_per_epoch == 7
    assert plan(tmp_path, data).steps_per_epoch == 8
    train(plan(tmp_path, shorter))


def test_evaluation_keeps_the_mode_and_weights_rows(data: Dataset) -> None:
    """Batches of unequal size count by their rows, and training mode is restored."""
    from turnpike.models.networks.families import build_network

    net = build_network(replace(TINY, dropout=0.0)).train()
    whole = evaluate(net, data.test)
    parts = evaluate(net, data.test, batch_rows=7)
    assert net.training
    assert parts == pytest.approx(whole)


def test_the_digest_depends_on_every_row(data: Dataset) -> None:
    """One changed value or label gives another digest."""
    x, y = data.train.x.clone(), data.train.y.clone()
    x[-1, -1] += 1
    y[0] = (y[0] + 1) % 3
    digests = {data.digest, replace(data, train=Split(x, data.train.y)).digest}
    assert len(digests | {replace(data, train=Split(data.train.x, y)).digest}) == 3


def test_bf16_trains(tmp_path: Path, data: Dataset) -> None:
    """bfloat16 reduces the loss, and the weights stay float32."""
    outcome = train(plan(tmp_path, data, recipe=replace(RECIPE, precision="bf16", epochs=10)))
    assert outcome.state.history[-1]["loss"] < outcome.state.history[0]["loss"]
    assert {t.dtype for t in tensors_of(tmp_path / BEST_CHECKPOINT).values() if t.is_floating_point()} == {
        torch.float32
    }


def test_generated_data_differs_in_each_epoch(tmp_path: Path) -> None:
    seen: list[int] = []

    class Fresh(Dataset):
        def training_rows(self, seed: int, epoch: int) -> Split:
            seen.append(epoch)
            return rows(120, 100 + epoch)

    fresh = Fresh("fresh", rows(120, 1), rows(40, 2), rows(40, 3), ("a", "b", "c"), "numbers")
    train(plan(tmp_path / "fresh", fresh))
    assert seen == [0, 1, 2]
    assert checkpoint.read_checkpoint(tmp_path / "fresh" / BEST_CHECKPOINT)[1].history[2]["epoch"] == 3


def moved(image: Tensor, down: int, right: int) -> Tensor:
    """The image moved down and right, pixel by pixel, with zeros at the edges."""
    result = torch.zeros_like(image)
    channels, height, width = image.shape
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                if 0 <= row - down < height and 0 <= column - right < width:
                    result[channel, row, column] = image[channel, row - down, column - right]
    return result


@pytest.mark.parametrize("distance", [1, 2])
@pytest.mark.parametrize("shape", [(40, 1, 4, 4), (40, 3, 5, 4)])
def test_random_shift_moves_within_bounds(shape: tuple[int, int, int, int], distance: int) -> None:
    """Each result is one of the possible moves, the same for all channels, with zeros at the edges."""
    images = torch.rand(shape) + 1
    result = random_shift(images, distance)
    assert result.shape == images.shape
    assert result.is_contiguous()
    assert result.dtype == images.dtype
    possible = [
        (down, right) for down in range(-distance, distance + 1) for right in range(-distance, distance + 1)
    ]
    moves = set()
    for image, got in zip(images, result, strict=True):
        fits = [move for move in possible if torch.equal(moved(image, *move), got)]
        assert len(fits) == 1
        moves.add(fits[0])
    # 40 draws of 9 or 25: both directions and both axes are sure to be among them
    assert len(moves) > 5
    assert {down for down, _ in moves} == {right for _, right in moves} == set(range(-distance, distance + 1))


def test_random_shift_by_zero_changes_nothing() -> None:
    images = torch.rand(6, 2, 3, 4)
    assert torch.equal(random_shift(images, 0), images)


def test_random_shift_does_not_modify_its_input() -> None:
    images = torch.rand(6, 2, 3, 4)
    before = images.clone()
    random_shift(images, 2)
    assert torch.equal(images, before)


def test_random_shift_uses_pytorchs_generator() -> None:
    """The same seed gives the same moves, and the next draw differs."""
    images = torch.rand(30, 1, 4, 4)
    torch.manual_seed(8)
    first, second = random_shift(images, 2), random_shift(images, 2)
    torch.manual_seed(8)
    assert torch.equal(random_shift(images, 2), first)
    assert not torch.equal(first, second)


def test_random_distortion_keeps_the_centre_and_changes_each_image() -> None:
    """A dot in the middle stays there; a bar is turned, sheared or scaled differently in each image."""
    torch.manual_seed(0)
    dot, bar = torch.zeros(6, 2, 9, 9), torch.zeros(6, 2, 9, 9)
    dot[:, :, 4, 4] = 16
    bar[:, :, 1:8, 4] = 16
    assert (random_distortion(dot, 0.2)[:, :, 4, 4] > 15.9).all()
    distorted = random_distortion(bar, 0.2)
    torch.testing.assert_close(distorted[:, 0], distorted[:, 1])
    for i in range(6):
        assert not torch.allclose(distorted[i], bar[i])
        assert not torch.allclose(distorted[i], distorted[i - 1])
        assert 0.7 < distorted[i].sum() / bar[i].sum() < 1.4


def test_random_thickness_keeps_background_and_peak() -> None:
    """Values in between change, in one direction per image and at most by the power."""
    torch.manual_seed(0)
    images = torch.tensor([0.0, 4.0, 8.0, 16.0]).view(1, 1, 2, 2).repeat(20, 1, 1, 1)
    result = random_thickness(images, 0.5).flatten(1)
    torch.testing.assert_close(result[:, [0, 3]], images.flatten(1)[:, [0, 3]])
    assert ((result[:, 1] > 4) == (result[:, 2] > 8)).all()
    assert (result[:, 1] > 4).any()
    assert (result[:, 1] < 4).any()
    assert result[:, 1].min() >= 16 * 0.25 ** math.exp(0.5)
    assert result[:, 1].max() <= 16 * 0.25 ** math.exp(-0.5)
    assert torch.equal(random_thickness(torch.zeros(1, 1, 2, 2), 0.5), torch.zeros(1, 1, 2, 2))
