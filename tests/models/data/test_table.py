"""Reading tables with named columns."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from turnpike.models.cli.training_run import config_for_data, own_data_options, recipe_for_data, train_preset
from turnpike.models.data.load import load_dataset
from turnpike.models.data.read_table import read_table
from turnpike.models.data.table.options import TableOptions, recorded_options
from turnpike.models.errors import ConfigError, DataError
from turnpike.models.networks.families import build_network
from turnpike.models.training.checkpoint import read_checkpoint
from turnpike.models.training.presets import find_preset
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import RunPlan


def saved(folder: Path, text: str, name: str = "wine.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_rows_classes_and_names_are_read(tmp_path: Path, separator: str) -> None:
    """The target is taken out, wherever it stands; classes as text are sorted."""
    text = "alcohol,class,ash\n13.5,red,1\n12,white,-2e1\n\n11,red,3\n".replace(",", separator)
    data = read_table(saved(tmp_path, "\ufeff" + text), TableOptions(target="class"))
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
    "too large": ("a,b\n1e39,x\n2,y\n", "line 2, column 'a': expected a number within float32, got '1e39'"),
    "no class": ("a,b\n1,\n2,NA\n", "column 'b': expected values to predict, got none"),
    "ragged": ("a,b\n1,x\n2\n", "line 3: expected 2 values, as in the first line, got 1"),
    "no header": ("1,2,red\n3,4,white\n", "expected the names of the columns in the first line, got numbers"),
    "name twice": ("a,a,b\n1,2,x\n", "expected distinct names of columns, got 'a' twice"),
    "no name": ("a,,b\n1,2,x\n", "expected a name for each column, column 2 has none"),
    "one column": ("a\n1\n", "expected 2 columns or more"),
    "no rows": ("a,b\n", "expected rows under the names of the columns, got none"),
    "empty": ("", "got an empty file"),
    "one class": ("a,b\n1,x\n2,x\n", "column 'b' (the last one; --target names another): expected 2 classes"),
    "one number": ("a,b\n1,0.5\n2,0.5\n", "expected different numbers, got always '0.5'"),
    "large number": ("a,b\n1,0.5\n2,1e39\n", "line 3: expected a number within float32, got '1e39'"),
    "nothing to learn from": (
        "a,b\n1,x\n1,y\n",
        "expected a column from which 'b' can be predicted, got none",
    ),
    "quote": ('a,b\n"1,x\n', "line 2: expected comma-separated values"),
    "no numbers": (
        "a,b\n" + "".join(f"{n / 7},x\n{n},y\n" for n in range(20)) + "old,x\n",
        "column 'a': 1 of 41 values is no number, the first is 'old' in line 42: correct or empty such cells",
    ),
    "no number to predict": (
        "a,b\n" + "".join(f"{n},{n / 7}\n" for n in range(40)) + "1,old\n",
        "1 of 41 values is no number, the first is 'old' in line 42: correct such cells, or remove",
    ),
    "texts to predict": (
        "a,b\n" + "".join(f"{n % 7},text {n}\n" for n in range(40)),
        "expected several rows of each class, got 40 different values in 40 rows: --target names another",
    ),
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
        read_table(saved(tmp_path, "a,b\n1,x\n"), TableOptions(target="c"))
    with pytest.raises(ConfigError, match="--target: is about a column of a .csv"):
        load_dataset("digits", table=TableOptions(target="class"))


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
    ("rows", "valid", "batch", "weight_decay"),
    [
        (1240, 198, 16, 1.0),
        (1250, 200, 64, 3.0),
        (2500, 200, 64, 50 * 64 / 1800),
        (5000, 333, 64, 50 * 64 / 3667),
    ],
)
def test_tables_have_a_recipe_for_their_size(
    tmp_path: Path, rows: int, valid: int, batch: int, weight_decay: float
) -> None:
    """Small means under 1,000 rows besides the fifth of test rows; what the user chose is kept.

    200 rows are for validation, if they are between a twelfth and a fifth.
    """
    table = load_dataset(str(saved(tmp_path, "a,b,c\n" + "1,2,x\n3,4,y\n" * (rows // 2))))
    recipe = find_preset("digits-10").recipe
    found = recipe_for_data(recipe, table, ())
    assert (len(table.valid), found.batch, found.weight_decay) == (valid, batch, weight_decay)
    assert recipe_for_data(replace(recipe, weight_decay=4.0), table, ()).weight_decay == 4
    kept = recipe_for_data(recipe, table, ("batch", "weight_decay"))
    assert (kept.batch, kept.weight_decay) == (recipe.batch, recipe.weight_decay)
    assert recipe_for_data(recipe, load_dataset("digits"), ()) == recipe


def test_the_next_step_has_the_users_table(tmp_path: Path) -> None:
    """Otherwise the export would know no rows."""
    path = str(saved(tmp_path, "a,b,c\n" + "1,2,x\n3,4,y\n" * 10))
    assert own_data_options(path) == ["--data", path]
    assert own_data_options("digits") == own_data_options(None) == []


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


def test_all_problems_are_in_one_error_with_their_remedies(tmp_path: Path) -> None:
    """Two columns have to be decided, and the column to predict has one value."""
    days = "".join(f"0{n % 10}234,{n % 12 + 1:02}/{n % 11 + 1:02}/2024,x\n" for n in range(30))
    path = saved(tmp_path, "zip,day,class\n" + days)
    with pytest.raises(DataError) as caught:
        read_table(path)
    first, *problems = str(caught.value).splitlines()
    assert first == f"{path}: "
    assert len(problems) == 3
    assert "expected 2 classes or more" in problems[0]
    assert "--kind zip=category or --kind zip=number" in problems[1]
    assert "--kind day=date:%d/%m/%Y or %m/%d/%Y says which" in problems[2]
    kinds = {"zip": "category", "day": "date:%m/%d/%Y"}
    text = path.read_text().replace("x", "y", 1)
    data = read_table(saved(tmp_path, text), TableOptions(kinds=kinds))
    assert [column.form.kind for column in data.columns if column.form] == ["category", "date"]
    assert data.rows.x[0, 1] == 19_723  # 2024-01-01


def test_rows_with_nothing_to_predict_are_left_out(tmp_path: Path) -> None:
    data = read_table(saved(tmp_path, "a,b\n1,x\n2,\n3,y\n4,NA\n"))
    assert (data.rows.x.flatten().tolist(), data.unanswered) == ([1, 3], 2)
    data = read_table(saved(tmp_path, "a,b\n1,1.5\n2,?\n3,2.5\n"))
    assert (data.rows.y.tolist(), data.unanswered) == ([1.5, 2.5], 1)


NUMBERS = "".join(f"{n % 3},{n}\n" for n in range(21))


@pytest.mark.parametrize(
    ("text", "task", "labels", "first"),
    [
        (NUMBERS, "number", 0, 0.0),
        (NUMBERS.replace(",20", ",19"), "classes", 20, 0),
        ("1,0.5\n2,1\n", "number", 0, 0.5),
        ("1,true\n2,false\n", "classes", 2, 1),
    ],
    ids=["21 whole numbers", "20 whole numbers", "decimals", "booleans"],
)
def test_the_task_depends_on_the_values(
    tmp_path: Path, text: str, task: str, labels: int, first: float
) -> None:
    data = read_table(saved(tmp_path, "a,b\n" + text))
    assert (data.task, len(data.labels), data.rows.y[0]) == (task, labels, first)
    other = "number" if task == "classes" and "true" not in text else "classes"
    assert read_table(saved(tmp_path, "a,b\n" + text), TableOptions(task=other)).task == other  # type: ignore[arg-type]


def test_numbers_to_predict_may_have_decimal_commas_and_affixes(tmp_path: Path) -> None:
    data = read_table(saved(tmp_path, "a;b\n1;1.234,5\n2;2\n3;3,25\n"))
    assert data.rows.y.tolist() == [1234.5, 2, 3.25]
    data = read_table(saved(tmp_path, 'a,b\n1,"$1,200.50"\n2,$3\n'))
    assert data.rows.y.tolist() == [1200.5, 3]


def test_gzip_quoted_newlines_and_blanks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "wine.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8-sig") as file:
        file.write('a,"b\nc",d\r\n1,"x\ny",p\r\nNA,"x\ny",q\r\n2,,p\r\n')
    data = read_table(path)
    assert (data.name, data.features) == ("wine", ("a", "b\nc"))
    assert data.columns[1].form is not None
    assert data.columns[1].form.categories == ("x\ny",)
    assert str(data.rows.x.tolist()) == "[[1.0, 0.0], [nan, 0.0], [2.0, nan]]"
    (tmp_path / "bad.csv.gz").write_bytes(b"a,b\n")
    with pytest.raises(DataError, match="expected a file that gzip has compressed"):
        read_table(tmp_path / "bad.csv.gz")


def test_words_that_only_test_rows_have_count_as_never_seen(tmp_path: Path) -> None:
    """By time, the last fifth is tested: there is a new word, which has the place after the last one."""
    lines = "".join(f"{n},{'z' if n == 0 else 'a' if n > 80 else 'b'},{'xy'[n % 2]}\n" for n in range(100))
    options = TableOptions(time_column="t", kinds={"t": "number"})
    data = load_dataset(str(saved(tmp_path, "t,word,class\n" + lines)), table=options)
    (form,) = (column.form for column in data.columns if column.name == "word" and column.form)
    assert form.categories == ("b", "z")
    assert data.train.x[:2, 1].tolist() == [1, 0]
    assert data.test.x[-1, 1] == 2


@pytest.mark.parametrize("form", ["{:05}", "2024-01-01T00:{:02}:00", "{}"])
@pytest.mark.parametrize("drop", [(), ("t",)])
def test_rows_are_split_by_time(tmp_path: Path, form: str, drop: tuple[str, ...]) -> None:
    """The last rows are the test rows, whatever their place in the file; the time may be a feature."""
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1)).tolist()
    lines = "".join(f"{form.format(n)},{n},{'xy'[n % 2]}\n" for n in order)
    options = TableOptions(
        time_column="t", drop=drop, keep=("n",), kinds={} if drop or "T" in form else {"t": "number"}
    )
    path = str(saved(tmp_path, "t,n,class\n" + lines))
    if drop and form == "{:05}":
        with pytest.raises(DataError, match="--time-column: column 't': its numbers may be names"):
            load_dataset(path, table=options)
        return
    data = load_dataset(path, table=options)
    numbers = [split.x[:, -1].tolist() for split in (data.train, data.valid, data.test)]
    assert [*numbers[0], *numbers[1], *numbers[2]] == list(range(60))
    assert len(data.test) == 12
    assert load_dataset(path, table=options, test_fraction=0.5).test.x[:, -1].tolist() == list(range(30, 60))


def test_times_that_are_none_are_reported(tmp_path: Path) -> None:
    path = saved(tmp_path, "t,u,class\nearly,1,x\nlate,,y\nnow,3,x\n")
    with pytest.raises(
        DataError, match="--time-column: column 't': expected dates or numbers, got values such"
    ):
        read_table(path, TableOptions(time_column="t"))
    with pytest.raises(DataError, match="column 'u': expected a value in each row, got none in line 3"):
        read_table(path, TableOptions(time_column="u"))
    with pytest.raises(DataError, match="--time-column: expected one of t, u, class, got 'v'"):
        read_table(path, TableOptions(time_column="v"))


def test_a_table_is_read_as_in_its_training(tmp_path: Path) -> None:
    """Columns may have another order, and other words; those that the training left out do not count."""
    lines = "".join(f"{n % 7},{'ab'[n % 2]},2024-01-{n % 28 + 1:02},{n / 3}\n" for n in range(60))
    path = saved(tmp_path, "n,word,day,y\n" + lines)
    data = load_dataset(str(path), table=TableOptions(drop=("n",), time_column="day"))
    plan = RunPlan(
        "mine", config_for_data(find_preset("digits-10").config, data, []), Recipe(), data, tmp_path
    )
    recorded = json.loads(json.dumps(plan.record({}, []).data))
    assert load_dataset(str(path), table=recorded_options(recorded)).digest == data.digest
    other = read_table(
        saved(tmp_path, "y,word,day,n\n1,c,2024-01-02,?\n2.5,b,2024-01-01,?\n"), recorded_options(recorded)
    )
    assert (other.task, other.features) == ("number", ("word", "day"))
    assert other.rows.x.tolist() == [[1, 19723], [2, 19724]]
    with pytest.raises(DataError, match="expected a column 'day', as in the training, got none"):
        read_table(
            saved(tmp_path, "word,y\na,1\nb,2\n"), replace(recorded_options(recorded), time_column=None)
        )


def test_plain_numbers_have_the_record_and_network_that_they_always_had(tmp_path: Path) -> None:
    """No encoder, and no new entries, which would stop --resume of older runs."""
    data = load_dataset(str(saved(tmp_path, "a,b,c\n" + "1,2,x\n3,4,y\n" * 10)))
    config = config_for_data(find_preset("digits-10").config, data, [])
    plan = RunPlan("mine", config, Recipe(), data, tmp_path)
    record = plan.record({}, [])
    assert "columns" not in record.config
    assert set(record.data) == {"name", "digest", "kind", "labels", "alphabet", "features", "target"}
    assert set(record.data["features"][0]) == {"name", "unit", "low", "high", "mean", "sd"}
    net = build_network(config)
    net.fit_scale(data.train.x)
    assert net.encoder is None
    assert not [name for name in net.state_dict() if name.startswith(("encoder", "target"))]
    assert torch.equal(net(data.test.x), net.logits((data.test.x - net.shift) * net.scale))


def test_columns_that_are_no_plain_numbers_need_the_encoder(tmp_path: Path) -> None:
    """A blank that only test rows have needs it, too; other scaling is refused."""
    lines = "".join(f"{n},{'' if n == 99 else n % 5},{'xy'[n % 2]}\n" for n in range(100))
    options = TableOptions(time_column="t", kinds={"t": "number"})
    data = load_dataset(str(saved(tmp_path, "t,n,class\n" + lines)), table=options)
    config = find_preset("digits-10").config
    assert config_for_data(config, data, []).columns == (("number", 0, False), ("number", 0, False))
    # a blank needs the encoder, too, if only a row without a class has it
    lines = "".join(f"{n},{'' if n == 9 else n % 5},{'' if n == 9 else 'xy'[n % 2]}\n" for n in range(100))
    data = load_dataset(str(saved(tmp_path, "t,n,class\n" + lines)), table=options)
    assert not data.train.x.isnan().any()
    assert config_for_data(config, data, []).columns == (("number", 0, False), ("number", 0, False))
    with pytest.raises(ConfigError, match="scaling=standard needs numbers without blanks in all columns"):
        config_for_data(config, data, ["scaling=standard"])
