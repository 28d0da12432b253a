"""Reading tables with named columns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from turnpike.models.cli.training_run import config_for_data, own_data_options, recipe_for_data, train_preset
from turnpike.models.data.load import load_dataset
from turnpike.models.data.table import read_table
from turnpike.models.errors import ConfigError, DataError
from turnpike.models.training.checkpoint import read_checkpoint
from turnpike.models.training.presets import find_preset


def saved(folder: Path, text: str, name: str = "wine.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_rows_classes_and_names_are_read(tmp_path: Path, separator: str) -> None:
    """The target is taken out, wherever it stands; classes as text are sorted."""
    text = "alcohol,class,ash\n13.5,red,1\n12,white,-2e1\n\n11,red,3\n".replace(",", separator)
    data = read_table(saved(tmp_path, "\ufeff" + text), "class")
    assert data.features == ("alcohol", "ash")
    assert (data.target, data.labels, data.kind, data.name) == ("class", ("red", "white"), "numbers", "wine")
    assert data.rows.x.dtype == torch.float32
    assert data.rows.x.tolist() == [[13.5, 1.0], [12.0, -20.0], [11.0, 3.0]]
    assert data.rows.y.tolist() == [0, 1, 0]


def test_the_last_column_is_the_default_target(tmp_path: Path) -> None:
    """Classes that are numbers are sorted as numbers, and 2.0 is 2."""
    data = read_table(saved(tmp_path, "a,b\n1,10\n2,9\n3,2.0\n"))
    assert (data.target, data.features, data.labels) == ("b", ("a",), ("2", "9", "10"))
    assert data.rows.y.tolist() == [2, 1, 0]


WRONG = {
    "text": ("a,b,c\n1,2,x\n1,old,y\n", "line 3, column 'b': expected a number, got 'old'"),
    "missing": ("a,b,c\n1,2,x\n,2,y\n", "line 3, column 'a': expected a number, got a missing value"),
    "nan": ("a,b\nnan,x\n", "line 2, column 'a': expected a number, got 'nan'"),
    "too large": ("a,b\n1e39,x\n", "line 2, column 'a': expected a number, got '1e39'"),
    "underscore": ("a,b\n1_0,x\n", "line 2, column 'a': expected a number, got '1_0'"),
    "no class": ("a,b\n1,x\n2,\n", "line 3, column 'b': expected a class, got a missing value"),
    "ragged": ("a,b\n1,x\n2\n", "line 3: expected 2 values, as in the first line, got 1"),
    "no header": ("1,2,red\n3,4,white\n", "expected the names of the columns in the first line, got numbers"),
    "name twice": ("a,a,b\n1,2,x\n", "expected distinct names of columns, got 'a' twice"),
    "no name": (",a,b\n1,2,x\n", "expected a name for each column, column 1 has none"),
    "one column": ("a\n1\n", "expected 2 columns or more"),
    "no rows": ("a,b\n", "expected rows under the names of the columns, got none"),
    "empty": ("", "got an empty file"),
    "one class": ("a,b\n1,x\n2,x\n", "column 'b': expected 2 classes or more, got 1"),
    "a measure": ("a,b\n1,0.5\n2,1\n", "line 2, column 'b': expected a class as text or a whole number"),
    "quote": ('a,b\n"1,x\n', "line 2: expected comma-separated values"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_tables_are_reported(tmp_path: Path, case: str) -> None:
    """The error names the file, the line and the column."""
    text, message = WRONG[case]
    path = saved(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_other_encodings_and_unknown_targets_are_reported(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and a target that is no column."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(DataError, match="expected text in UTF-8"):
        read_table(path)
    with pytest.raises(DataError, match="--target: expected one of a, b, got 'c'"):
        read_table(saved(tmp_path, "a,b\n1,x\n"), "c")
    with pytest.raises(ConfigError, match="--target: names a column of a .csv"):
        load_dataset("digits", target="class")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow is no dependency."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match="needs pyarrow: pip install pyarrow"):
        read_table(saved(tmp_path, "", "wine.parquet"))


def test_tables_are_standardized_by_column_unless_set(tmp_path: Path) -> None:
    """The preset's own scaling is kept for other data, and --set decides."""
    path = saved(tmp_path, "a,b,c\n" + "1,2,x\n3,4,y\n" * 10)
    config, table = find_preset("digits-10").config, load_dataset(str(path))
    assert config_for_data(config, table, []).scaling == "columns"
    assert config_for_data(config, table, ["scaling=standard"]).scaling == "standard"
    for name in ("digits", "parity-6"):
        assert config_for_data(config, load_dataset(name), []).scaling == "standard"


@pytest.mark.parametrize(
    ("rows", "valid", "batch", "weight_decay"), [(1240, 198, 16, 1.0), (1250, 83, 64, 0.0)]
)
def test_small_tables_have_their_own_recipe(
    tmp_path: Path, rows: int, valid: int, batch: int, weight_decay: float
) -> None:
    """Small means under 1,000 rows besides the fifth of test rows; what the user chose is kept."""
    table = load_dataset(str(saved(tmp_path, "a,b,c\n" + "1,2,x\n3,4,y\n" * (rows // 2))))
    recipe = find_preset("digits-10").recipe
    found = recipe_for_data(recipe, table, ())
    assert (len(table.valid), found.batch, found.weight_decay) == (valid, batch, weight_decay)
    kept = recipe_for_data(recipe, table, ("batch", "weight_decay"))
    assert (kept.batch, kept.weight_decay) == (recipe.batch, recipe.weight_decay)
    assert recipe_for_data(recipe, load_dataset("digits"), ()) == recipe


@pytest.mark.parametrize(("name", "options"), [("wine.csv", ["--name", "wine"]), ("my wines.csv", [])])
def test_the_next_step_has_the_users_table(tmp_path: Path, name: str, options: list[str]) -> None:
    """Otherwise the export would know no rows. A name that the export would refuse is left out."""
    path = str(saved(tmp_path, "a,b,c\n" + "1,2,x\n3,4,y\n" * 10).rename(tmp_path / name))
    assert own_data_options(path, load_dataset(path)) == [*options, "--data", path]
    assert own_data_options("digits", load_dataset("digits")) == own_data_options(
        None, load_dataset("digits")
    )
    assert own_data_options("digits", load_dataset("digits")) == []


def test_presets_of_images_train_on_tables(tmp_path: Path) -> None:
    """The preset's distortion of images is left out, and what the user asks for is refused."""
    path = saved(tmp_path, "a,b,c\n" + "1,2,x\n3,4,y\n" * 10)

    def run(**recipe: Any) -> None:
        train_preset(
            "digits-10",
            tmp_path / "run",
            data=str(path),
            data_dir=None,
            recipe={"epochs": 1, **recipe},
            settings=[],
            seed=0,
            device="cpu",
            resume=False,
            fresh=False,
            pictures=False,
        )

    with pytest.raises(ConfigError, match="distort: distorts images"):
        run(distort=0.1)
    run()
    _, record = read_checkpoint(tmp_path / "run" / "model.safetensors")
    assert [(column["name"], column["low"], column["high"]) for column in record.data["features"]] == [
        ("a", 1, 3),
        ("b", 2, 4),
    ]
    assert record.config["scaling"] == "columns"
