"""A folder of models that is there for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import folder
from benchmarks.growth import names


def test_files_lie_under_their_names_and_are_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a repository has them, and nothing is left of them."""
    monkeypatch.setattr(folder, "KEPT", tmp_path)
    file = tmp_path / "bare.onnx"
    file.write_bytes(b"graph")
    with folder.folder_of(dict.fromkeys(names(3), file)) as made:
        found = {path.relative_to(made).parts[:2]: path for path in made.rglob("model.onnx")}
        assert set(found) == {("S", "1"), ("S-1", "1"), ("S-2", "1")}
        assert all(path.samefile(file) for path in found.values())
    assert not made.exists()
