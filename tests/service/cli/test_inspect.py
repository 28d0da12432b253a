"""What `turnpike inspect` accepts as its model."""

from __future__ import annotations

import json
from pathlib import Path

import onnx

from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.run_cli import run_in_process
from tests.support.text_models import text_file
from tests.support.tiny_repository import put_model


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
