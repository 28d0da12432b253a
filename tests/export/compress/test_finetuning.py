"""Compression with training: of a real run on digits, proved against the trained checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from turnpike.export.compress.finetuning import train_choice
from turnpike.export.compress.graph.removable_layers import find_removable_layers
from turnpike.export.compress.remove_units import compress_model
from turnpike.export.compress.selection import MIN_SHARE, UnitChoice
from turnpike.export.compress.trials import Cutter
from turnpike.export.compress.whole_network import read_whole_network
from turnpike.export.errors import CompressionError, SourceError, UsageError
from turnpike.export.options import SourceOptions
from turnpike.export.pipeline import export_model
from turnpike.export.sources.data.rows import SplitRows, read_split_rows
from turnpike.export.steps import Steps
from turnpike.export.verify import verify_model
from turnpike.models.data.dataset import Split
from turnpike.models.data.load import load_dataset
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import RunPlan
from turnpike.models.training.train import train
from turnpike.service.artifact.runtime import open_model

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.usefixtures("any_speed")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training run."""
    folder = tmp_path_factory.mktemp("run")
    config = MlpConfig(inputs=(1, 8, 8), classes=10, width=16, layers=3)
    recipe = Recipe(epochs=4, batch=64, lr=0.01, gate_budget=0.1, test_fraction=0.5)
    train(RunPlan("tiny", config, recipe, load_dataset("digits", test_fraction=0.5, seed=3), folder, seed=3))
    return folder


def first_choice(run: Path, share: float) -> tuple[UnitChoice, SplitRows]:
    """A choice of one unit of each layer of the run, before more training, and the rows of the run."""
    whole = read_whole_network(run, SourceOptions(), 0, Steps())
    rows = read_split_rows("digits", whole.network.inputs, record=whole.network.training)
    layers = find_removable_layers(whole.graph.model, whole.graph.gates.gates).layers
    kept = {layer.gate.name: [0] for layer in layers}
    return UnitChoice(whole, Cutter(whole.graph, layers), kept, share), rows


def test_a_cut_that_costs_answers_wins_them_back(run: Path, tmp_path: Path) -> None:
    """Training after the cut; the file is proved against the checkpoint that it leaves beside its source."""
    cut = compress_model(run, tmp_path, data="digits", keep=0.1)
    trained = compress_model(run, tmp_path, data="digits", keep=0.1, finetune_epochs=3)
    assert cut.point.metric is not None
    assert trained.point.metric is not None
    assert trained.point.metric > cut.point.metric
    compression = trained.manifest.compression
    assert compression is not None
    assert (compression.units, compression.units_whole, compression.finetune_epochs) == (5, 48, 3)
    # the run's own split: half of the 1,797 rows were not trained on
    assert compression.rows == 898
    assert cut.finetuned is None
    assert trained.finetuned is not None
    assert trained.finetuned.parent == run
    assert trained.finetuned.match("tiny-cut-*.safetensors")
    assert verify_model(trained.path, trained.finetuned).manifest.compression == compression

    # the trained network computes the same without being cut
    whole = export_model(trained.finetuned, tmp_path / "whole")
    x = load_dataset("digits").test.x.numpy().astype(np.float32)
    answers = [open_model(path).run({"x": x}, ["output"])[0] for path in (whole.path, trained.path)]
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-4)


@pytest.mark.slow
def test_cuts_go_on_while_the_limit_is_kept(run: Path, tmp_path: Path) -> None:
    """Fewer units than without training, within the same limit on the validation rows."""
    cut = compress_model(run, tmp_path, data="digits", max_drop=1)
    trained = compress_model(run, tmp_path, data="digits", max_drop=1, finetune_epochs=3)
    assert trained.point.share < cut.point.share
    assert trained.point.metric is not None
    assert trained.manifest.compression is not None
    assert trained.manifest.compression.metric_whole is not None
    assert trained.point.metric > trained.manifest.compression.metric_whole - 0.03


def test_only_checkpoints_can_be_trained(run: Path, tmp_path: Path) -> None:
    """And only on the data of their run. Nothing is written."""
    exported = export_model(run, tmp_path / "source")
    repository = tmp_path / "repository"
    for source, data, expected in (
        (
            exported.path,
            "digits",
            r"expected the folder or checkpoint of a training run, got another source",
        ),
        (
            run,
            "drawn-digits",
            r"expected as --data what the network was trained on, 'digits', got other rows",
        ),
    ):
        with pytest.raises(UsageError, match=f"--finetune-epochs: {expected}"):
            compress_model(source, repository, data=data, keep=0.5, finetune_epochs=1)
    with pytest.raises(UsageError, match="--finetune-epochs: expected 0 or more, got -1"):
        compress_model(run, repository, data="digits", keep=0.5, finetune_epochs=-1)
    assert not list(repository.rglob("model.onnx"))


def test_the_limit_is_that_of_the_validation_rows(run: Path) -> None:
    """Only further cuts need these rows."""
    choice, rows = first_choice(run, share=0.1)
    assert rows.dataset is not None
    valid = rows.dataset.valid
    dataset = replace(rows.dataset, valid=Split(valid.x[:0], valid.y[:0]))
    rows = replace(rows, dataset=dataset)
    with pytest.raises(SourceError, match=r"--data: digits: x: expected shape .*, got \(0, 1, 8, 8\)"):
        train_choice(choice, run, rows, epochs=1, max_drop=1, seed=0, steps=Steps())


def test_the_smallest_share_is_trained_and_not_cut_further(run: Path) -> None:
    """The search may choose a share so small that two thirds of it are too few."""
    choice, rows = first_choice(run, share=MIN_SHARE)
    steps = Steps()
    trained = train_choice(choice, run, rows, epochs=1, max_drop=100, seed=0, steps=steps)
    assert (trained.share, trained.kept) == (choice.share, choice.kept)
    assert trained.checkpoint is not None
    assert [step for step in steps.seconds if step.startswith("fine-tune")] == ["fine-tune 1.0%"]


@pytest.mark.slow
def test_a_limit_that_training_cannot_keep_is_an_error(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the share and the loss."""
    monkeypatch.setattr("turnpike.export.compress.finetuning.points_lost", lambda comparison, quality: 7.5)
    with pytest.raises(
        CompressionError, match=r"--max-drop: expected to lose at most 0.5 points .* loses 7.50"
    ):
        compress_model(run, tmp_path, data="digits", max_drop=0.5, finetune_epochs=1)
    assert not list(tmp_path.rglob("*.onnx"))
