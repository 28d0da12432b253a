"""Trains what a cut leaves of a checkpoint, and cuts further as long as a limit is kept."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from turnpike.common.durable_files import WriteError, replacing
from turnpike.export.compress.agreement import AnswerComparison, points_lost
from turnpike.export.compress.graph.removable_layers import RemovableLayer, find_removable_layers
from turnpike.export.compress.selection import MIN_SHARE, UnitChoice, rank_units
from turnpike.export.compress.trials import Cutter
from turnpike.export.compress.whole_network import WholeNetwork, read_whole_network
from turnpike.export.errors import CompressionError, UsageError, errors_of_option
from turnpike.export.network import Network, Rows
from turnpike.export.options import SourceOptions
from turnpike.export.output.repository import expect_writable
from turnpike.export.sources.data.rows import MAX_TEST_ROWS, SplitRows, dataset_rows
from turnpike.export.steps import Steps
from turnpike.models.errors import ModelsError
from turnpike.models.training.finetune import finetune
from turnpike.models.training.run_plan import BEST_CHECKPOINT
from turnpike.models.training.train import StepReport

# the share of units of each further cut, in terms of that before
SHARE_STEP = 2 / 3


def train_choice(
    choice: UnitChoice,
    checkpoint: Path,
    rows: SplitRows,
    epochs: int,
    max_drop: float | None,
    seed: int,
    steps: Steps,
) -> UnitChoice:
    """Train the units of a choice, and choose fewer of them as long as a limit is kept, if there is one.

    Args:
        choice: The choice without training.
        checkpoint: The network, or the folder of its run.
        rows: Its data set, split as in its training.
        epochs: Passes over the training rows after each choice.
        max_drop: The limit: points that may be lost on the validation rows.
        seed: Seed of the random rows that parity is proved on.
        steps: The steps that are shown to the user.
    """
    with TemporaryDirectory(prefix="turnpike-") as folder:
        tuner = _FineTuner(checkpoint, rows, epochs, Path(folder), seed, steps)
        return tuner.train(choice) if max_drop is None else tuner.train_and_cut_further(choice, max_drop)


class _FineTuner:
    """Trains the units of one checkpoint that are kept.

    Args:
        checkpoint: The network, or the folder of its run.
        rows: Its data set, split as in its training.
        epochs: Passes over the training rows after each cut.
        folder: An empty folder for checkpoints.
        seed: Seed of the random rows that parity is proved on.
        steps: The steps that are shown to the user.
    """

    def __init__(
        self, checkpoint: Path, rows: SplitRows, epochs: int, folder: Path, seed: int, steps: Steps
    ) -> None:
        if rows.dataset is None:
            raise ValueError("rows: expected those of a data set")
        self._checkpoint = checkpoint / BEST_CHECKPOINT if checkpoint.is_dir() else checkpoint
        self._rows, self._dataset = rows, rows.dataset
        self._epochs, self._folder, self._seed, self._steps = epochs, folder, seed, steps

    def train(self, choice: UnitChoice) -> UnitChoice:
        """The same units of the network after training with its other units shut."""
        with self._steps.step(f"fine-tune {choice.share:.1%}"):
            try:
                self._checkpoint = finetune(
                    self._checkpoint,
                    {_module_name(layer): choice.kept[layer.gate.name] for layer in choice.cutter.layers},
                    self._dataset,
                    self._epochs,
                    self._folder / f"{choice.share:.6f}",
                    on_step=self._show,
                )
            except (ModelsError, WriteError) as error:
                raise CompressionError(f"--finetune-epochs: {error}") from error
        # its graph is proved as well, since the cut graph is compared with it
        options = SourceOptions(name=choice.whole.network.name)
        whole = read_whole_network(self._checkpoint, options, self._seed, self._steps)
        layers = find_removable_layers(whole.graph.model, whole.graph.gates.gates).layers
        if [layer.gate.name for layer in layers] != list(choice.kept):
            raise CompressionError("--finetune-epochs: expected the gates of the source, got others")
        cutter = Cutter(whole.graph, layers)
        return UnitChoice(whole, cutter, choice.kept, choice.share, self._checkpoint.read_bytes())

    def train_and_cut_further(self, choice: UnitChoice, max_drop: float) -> UnitChoice:
        """The smallest of a series of choices that loses at most `max_drop` points on the validation rows.

        The first one is `choice`, whatever its share. Each further one keeps two thirds of the units of that
        before, which was trained, and more than MIN_SHARE of all.
        """
        validation = self._validation_rows(choice.whole.network)
        comparison = AnswerComparison(choice.cutter.runtime, choice.cutter.output, validation)

        def points_lost_by(trained: UnitChoice) -> float:
            cut = trained.cutter.cut(trained.kept)
            return points_lost(comparison, comparison.quality_of(cut.runtime))

        trained = self.train(choice)
        lost = points_lost_by(trained)
        if lost > max_drop:
            raise CompressionError(
                f"--max-drop: expected to lose at most {max_drop:g} points on the validation rows, and with "
                f"{choice.share:.1%} of the units, training loses {lost:.2f}: use --keep, or train longer"
            )
        while trained.share * SHARE_STEP > MIN_SHARE:
            smaller = self.train(self._smaller(trained))
            if points_lost_by(smaller) > max_drop:
                break
            trained = smaller
        return trained

    def _smaller(self, trained: UnitChoice) -> UnitChoice:
        """Two thirds of the units that a trained network has left: those that are most important now."""
        ranking = rank_units(trained.whole, trained.cutter, self._rows.calibration)
        return ranking.choose(trained.share * SHARE_STEP)

    def _validation_rows(self, network: Network) -> Rows:
        """The validation rows of the data set, for the inputs of a network."""
        validation = replace(self._dataset, test=self._dataset.valid)
        with errors_of_option("--data"):
            rows, _ = dataset_rows(
                validation, network.inputs, network.labels, network.features, MAX_TEST_ROWS
            )
        return rows

    def _show(self, report: StepReport) -> None:
        self._steps.listener.advanced(report.step, report.steps)


def expect_trainable(source: object, whole: WholeNetwork, rows: SplitRows) -> Path:
    """The path of a source, which must be a checkpoint of `turnpike train` that was trained on these rows.

    The trained network is written beside it.
    """
    record = whole.network.training
    if not isinstance(source, str | Path) or record is None:
        raise UsageError(
            "--finetune-epochs: expected the folder or checkpoint of a training run, got another source: an "
            "exported file cannot be trained, the run that it was exported from can"
        )
    if rows.dataset is None or rows.dataset.digest != record.data.get("digest"):
        raise UsageError(
            f"--finetune-epochs: expected as --data what the network was trained on, "
            f"{record.data.get('name')!r}, got other rows"
        )
    checkpoint = Path(source)
    expect_writable(_run_folder(checkpoint), "SOURCE")
    return checkpoint


def save_finetuned(checkpoint: Path | None, choice: UnitChoice, name: str) -> Path | None:
    """Save the network that was trained after the cut beside its source; `turnpike verify` needs it.

    Args:
        checkpoint: The source, or the folder of its run; None if nothing was trained.
        choice: Has the trained network.
        name: Name of the model.
    """
    if checkpoint is None or choice.checkpoint is None:
        return None
    # named by its content, so that it takes the place of no other network
    digest = hashlib.sha256(choice.checkpoint).hexdigest()[:12]
    path = _run_folder(checkpoint) / f"{name}-cut-{digest}.safetensors"
    with replacing(path) as draft:
        draft.write_bytes(choice.checkpoint)
    return path


def _run_folder(checkpoint: Path) -> Path:
    """The folder of a training run, given as such or as a file in it."""
    return checkpoint if checkpoint.is_dir() else checkpoint.parent


def _module_name(layer: RemovableLayer) -> str:
    """The name of a layer's module, whose gate has the first lever as its bias."""
    name, found, _ = layer.gate.levers[0].tensor.rpartition(".gate.bias") if layer.gate.levers else ("",) * 3
    if not found:
        raise CompressionError(
            f"--finetune-epochs: {layer.gate.name}: expected a gate with a bias, it has none"
        )
    return name
