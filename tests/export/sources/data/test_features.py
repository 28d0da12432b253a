"""The columns of a table: from a training run, or named by the user and described by the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_checkpoint import tiny_record
from turnpike.export.errors import SourceError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network, Rows
from turnpike.export.sources.data.features import named_features, recorded_features
from turnpike.export.sources.data.rows import read_rows
from turnpike.service.artifact.manifest import Feature

ROWS = np.array([[1, 5], [3, 5]], np.float32)
SOURCE = Network("net", "module", parse_inputs(["x:float32[batch,2]"]), rows=Rows({"x": ROWS}))
RECORDED = [
    {"name": name, "unit": "", "low": 0, "high": 9, "mean": 4.5, "sd": 3} for name in ("a", "b", "c", "d")
]

FEATURES = [Feature.model_validate(entry) for entry in RECORDED]


def record_of(features: Any) -> Any:
    """The record of a training run on a table with a column `class`."""
    record = tiny_record()
    return replace(record, data=record.data | {"features": features, "target": "class"})


def save_table(folder: Path, *columns: str) -> Path:
    """A table whose column a has 0, 10, 20, ..., b has 1, 11, 21, ..., and so on."""
    path = folder / "rows.csv"
    lines = [
        [
            str(10 * row + "abcdef".index(name)) if name != "class" else ("no", "yes")[row % 2]
            for name in columns
        ]
        for row in range(20)
    ]
    path.write_text("\n".join(",".join(line) for line in [list(columns), *lines]))
    return path


def test_named_columns_get_the_ranges_of_the_rows() -> None:
    mass, other = named_features(["mass [kg]", "b"], SOURCE)
    assert (mass.name, mass.unit, mass.low, mass.high, mass.mean, mass.sd) == ("mass [kg]", "kg", 1, 3, 2, 1)
    assert (other.unit, other.low, other.sd) == ("", 5, 0)


@pytest.mark.parametrize(
    ("network", "names", "kind", "message"),
    [
        (SOURCE, ["a"], SourceError, "expected 2 names, one per column of the input, got 1"),
        (SOURCE, ["a", "a"], SourceError, "expected distinct names, got 'a' more than once"),
        (
            replace(SOURCE, rows=None),
            ["a", "b"],
            UsageError,
            "ranges of the columns come from rows",
        ),
        (
            replace(SOURCE, inputs=parse_inputs(["x:float32[batch,time]"])),
            ["a", "b"],
            UsageError,
            "expected a network with one input of rows and columns, got x:float32.batch,time.",
        ),
    ],
)
def test_names_that_do_not_fit_are_refused(
    network: Network, names: list[str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        named_features(names, network)


def test_the_names_of_a_training_run_stay() -> None:
    features = recorded_features(record_of(RECORDED), "x")
    assert [feature.name for feature in features] == ["a", "b", "c", "d"]
    with pytest.raises(UsageError, match="--features: the training run has recorded"):
        named_features(["a", "b"], replace(SOURCE, features=features))


@pytest.mark.parametrize("features", [["a", "b"], 3, [{"name": "a"}]])
def test_a_record_of_another_form_is_refused(features: Any) -> None:
    with pytest.raises(SourceError, match="net: the record's data.features is of an unexpected type"):
        recorded_features(record_of(features), "net")


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    """A table with the columns in another order gives the same rows, also if no training is known."""
    inputs = parse_inputs(["x:float32[batch,4]"])
    for record in (record_of(RECORDED), None):
        known: dict[str, Any] = {"record": record, "features": FEATURES}
        expected, labels = read_rows(save_table(tmp_path, "a", "b", "c", "d", "class"), inputs, **known)
        rows, _ = read_rows(save_table(tmp_path, "class", "d", "b", "a", "c"), inputs, **known)
        assert labels == ("no", "yes")
        assert np.array_equal(rows.inputs["x"], expected.inputs["x"])
        assert np.array_equal(rows.inputs["x"][0] % 10, [0, 1, 2, 3])


def test_further_columns_are_ignored_if_the_target_is_recorded(tmp_path: Path) -> None:
    """By the training or the manifest; without its name, it must be the only further column."""
    inputs = parse_inputs(["x:float32[batch,4]"])
    expected, _ = read_rows(save_table(tmp_path, "a", "b", "c", "d", "class"), inputs, features=FEATURES)
    assert expected.classes is not None
    table = save_table(tmp_path, "e", "class", "d", "f", "c", "b", "a")
    known_by: list[dict[str, Any]] = [{"record": record_of(RECORDED)}, {"target": "class"}]
    for known in known_by:
        rows, labels = read_rows(table, inputs, features=FEATURES, **known)
        assert labels == ("no", "yes")
        assert rows.classes is not None
        assert np.array_equal(rows.classes, expected.classes)
    message = "whose name it has not recorded, got e, class, f: leave out the others"
    with pytest.raises(SourceError, match=message):
        read_rows(table, inputs, features=FEATURES)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("a", "b", "c", "e", "class"), "rows.csv: expected a column 'd', as in the training, got none"),
        (("a", "b", "c", "d", "e"), "rows.csv: expected a column 'class', as in the training, got none"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, columns: tuple[str, ...], message: str) -> None:
    inputs = parse_inputs(["x:float32[batch,4]"])
    with pytest.raises(SourceError, match=message):
        read_rows(save_table(tmp_path, *columns), inputs, record=record_of(RECORDED), features=FEATURES)


def test_rows_are_split_as_in_the_training(tmp_path: Path) -> None:
    """Rows that the network was trained on must not be among those that it is tested on."""
    inputs = parse_inputs(["x:float32[batch,4]"])
    path = save_table(tmp_path, "a", "b", "c", "d", "class")
    record = replace(record_of(RECORDED), recipe={"epochs": 1, "test_fraction": 0.5}, seed=3)
    rows, _ = read_rows(path, inputs, record=record)
    other, _ = read_rows(path, inputs, record=replace(record, seed=4))
    assert len(rows.inputs["x"]) == len(other.inputs["x"]) == 10
    assert not np.array_equal(rows.inputs["x"], other.inputs["x"])
