"""Measures what `turnpike compress` saves in networks that know nothing of turnpike, without training.

    python -m benchmarks.compression.foreign [--data-dir DIR] [--seeds N] [--only NAME]

Each network is plain PyTorch, trained without any penalty on its gates, and written by `torch.onnx.export`.
The compression gets this file and rows without classes: half of the held-out rows to choose units on, and
the other half for the table. DIR has a folder for each public data set. Trained networks are kept in
`.bench/foreign`, so that a second run only compresses and times.

Bias: the networks are small, and are trained for a few minutes. Those of few or open gates lose answers
early; they are in the table as well. The times need an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.compression.foreign_networks import CharacterCnn, ConvHighwayNetwork
from benchmarks.folders import WORK_FOLDER
from benchmarks.results.tables import markdown_table
from turnpike.export.compress.agreement import AnswerComparison
from turnpike.export.compress.graph.cut_graph import FORMS
from turnpike.export.compress.graph.removable_layers import find_removable_layers
from turnpike.export.compress.remove_units import compress_model
from turnpike.export.compress.selection import rank_units, search_share
from turnpike.export.compress.trials import Cutter, measure_point
from turnpike.export.compress.whole_network import read_whole_network
from turnpike.export.errors import CompressionError
from turnpike.export.network import Rows
from turnpike.export.options import SourceOptions
from turnpike.export.sources.data.rows import read_split_rows
from turnpike.export.steps import Steps
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.load import load_dataset
from turnpike.service.artifact.manifest import CompressionPoint

FOLDER = WORK_FOLDER / "foreign"
BATCH_ROWS, LEARNING_RATE = 64, 1e-3
# points of equal answers that may be lost on the rows that units are chosen on
MAX_DROP = 0.5
SHARES = (0.8, 0.6, 0.5, 0.4, 0.3, 0.2)


@dataclass(frozen=True)
class ForeignNetwork:
    """A network to train and compress.

    Attributes:
        dataset: Name of its data set.
        make: Makes the module for the data.
        epochs: Passes over the training rows.
        test_fraction: Share of the rows to hold out, for data without test rows.
    """

    dataset: str
    make: Callable[[Dataset], nn.Module]
    epochs: int
    test_fraction: float | None = None


NETWORKS = {
    "character CNN, 2 fused layers of 512, names": ForeignNetwork(
        "names", lambda data: CharacterCnn(len(data.alphabet), data.classes), 5, test_fraction=0.4
    ),
    "convolutional, 16 layers of 32, MNIST": ForeignNetwork(
        "mnist", lambda _: ConvHighwayNetwork([(32, 16)], gate_bias=-3), 1
    ),
    "convolutional, 16 layers of 32, Fashion-MNIST": ForeignNetwork(
        "fashion-mnist", lambda _: ConvHighwayNetwork([(32, 16)], gate_bias=-3), 1
    ),
    "convolutional, 4 layers of 32 and 4 of 64, MNIST": ForeignNetwork(
        "mnist", lambda _: ConvHighwayNetwork([(32, 4), (64, 4)], gate_bias=-2), 1
    ),
}


@dataclass(frozen=True)
class Measurement:
    """What one trained network gave.

    Attributes:
        accuracy: The share of right answers before.
        searched: The smallest share of units that keeps the limit; None if there is none.
        points: Other shares.
        written: The form of the file that `turnpike compress` wrote, or why it wrote none.
    """

    accuracy: float
    searched: CompressionPoint | None
    points: tuple[CompressionPoint, ...]
    written: str


def train(network: ForeignNetwork, data: Dataset, seed: int) -> nn.Module:
    """Train as most do: cross-entropy, Adam, random batches."""
    torch.manual_seed(seed)
    module = network.make(data)
    optimizer = torch.optim.Adam(module.parameters(), LEARNING_RATE)
    module.train()
    for _ in range(network.epochs):
        for batch in torch.randperm(len(data.train)).split(BATCH_ROWS):  # type: ignore[no-untyped-call]
            if len(batch) < BATCH_ROWS:
                continue
            loss = nn.functional.cross_entropy(module(as_input(data.train.x[batch])), data.train.y[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return module.eval()


def as_input(x: Tensor) -> Tensor:
    """Pixels from 0 to 1; ids of characters as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def write_files(network: ForeignNetwork, data: Dataset, seed: int, folder: Path) -> None:
    """Write `model.onnx`, and held-out rows as `rows.npz`."""
    folder.mkdir(parents=True, exist_ok=True)
    x = as_input(data.test.x)
    np.savez(folder / "rows.npz", x=x.numpy())
    torch.onnx.export(
        train(network, data, seed),
        (x[:2],),
        folder / "model.onnx",
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        verbose=False,
    )


