"""Fitted transformers of scikit-learn become a part of the network, and compute what they did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from torch import nn

from turnpike.export.errors import ExportError, SourceError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.pipeline import export_model
from turnpike.export.sources.preprocess import compose
from turnpike.export.sources.preprocess.compose import with_preprocessing
from turnpike.export.sources.preprocess.translate import translate

ROWS = 300
RANDOM = np.random.default_rng(1)
NUMBERS = RANDOM.normal(50, 10, (ROWS, 3))
WITH_BLANKS = np.where(RANDOM.random(NUMBERS.shape) < 0.1, np.nan, NUMBERS)
COUNTS = RANDOM.integers(3, 6, (ROWS, 2)).astype(float)
WORDS = np.array([["red", "green", "blue"][n] for n in RANDOM.integers(0, 3, ROWS)], dtype=object)
WORDS_OR_NONE = WORDS.copy()
WORDS_OR_NONE[RANDOM.random(ROWS) < 0.1] = None
TWO_WORDS = np.column_stack([WORDS, WORDS_OR_NONE])
MIXED = np.empty((ROWS, 3), dtype=object)
MIXED[:, 0], MIXED[:, 1] = NUMBERS[:, 0], WORDS
MIXED[:, 2] = [bool(number) for number in RANDOM.integers(0, 2, ROWS)]


def network_of(values: int) -> Network:
    return Network("net", "module", parse_inputs([f"x:float32[batch,{values}]"]), module=nn.Linear(values, 2))


def composed(transformer: Any, rows: Any) -> Network:
    values = transformer.fit(rows).transform(rows).shape[1]
    return with_preprocessing(network_of(values), transformer)


@pytest.mark.parametrize(
    ("transformer", "rows"),
    [
        (preprocessing.StandardScaler(), NUMBERS),
        (preprocessing.StandardScaler(with_mean=False), NUMBERS),
        (preprocessing.StandardScaler(with_std=False), NUMBERS),
        (preprocessing.MinMaxScaler((-1, 1), clip=True), NUMBERS),
        (preprocessing.MaxAbsScaler(), NUMBERS),
        (preprocessing.RobustScaler(), NUMBERS),
        (preprocessing.RobustScaler(with_centering=False, with_scaling=False), NUMBERS),
        (preprocessing.Normalizer("l1"), NUMBERS),
        (preprocessing.Normalizer("l2"), NUMBERS),
        (preprocessing.Normalizer("max"), NUMBERS),
        (preprocessing.Binarizer(threshold=50), NUMBERS),
        (preprocessing.FunctionTransformer(np.log1p), NUMBERS),
        (make_pipeline(SimpleImputer(strategy="median"), preprocessing.StandardScaler()), WITH_BLANKS),
        (make_pipeline(SimpleImputer(add_indicator=True), preprocessing.StandardScaler()), WITH_BLANKS),
        (SimpleImputer(strategy="constant", fill_value=-1), WITH_BLANKS),
        (preprocessing.OneHotEncoder(), TWO_WORDS),
        (preprocessing.OneHotEncoder(handle_unknown="ignore", drop="first"), TWO_WORDS),
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), COUNTS),
        (preprocessing.OrdinalEncoder(), COUNTS),
        (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), TWO_WORDS),
        (
            make_pipeline(SimpleImputer(strategy="most_frequent"), preprocessing.OneHotEncoder()),
            WORDS[:, None],
        ),
        (FeatureUnion([("a", preprocessing.StandardScaler()), ("b", preprocessing.MinMaxScaler())]), NUMBERS),
        (Pipeline([("none", "passthrough"), ("scale", preprocessing.StandardScaler())]), NUMBERS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_transformer_becomes_a_part_of_the_network(transformer: Any, rows: Any) -> None:
    """The comparison with its own transform, on drawn rows with blanks and unseen values, has to pass."""
    (note,) = composed(transformer, rows).messages.notes
    assert f"{type(transformer).__name__} is a part of the file, within " in note


def column_transformer(remainder: str = "drop") -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(), preprocessing.StandardScaler())
    words = preprocessing.OneHotEncoder(handle_unknown="ignore")
    return ColumnTransformer(
        [("numbers", numbers, [0]), ("words", words, [1])],
        remainder=remainder,
        transformer_weights={"numbers": 2.0},
    )


@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
def test_columns_of_every_kind(remainder: str) -> None:
    network = composed(column_transformer(remainder), MIXED[:, :2] if remainder == "passthrough" else MIXED)
    assert [(feature.name, feature.kind, feature.blanks) for feature in network.features] == [
        ("x0", "number", True),
        ("x1", "category", True),
    ]
    assert network.features[1].categories == ("blue", "green", "red")
    left_out = [
        note for note in network.messages.notes if "does not take columns that are not used: x2" in note
    ]
    assert len(left_out) == (remainder == "drop")


def test_a_difference_from_the_transform_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of a single value in few rows."""
    transformer = preprocessing.StandardScaler().fit(NUMBERS)
    transform = transformer.transform

    def other(rows: Any) -> Any:
        values = transform(rows)
        values[-1, 1] += 0.01
        return values

    monkeypatch.setattr(transformer, "transform", other)
    with pytest.raises(SourceError, match=r"value 1 is another one than that of its transform .*1\.0e-02"):
        with_preprocessing(network_of(3), transformer)


