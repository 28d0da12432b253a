"""`turnpike train` on tables: what it prints, asks and warns of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnpike.models.cli.train import app
from turnpike.models.training.checkpoint import read_checkpoint


@pytest.fixture
def goods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """200 rows; `euros` is `price` in another unit, and a tenth is `rare`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    draw = random.Random(1)
    lines = ["id;size;colour;sold;country;note;euros;price;kind"]
    for n in range(200):
        size, price = draw.random(), 100 * draw.random()
        cells = [
            *(
                500 + n * 7 % 200,
                f"{size:.3f}".replace(".", ",") if n % 9 else "NA",
                ["red", "green"][n % 2],
            ),
            *(f"{n % 28 + 1:02}.{n % 12 + 1:02}.2024", "CH", f"some words {n}"),
            *(f"{price * 0.9 + size:.3f}".replace(".", ","), f"{price + size / 0.9:.3f}".replace(".", ",")),
            "rare" if draw.random() < 0.1 else "usual",
        ]
        lines.append(";".join(map(str, cells)))
    path = tmp_path / "goods.csv"
    path.write_text("\n".join(lines))
    return path


def output(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return " ".join(result.output.split())


def test_columns_are_shown_alone(goods: Path) -> None:
    """Without a preset, and without training."""
    shown = output("--data", goods, "--columns")
    for line in (
        "id left out: id each row has its own",
        "size number 23 decimal comma",
        "colour category green, red",
        "sold date %d.%m.%Y",
        "country left out: constant always 'CH'",
        "note left out: free text 200 different texts",
        "To predict: kind (the last column; --target names another), one of 2 classes",
    ):
        assert line in shown
    assert "No PRESET" not in shown
    assert not (goods.parent / "runs").exists()


def test_columns_are_shown_beside_their_problems(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("zip,n,class\n" + "01234,1,x\n02345,2,y\n" * 20)
    result = CliRunner().invoke(app, ["--data", str(path), "--columns"])
    assert result.exit_code == 1
    assert "--kind zip=category" in str(result.exception)
    assert "one of 2 classes" in result.output
    assert "zip category 01234, 02345" in " ".join(
        output("--data", path, "--columns", "--kind", "zip=category").split()
    )


def test_columns_need_a_table(tmp_path: Path) -> None:
    for arguments, got in ((["--columns"], "got none"), (["--columns", "--data", "digits"], "got digits")):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code != 0
        assert f"--columns: expected --data with a .csv, .tsv or .parquet file, {got}" in str(
            result.exception
        )


def test_a_number_is_shown_beside_the_error_of_the_mean(goods: Path) -> None:
    """A copy of it in another unit is named; without it, there is no warning of it."""
    arguments = ("--data", goods, "--target", "price", "-n", "2", "--no-pictures", "--out", "run")
    shown = output(*arguments)
    assert "To predict: price, a number (more than 20 different values; --task classes makes" in shown
    assert "warning: column 'euros' alone gives price away." in shown
    assert "--drop euros" in shown
    metrics = read_checkpoint(Path("run/model.safetensors"))[1].metrics
    assert f"test R² {metrics['test_r2']:.4f}" in shown
    assert f"test error {metrics['test_mae']:.5g} on average (MAE); {metrics['baseline_mae']:.5g} if" in shown
    without = output(*arguments, "--drop", "euros", "--fresh")
    assert "alone gives" not in without
    assert "answering the mean every time is as good" in without


def test_classes_are_shown_beside_the_commonest(goods: Path) -> None:
    shown = output("--data", goods, "-n", "2", "--no-pictures", "--out", "run")
    metrics = read_checkpoint(Path("run/model.safetensors"))[1].metrics
    scores = (
        f"{metrics['test_accuracy']:.2%}; {metrics['baseline_accuracy']:.2%} if the answer were always the"
    )
    assert f"test accuracy {scores} commonest class" in shown


def test_intervals_are_shown(goods: Path) -> None:
    shown = output(
        *(
            "--data",
            goods,
            "--target",
            "price",
            "--interval",
            "0.8",
            "-n",
            "2",
            "--no-pictures",
            "--out",
            "run",
        )
    )
    metrics = read_checkpoint(Path("run/model.safetensors"))[1].metrics
    assert metrics["interval_level"] == 0.8
    width, rows = metrics["interval_half_width"], metrics["interval_rows"]
    held = metrics["test_interval_coverage"]
    text = (
        f"intervals ± {width:.5g}, to hold 0.8 of the true numbers: by {rows} validation rows; {held:.2%} of"
    )
    assert text in shown


def test_imbalanced_classes_are_shown_and_warned_of(goods: Path) -> None:
    """The kind depends on nothing, so the network answers the commonest one."""
    drops = [word for name in ("euros", "price") for word in ("--drop", name)]
    arguments = ("--data", goods, *drops, "-n", "4", "--no-pictures", "--out", "run")
    shown = output(*arguments)
    assert "balanced accuracy 50.00%; 50.00% if the answer were always the same" in shown
    assert "rarest class 0.00% of 'rare' found" in shown
    assert "answering the commonest class every time is right in" in shown
    output(*arguments, "--class-weights", "--fresh")
    assert read_checkpoint(Path("run/model.safetensors"))[1].recipe["class_weights"] is True


def test_a_table_is_split_by_time(goods: Path) -> None:
    shown = output(
        *("--data", goods, "--time-column", "sold", "--drop", "sold", "--keep", "id"),
        *("-n", "1", "--no-pictures", "--out", "run"),
    )
    assert "Split by sold: the last rows are the test rows." in shown
    record = read_checkpoint(Path("run/model.safetensors"))[1]
    assert record.data["time_column"] == "sold"
    assert [feature["name"] for feature in record.data["features"]] == [
        "id",
        "size",
        "colour",
        "euros",
        "price",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "size"], "--kind: expected COLUMN=KIND, got 'size'"),
        (["--kind", "size=colour"], "--kind: expected number, boolean, category, date or date:FORMAT"),
        (["--kind", "colour=number"], "--kind: expected a number, got 'red'"),
        (["--task", "regression"], "--task: expected classes or number, got 'regression'"),
        (["--task", "number"], "line 2: expected a number, got 'usual'"),
        (["--drop", "colr"], "--drop: expected one of id, size"),
        (["--drop", "id", "--keep", "id"], "--drop and --keep: one leaves out 'id', the other uses it"),
        (["--target", "kind", "--drop", "kind"], "--drop: 'kind' is the column to predict"),
        (["--set", "scaling=unit"], "scaling=unit needs numbers without blanks in all columns"),
        (["--interval", "0.9"], "interval: expected a number to predict, and goods has classes"),
        (["--target", "price", "--interval", "95"], "interval: expected a share of rows between 0 and 1"),
        (["--target", "price", "--class-weights"], "class weights: goods has a number to predict"),
    ],
)
def test_options_that_do_not_fit_are_refused(goods: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["--data", str(goods), *arguments])
    assert result.exit_code != 0
    assert message in str(result.exception)
