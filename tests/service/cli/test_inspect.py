"""What `turnpike inspect` accepts as its model."""

from __future__ import annotations

import json
from pathlib import Path

import onnx

from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.run_cli import run_in_process
from tests.support.text_models import text_file
from tests.support.tiny_repository import put_model
from turnpike.service.artifact.manifest import Feature


def test_a_folder_with_one_model_shows_its_newest_version(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    for version in (1, 2):
        path = put_model(repository, "ash", version).path
    newest = json.loads(run_in_process("inspect", path, "--json").stdout)
    first = json.loads(run_in_process("inspect", repository / "ash/1", "--json").stdout)
    assert first["content"] != newest["content"]
    # the first is the folder of a run
    for folder in (tmp_path, repository, repository / "ash", path.parent):
        assert json.loads(run_in_process("inspect", folder, "--json").stdout) == newest


def test_a_damaged_file_is_not_called_proved(tmp_path: Path) -> None:
    """One bit of its weights differs: the error of `serve` and `predict`."""
    path = tmp_path / "model.onnx"
    data = bytearray(BUNDLED_MODEL.read_bytes())
    weights = next(
        tensor for tensor in onnx.load(BUNDLED_MODEL).graph.initializer if len(tensor.raw_data) > 999
    )
    data[data.index(weights.raw_data) + 500] ^= 1
    path.write_bytes(data)
    for words in ((path,), (path, "--json")):
        shown = run_in_process("inspect", *words)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert "expected the graph and weights that were exported, with digest" in " ".join(
            shown.stderr.split()
        )


def test_a_folder_with_several_models_names_them(tmp_path: Path) -> None:
    for name in ("ash", "birch"):
        put_model(tmp_path, name)
    shown = run_in_process("inspect", tmp_path)
    assert shown.exit_code > 0
    assert "got a repository of ash, birch: name the folder of one" in " ".join(shown.stderr.split())


def test_a_model_that_takes_texts_says_so(tmp_path: Path) -> None:
    path = put_model(tmp_path, data=text_file()).path
    shown = " ".join(run_in_process("inspect", path).stdout.split())
    assert (
        "ids takes texts of 2 words of 3 characters (alphabet); 7 texts gave the ids of the training" in shown
    )
    assert json.loads(run_in_process("inspect", path, "--json").stdout)["text"]["scheme"] == "alphabet"


def test_the_columns_of_a_table_have_their_kinds(tmp_path: Path) -> None:
    """Dates are dates, words are words, and what is predicted has its name."""
    features = (
        Feature(name="age", low=50, high=101, mean=64, sd=10),
        Feature(
            name="sex", low=0, high=1, mean=0.5, sd=0.5, kind="category", categories=("F", "M"), blanks=True
        ),
        Feature(name="secret", low=0, high=3, mean=1, sd=1, kind="category"),
        Feature(name="day", low=0, high=365, mean=31, sd=9, kind="date"),
    )
    path = put_model(tmp_path, data=text_file(features=features, target="death", text=None)).path
    lines = run_in_process("inspect", path).stdout.splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    assert cells["age"] == ["number", "50", "64", "101", "10"]
    assert cells["sex"] == ["category,", "or", "blank", "F,", "M"]
    assert cells["secret"] == ["category", "not", "published"]
    assert cells["day"] == ["date", "1970-01-01", "1970-02-01", "1971-01-01", "9", "days"]
    assert cells["predicts"] == ["death,", "one", "of", "3", "classes"]
