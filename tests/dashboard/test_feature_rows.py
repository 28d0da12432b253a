"""Rows of a table: read from CSV or refused, drawn at random, and written with their predictions."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.dashboard_repository import MARKUP
from tests.support.page_modules import PageModules, page_modules
from turnpike.service.artifact.manifest import Feature
from turnpike.service.codec.tables.predictions import predictions_csv

FEATURES = (
    Feature(name="mass", unit="kg", low=0, high=4, mean=1.25, sd=1),
    Feature(name="a, b", unit="b", low=-1, high=1, mean=0, sd=5),
    Feature(name=MARKUP, unit="<i>m</i>", low=1000, high=3000, mean=2000, sd=100),
    Feature(name="same", low=2, high=2, mean=2, sd=0),
)
X = np.array([[1, 0.5, 1500, 2], [3.5, -1, 2500, 2], [0.25, 0.125, 1000, 2]])
HEADER = ["id", "same", MARKUP, "a, b", "mass"]
TABLE = [HEADER, *([f"row, {n}", *map(str, row[::-1])] for n, row in enumerate(X.tolist()))]
READ = """async ([text, features]) => {
  const { readFeatureTable } = await import("/dashboard/inputs/feature_rows.js");
  try { return readFeatureTable(text, features).rows.map(({ values }) => values); }
  catch (error) { return error.message; }
}"""
DRAW = """async (features) => {
  const { randomFeatures } = await import("/dashboard/inputs/feature_rows.js");
  return Array.from({ length: 2000 }, () => randomFeatures(features));
}"""
COLUMNS = """async ([predictions, certificate]) => {
  const { predictionColumns } = await import("/dashboard/inputs/scored_table.js");
  return predictions.map((prediction) => Object.entries(predictionColumns(prediction, certificate)));
}"""
LABELLED = {"label": "b", "probability": 0.75, "probabilities": {"a": 0.25, "b": 0.75}}
PREDICTIONS = [
    {**LABELLED, "outputs": {"y": [1, 2]}},
    {**LABELLED, "outputs": {"y": [1, 2], "margin": 0.5, "more": [3, 4]}},
    {"outputs": {"y": [1, 2]}},
    {"outputs": {"y": 1, "z": [[2, 3], [4, 5]]}},
    # with --old-predict
    LABELLED,
    [1, 2],
    1.5,
    {"y": 1, "z": [2, 3]},
]


@pytest.fixture(scope="module")
def modules() -> Iterator[PageModules]:
    with page_modules() as modules:
        yield modules


def csv_of(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def features() -> list[dict[str, Any]]:
    return [feature.model_dump() for feature in FEATURES]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (csv_of(TABLE), X.tolist()),
        ("\ufeff" + csv_of(TABLE).replace("\r\n", "\n\n"), X.tolist()),
        ("1,2,3,4\r\n5,6,7,8", [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ("", "expected rows, got an empty file"),
        (csv_of(TABLE[:1]), "expected rows after the names, got none"),
        ("a,b\n1,2\n", 'expected a column "mass", which is missing; other columns are "a", "b"'),
        ("1,2,3,4\n1,2,3\n", "line 2: expected 4 columns, got 3"),
        ("1,2,3,4\n\n1,2,,4\n", f'line 3, column "{MARKUP}": expected a number, got ""'),
        ("1,2,3,4\n1,nan,3,4\n", 'line 2, column "a, b": expected a number, got "nan"'),
        ('1,2,3,"4\n', "line 1: expected quotes around a whole cell, and doubled within"),
    ],
)
def test_tables_are_read(modules: PageModules, text: str, result: Any) -> None:
    """Columns may be in any order and among others; errors name the line and the column."""
    assert modules.evaluate(READ, [text, features()]) == result


def test_random_rows_are_like_real_ones(modules: PageModules) -> None:
    """They have the mean and standard deviation of each feature, and stay within its range."""
    drawn = np.array(modules.evaluate(DRAW, features()))
    for feature, column in zip(FEATURES, drawn.T, strict=True):
        assert feature.low <= column.min() <= column.max() <= feature.high
    assert drawn[:, 2].mean() == pytest.approx(2000, abs=5 * 100 / math.sqrt(2000))
    assert drawn[:, 2].std() == pytest.approx(100, rel=0.1)
    # a wide distribution is clipped to both ends
    assert {-1, 1} <= set(drawn[:, 1])


def test_a_scored_table_has_the_columns_of_the_service(modules: PageModules) -> None:
    """Those of its CSV, for every form of predictions; but a number is named by what the model predicts."""
    got = modules.evaluate(COLUMNS, [PREDICTIONS, {"task": "classes"}])
    for columns, prediction in zip(got, PREDICTIONS, strict=True):
        header, row = csv.reader(io.StringIO(predictions_csv([prediction])))
        assert [[name, str(value)] for name, value in columns] == [*map(list, zip(header, row, strict=True))]
    price = {"task": "number", "target": "price"}
    forms = [{"value": 2.5, "outputs": {"y": [2.5]}}, [2.5], 2.5]
    assert modules.evaluate(COLUMNS, [forms, price]) == [[["predicted price", 2.5]]] * 3