def test_columns_with_too_many_digits_for_float32_are_an_error() -> None:
    with pytest.raises(SourceError, match="float32 may have too few digits"):
        composed(preprocessing.StandardScaler(), NUMBERS * 1e-6 + 1e6)


@pytest.mark.parametrize(
    ("transformer", "rows", "reason"),
    [
        (preprocessing.PowerTransformer(), NUMBERS, "PowerTransformer cannot be a part of the network"),
        (preprocessing.FunctionTransformer(lambda x: x), NUMBERS, "FunctionTransformer of <lambda> cannot"),
        (
            preprocessing.OneHotEncoder(min_frequency=0.4, handle_unknown="infrequent_if_exist"),
            TWO_WORDS,
            "OneHotEncoder with infrequent categories cannot",
        ),
        (
            Pipeline(
                [("first", preprocessing.StandardScaler()), ("second", preprocessing.PowerTransformer())]
            ),
            NUMBERS,
            "Pipeline, step 'second': PowerTransformer cannot",
        ),
        (SimpleImputer(missing_values=-1), NUMBERS, "SimpleImputer of -1, which is no blank, cannot"),
        (
            preprocessing.OneHotEncoder(),
            np.where(WORDS == "red", "NA", WORDS)[:, None],
            "column 0: the category 'NA' would be read as a blank",
        ),
        (
            preprocessing.OneHotEncoder(),
            np.where(WORDS == "red", " blue", WORDS)[:, None],
            "column 0: the category ' blue' would be read as 'blue'",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_translated(transformer: Any, rows: Any, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        composed(transformer, rows)


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (preprocessing.StandardScaler, SourceError, "expected a fitted transformer: call its fit"),
        (lambda: "scaler", SourceError, "expected a fitted transformer, got str"),
        (lambda: preprocessing.StandardScaler().fit(NUMBERS), SourceError, "expected the 5 values .* got 3"),
    ],
)
def test_what_does_not_fit(make: Callable[[], Any], error: type[ExportError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        with_preprocessing(network_of(5), make())


def test_a_network_of_other_inputs_is_refused() -> None:
    transformer = preprocessing.StandardScaler().fit(NUMBERS)
    images = Network("net", "module", parse_inputs(["x:float32[batch,1,8,8]"]), module=nn.Identity())
    with pytest.raises(UsageError, match="one input of rows and columns"):
        with_preprocessing(images, transformer)


def table(folder: Path, rows: int = 40) -> Path:
    """A table with the columns of a fitted DataFrame in another order, and the answers."""
    lines = ["class,colour,weight"]
    for row in range(rows):
        weight = "" if row % 7 == 3 else f"{NUMBERS[row, 0]:.3f}"
        lines.append(f"{'ab'[row % 2]},{WORDS[row]},{weight}")
    path = folder / "table.csv"
    path.write_text("\n".join(lines))
    return path


def fitted_to_a_frame() -> tuple[Any, Any]:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"weight": WITH_BLANKS[:, 0], "colour": WORDS})
    numbers = make_pipeline(SimpleImputer(add_indicator=True), preprocessing.StandardScaler())
    words = preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("n", numbers, ["weight"]), ("w", words, ["colour"])]).fit(frame), frame


