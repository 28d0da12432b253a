"""The process that prepares weights: what it writes, and every reason not to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_highway import highway
from turnpike.service.artifact.runtime import Runtime, open_model, open_runtime
from turnpike.service.errors import ModelFileError, RunError
from turnpike.service.registry import weights_preparation
from turnpike.service.registry.weights_preparation import UnfitError, prepare
from turnpike.service.weights.entry import Entry

GATED = highway(units=64)


@pytest.fixture
def draft(tmp_path: Path) -> Entry:
    (tmp_path / "draft").mkdir()
    return Entry(tmp_path / "draft")


def written(tmp_path: Path, data: bytes = GATED.model) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    return path


def test_the_prepared_form_is_the_model(tmp_path: Path, draft: Entry) -> None:
    path = written(tmp_path)
    prepare(path, draft, 1)
    prepared, original = open_model(draft.graph, prepared=True), open_model(path)
    for part in ("inputs", "outputs", "levers"):
        assert getattr(prepared, part) == getattr(original, part)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "the prepared graph gives other bits"),
        ({"classes": 4}, "the prepared graph has other inputs, outputs or levers"),
        ({"levers": False}, "the prepared graph has other inputs, outputs or levers"),
    ],
)
def test_another_model_is_noticed(
    tmp_path: Path, draft: Entry, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], message: str
) -> None:
    """As if onnxruntime had written something else."""

    def open_other(model: Path, *arguments: Any, prepared: bool = False, **options: Any) -> Runtime:
        if prepared:
            return open_model(highway(**{"units": 64, **other}).model)
        return open_runtime(model, *arguments, **options)

    monkeypatch.setattr(weights_preparation, "open_runtime", open_other)
    with pytest.raises(UnfitError, match=message):
        prepare(written(tmp_path), draft, 1)


def test_other_bits_with_moved_levers_are_noticed(
    tmp_path: Path, draft: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fixed(Runtime):
        """A model whose levers have no effect."""

        def run(self, feeds: Any, outputs: Any = None) -> Any:
            return super().run({"x": feeds["x"]}, outputs)

    def open_fixed(model: Path, *arguments: Any, **options: Any) -> Runtime:
        runtime = open_runtime(model, *arguments, **options)
        if options.get("prepared"):
            runtime.__class__ = Fixed
        return runtime

    monkeypatch.setattr(weights_preparation, "open_runtime", open_fixed)
    with pytest.raises(UnfitError, match="other bits"):
        prepare(written(tmp_path), draft, 1)


def test_a_model_without_large_weights_is_not_prepared(tmp_path: Path, draft: Entry) -> None:
    with pytest.raises(UnfitError, match="the model has no large weights"):
        prepare(written(tmp_path, highway().model), draft, 1)


def test_a_model_that_accepts_no_rows_is_not_prepared(
    tmp_path: Path, draft: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RunError("no", caused_by_input=True)

    monkeypatch.setattr(Runtime, "run", refuse)
    with pytest.raises(UnfitError, match="accepts none of the random rows"):
        prepare(written(tmp_path), draft, 1)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, draft: Entry) -> None:
    with pytest.raises(ModelFileError, match="onnxruntime cannot open it"):
        prepare(written(tmp_path, b"no model"), draft, 1)