def measure(folder: Path, classes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Measurement:
    """Compress the file of a folder. The classes of the rows are used for the table alone."""
    steps = Steps()
    whole = read_whole_network(folder / "model.onnx", SourceOptions(), 0, steps)
    rows = read_split_rows(folder / "rows.npz", whole.network.inputs)
    layers = find_removable_layers(whole.graph.model, whole.graph.gates.gates).layers
    cutter = Cutter(whole.graph, layers)
    ranking = rank_units(whole, cutter, rows.calibration)
    judged = replace(rows, test=Rows(rows.test.inputs, classes[1::2]))
    comparison = AnswerComparison(cutter.runtime, cutter.output, judged.test)

    def point(share: float) -> CompressionPoint:
        """The faster of the two forms."""
        kept = ranking.choose(share).kept
        cuts = [cutter.cut(kept, form) for form in FORMS]
        points = [measure_point(cutter, comparison, cut, cut.runtime, judged.test) for cut in cuts]
        return max(points, key=lambda point: statistics.geometric_mean(point.faster.values()))

    try:
        share = search_share(ranking, rows.calibration, MAX_DROP, steps)
    except CompressionError as error:
        return Measurement(comparison.accuracy_whole or 0, None, tuple(map(point, SHARES)), str(error))
    try:
        with tempfile.TemporaryDirectory() as repository:
            compress_model(folder / "model.onnx", repository, data=folder / "rows.npz", keep=share)
        written = "written and proved"
    except CompressionError as error:
        written = str(error)
    return Measurement(comparison.accuracy_whole or 0, point(share), tuple(map(point, SHARES)), written)


def table(name: str, measurements: Sequence[Measurement]) -> str:
    """The means and standard deviations over the seeds."""
    head = [name, "units", "multiplications", "times fewer", "equal answers", "accuracy", "1 row", "8", "64"]
    accuracy = mean_and_sd([measurement.accuracy for measurement in measurements], 100)
    rows = [["whole", "100 %", "100 %", "1", "100 %", f"{accuracy} %", "1", "1", "1"]]
    searched = [measurement.searched for measurement in measurements if measurement.searched is not None]
    label = f"at most {MAX_DROP} points lost where chosen"
    if len(searched) < len(measurements):
        label += f" ({len(searched)} of {len(measurements)} seeds)"
    if searched:
        rows.append([label, *figures(searched)])
    by_share = zip(*(measurement.points for measurement in measurements), strict=True)
    rows += [[f"keep {share}", *figures(points)] for share, points in zip(SHARES, by_share, strict=True)]
    return markdown_table(head, rows)


def figures(points: Sequence[CompressionPoint]) -> list[str]:
    """The cells of one row."""
    return [
        f"{mean_and_sd([point.share for point in points], 100)} %",
        f"{mean_and_sd([point.macs for point in points], 100)} %",
        mean_and_sd([1 / point.macs for point in points], digits=2),
        f"{mean_and_sd([point.agreement or 0 for point in points], 100, 2)} %",
        f"{mean_and_sd([point.metric or 0 for point in points], 100, 2)} %",
        *(mean_and_sd([point.faster[size] for point in points], digits=2) for size in (1, 8, 64)),
    ]


def mean_and_sd(numbers: Sequence[float], factor: float = 1, digits: int = 1) -> str:
    """The mean and, if there are several numbers, the standard deviation."""
    mean = f"{factor * statistics.mean(numbers):.{digits}f}"
    return f"{mean} ± {factor * statistics.stdev(numbers):.{digits}f}" if len(numbers) > 1 else mean


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compression.foreign", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="folder with a folder for each public data set")
    parser.add_argument("--seeds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--only", default="", help="only networks with this in their names")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, network in NETWORKS.items():
        if arguments.only not in name:
            continue
        measurements = []
        for seed in range(arguments.seeds):
            data_dir = None if arguments.data_dir is None else arguments.data_dir / network.dataset
            data = load_dataset(
                network.dataset, test_fraction=network.test_fraction, data_dir=data_dir, seed=seed
            )
            folder = FOLDER / name.replace(", ", "-").replace(" ", "-") / str(seed)
            if not (folder / "model.onnx").exists():
                write_files(network, data, seed, folder)
            measurements.append(measure(folder, data.test.y.numpy()))
            print(f"{name}, seed {seed}: {measurements[-1].written}", flush=True)
        print(f"\n{table(name, measurements)}\n", flush=True)


if __name__ == "__main__":
    main()