def test_the_file_takes_the_rows_from_before(tmp_path: Path) -> None:
    """It is the same function as the composition, knows the columns, and answers as both together do."""
    transformer, frame = fitted_to_a_frame()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    result = export_model(
        module,
        tmp_path,
        name="net",
        inputs=["x:float32[batch,5]"],
        preprocess=transformer,
        data=table(tmp_path),
    )
    manifest = result.manifest
    assert manifest.identity is not None
    assert manifest.identity.verdict == "identical"
    weight, colour = manifest.features
    assert (weight.name, weight.kind, weight.blanks) == ("weight", "number", True)
    assert (colour.name, colour.categories) == ("colour", ("blue", "green", "red"))
    from turnpike.service.artifact.runtime import open_model

    rows = np.column_stack([frame["weight"], [colour.form.number_of(word) for word in frame["colour"]]])
    (answer,) = open_model(result.path).run({"x": rows.astype(np.float32)}, ["output"])
    with torch.no_grad():
        expected = module(torch.from_numpy(transformer.transform(frame)).float())
    np.testing.assert_allclose(answer, expected, atol=1e-5)


def test_columns_that_are_not_used_are_not_asked_for(tmp_path: Path) -> None:
    """A table may have them, as what was fitted had; the class is the column that is new."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": np.arange(len(NUMBERS)), "weight": NUMBERS[:, 0]})
    transformer = ColumnTransformer([("n", preprocessing.StandardScaler(), ["weight"])]).fit(frame)
    path = tmp_path / "table.csv"
    frame.assign(kind=["ab"[row % 2] for row in range(len(frame))]).to_csv(path, index=False)
    options = {"inputs": ["x:float32[batch,1]"], "preprocess": transformer, "data": path}
    result = export_model(nn.Linear(1, 2), tmp_path, name="net", **options)
    assert [feature.name for feature in result.manifest.features] == ["weight"]
    assert result.manifest.labels == ("a", "b")
    assert "the file does not take columns that are not used: id" in result.notes


def test_ranges_are_those_of_all_rows(tmp_path: Path) -> None:
    """Also of those that nothing is measured on."""
    pandas = pytest.importorskip("pandas")
    weights = np.linspace(0, 1, 5000)
    frame = pandas.DataFrame({"weight": weights})
    transformer = preprocessing.StandardScaler().fit(frame)
    path = tmp_path / "table.csv"
    frame.assign(kind=["ab"[row % 2] for row in range(len(frame))]).to_csv(path, index=False)
    options = {"inputs": ["x:float32[batch,1]"], "preprocess": transformer, "data": path}
    (weight,) = export_model(nn.Linear(1, 2), tmp_path, name="net", **options).manifest.features
    assert (weight.low, weight.high) == (0, 1)


def test_words_need_rows(tmp_path: Path) -> None:
    transformer, _ = fitted_to_a_frame()
    with pytest.raises(UsageError, match="preprocess: expected --data with rows of the table"):
        export_model(nn.Linear(5, 2), tmp_path, inputs=["x:float32[batch,5]"], preprocess=transformer)
    assert not list(tmp_path.iterdir())


def test_rows_are_drawn_with_blanks_and_unseen_values() -> None:
    """Where the transformer allows them, and nowhere else."""
    encoder = preprocessing.OneHotEncoder(handle_unknown="ignore").fit(WORDS[:, None])
    needs = [need for need in translate(encoder, "encoder").needs if need is not None]
    (column,) = compose.draw_rows(needs).T
    assert np.isnan(column).any()
    assert set(column[~np.isnan(column)]) == {0, 1, 2, 3}
    scaler = preprocessing.StandardScaler().fit(NUMBERS)
    needs = [need for need in translate(scaler, "scaler").needs if need is not None]
    rows = compose.draw_rows(needs)
    np.testing.assert_allclose(rows.mean(0), NUMBERS.mean(0), atol=3)
    assert np.isfinite(rows).all()
