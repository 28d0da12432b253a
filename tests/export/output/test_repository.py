"""Model repository: where files go, and that they appear complete or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from export.errors import ExportError, UsageError
from export.output.repository import (
    expect_repository,
    expect_version,
    newest_version,
    write_checked,
    write_model,
)
from service.artifact.manifest import Sample
from tests.support.manifests import MANIFEST, stored_input
from tests.support.tiny_highway import highway


def test_versions_count_from_one(tmp_path: Path) -> None:
    """Only folders named by a number without leading zeros are versions."""
    assert newest_version(tmp_path, "net") == 0
    for name in ("2", "10", "03", "0", "x", ".3"):
        (tmp_path / "net" / name).mkdir(parents=True)
    assert newest_version(tmp_path, "net") == 10


@pytest.mark.parametrize("version", [0, -1, 2**31])
def test_invalid_versions_are_refused(version: int) -> None:
    with pytest.raises(UsageError, match=f"expected a whole number from 1, got {version}"):
        expect_version(version)


def test_a_file_is_no_repository(tmp_path: Path) -> None:
    """A path below a file is none either."""
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "models"):
        with pytest.raises(UsageError, match="expected a folder, and .*file is a file"):
            expect_repository(path)
    assert expect_repository(tmp_path / "new" / "models") == tmp_path / "new" / "models"


def test_a_model_appears_after_its_check(tmp_path: Path) -> None:
    """The check sees the complete draft, and the file does not exist yet."""
    path = tmp_path / "a" / "1" / "model.onnx"

    def check(draft: Path) -> None:
        assert draft.read_bytes() == b"whole"
        assert not path.exists()

    write_checked(path, b"whole", check)
    assert path.read_bytes() == b"whole"
    assert [entry.name for entry in path.parent.iterdir()] == ["model.onnx"]


def test_a_model_that_cannot_be_served_does_not_appear(tmp_path: Path) -> None:
    """A sample that does not fit the graph is found before the file is in place."""
    net = highway(layers=1)
    update = {"outputs": ("logits",), "gates": net.gates}
    fitting = MANIFEST.model_copy(
        update=update | {"samples": (Sample(inputs=(stored_input("x", [1, 2, 3, 4]),)),)}
    )
    assert write_model(tmp_path / "repo", fitting, net.model, next_free=False).written
    unfitting = MANIFEST.model_copy(
        update=update | {"samples": (Sample(inputs=(stored_input("x", [1, 2, 3]),)),)}
    )
    with pytest.raises(ExportError, match="expected a row of x:.*, got one of shape .3."):
        write_model(tmp_path / "other", unfitting, net.model, next_free=False)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, error: BaseException) -> None:
    """No draft and no new folder are left. An old file does not change."""

    def check(draft: Path) -> None:
        raise error

    (tmp_path / "existing").mkdir()
    with pytest.raises(type(error)):
        write_checked(tmp_path / "existing" / "net" / "1" / "model.onnx", b"new", check)
    assert list((tmp_path / "existing").iterdir()) == []
    old = tmp_path / "net" / "1" / "model.onnx"
    write_checked(old, b"old", lambda draft: None)
    with pytest.raises(type(error)):
        write_checked(old, b"new", check)
    assert old.read_bytes() == b"old"
    assert list(old.parent.iterdir()) == [old]
