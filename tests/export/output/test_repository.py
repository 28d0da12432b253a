"""Model repository: where files go, and that they appear complete or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.support.manifests import MANIFEST, stored_input
from tests.support.tiny_highway import highway
from turnpike.export.errors import ExportError, UsageError
from turnpike.export.output.repository import (
    PlainTwin,
    expect_version,
    expect_writable,
    newest_version,
    write_checked,
    write_model,
)
from turnpike.service.artifact.manifest import Sample
from turnpike.service.artifact.runtime import open_model
from turnpike.service.repository.scan import file_identity


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
        with pytest.raises(UsageError, match="expected a folder that can be written, got .*file is a file"):
            expect_writable(path, "--to")
    assert expect_writable(tmp_path / "new" / "models", "--to") == tmp_path / "new" / "models"


def test_a_model_appears_after_its_check(tmp_path: Path) -> None:
    """The check sees the complete draft, and the file does not exist yet."""
    path = tmp_path / "a" / "1" / "model.onnx"

    def check(draft: Path, path: Path) -> None:
        assert draft.read_bytes() == b"whole"
        assert not path.exists()

    write_checked({path: b"whole"}, check)
    assert path.read_bytes() == b"whole"
    assert [entry.name for entry in path.parent.iterdir()] == ["model.onnx"]


def test_a_model_that_cannot_be_served_does_not_appear(tmp_path: Path) -> None:
    """A sample that does not fit the graph is found before the file is in place."""
    net = highway(layers=1)
    update = {"outputs": ("logits",), "gates": net.gates}
    fitting = MANIFEST.model_copy(
        update=update | {"samples": (Sample(inputs=(stored_input("x", [1, 2, 3, 4]),)),)}
    )
    assert write_model(tmp_path / "repo", fitting, net.model, if_taken="refuse").written
    unfitting = MANIFEST.model_copy(
        update=update | {"samples": (Sample(inputs=(stored_input("x", [1, 2, 3]),)),)}
    )
    with pytest.raises(ExportError, match="expected a row of x:.*, got one of shape .3."):
        write_model(tmp_path / "other", unfitting, net.model, if_taken="refuse")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, error: BaseException) -> None:
    """No draft and no new folder are left. An old file does not change."""

    def check(draft: Path, path: Path) -> None:
        raise error

    (tmp_path / "existing").mkdir()
    with pytest.raises(type(error)):
        write_checked({tmp_path / "existing" / "net" / "1" / "model.onnx": b"new"}, check)
    assert list((tmp_path / "existing").iterdir()) == []
    old = tmp_path / "net" / "1" / "model.onnx"
    write_checked({old: b"old"}, lambda draft, path: None)
    with pytest.raises(type(error)):
        write_checked({old: b"new"}, check)
    assert old.read_bytes() == b"old"
    assert list(old.parent.iterdir()) == [old]


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_twin_appears_and_goes_with_its_model(tmp_path: Path) -> None:
    """It is added to a model that stays untouched, and a model that replaces this one has no old twin."""
    net, other = highway(layers=1), highway(layers=1, units=5)
    manifest = MANIFEST.model_copy(update={"outputs": ("logits",), "gates": net.gates})
    # the twin's content does not matter here, but it has neither levers nor hidden outputs
    plain = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["logits"])],
        "plain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 4])],
    )
    model = helper.make_model(plain, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    plain_manifest = manifest.model_copy(update={"gates": (), "plain": True})
    twin = PlainTwin(plain_manifest, model.SerializeToString())

    written = write_model(tmp_path, manifest, net.model, if_taken="next")
    assert written.plain is None
    before = file_identity(written.path.stat())
    with_twin = write_model(tmp_path, manifest, net.model, if_taken="next", plain=twin)
    assert (with_twin.path, with_twin.written) == (written.path, False)
    assert with_twin.plain == written.path.with_name("plain.onnx")
    assert file_identity(written.path.stat()) == before
    assert set(files_in(written.path.parent)) == {"model.onnx", "plain.onnx"}
    runtime = open_model(with_twin.plain)
    assert runtime.manifest is not None
    assert runtime.manifest.plain
    assert runtime.manifest.version == with_twin.manifest.version
    # the same model without a twin says nothing about the twin that is there
    write_model(tmp_path, manifest, net.model, if_taken="next")
    assert set(files_in(written.path.parent)) == {"model.onnx", "plain.onnx"}
    write_model(tmp_path, manifest.model_copy(update={"gates": other.gates}), other.model, if_taken="replace")
    assert set(files_in(written.path.parent)) == {"model.onnx"}


def test_a_twin_with_levers_is_refused(tmp_path: Path) -> None:
    """Neither of the two files appears."""
    net = highway(layers=1)
    manifest = MANIFEST.model_copy(update={"outputs": ("logits",), "gates": net.gates})
    twin = PlainTwin(manifest.model_copy(update={"gates": (), "plain": True}), net.model)
    with pytest.raises(ExportError, match="expected a file without gates and levers, got "):
        write_model(tmp_path / "repo", manifest, net.model, if_taken="next", plain=twin)
    assert not (tmp_path / "repo").exists()
