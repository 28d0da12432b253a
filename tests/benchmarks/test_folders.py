"""A temporary model repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import folders
from benchmarks.growth.growth import model_names


def test_models_are_links_to_a_file_and_removed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "WORK_FOLDER", tmp_path)
    file = tmp_path / "bare.onnx"
    file.write_bytes(b"graph")
    with folders.linked_models(dict.fromkeys(model_names(3), file)) as repository:
        links = {path.relative_to(repository).parts[:2]: path for path in repository.rglob("model.onnx")}
        assert set(links) == {("S", "1"), ("S-1", "1"), ("S-2", "1")}
        assert all(path.samefile(file) for path in links.values())
    assert not repository.exists()
