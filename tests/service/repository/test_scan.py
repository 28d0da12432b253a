"""Scanning a repository: which files are models, and which are ignored or reported."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path

import pytest

from turnpike.service.errors import ModelFileError, SettingError
from turnpike.service.repository import scan as scan_module
from turnpike.service.repository.scan import (
    MAX_NAME_LENGTH,
    MODEL_FILE,
    ModelFile,
    RepositoryScan,
    VersionPolicy,
    file_identity,
    read_model_file,
    scan,
)


def write_model(root: Path, name: str, version: str = "1", content: bytes = b"model") -> Path:
    path = root / name / version / MODEL_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def scanned_file(root: Path, content: bytes) -> ModelFile:
    """A model file with this content, as a scan describes it."""
    path = write_model(root, "net", content=content)
    return ModelFile("net", 1, path, file_identity(path.stat()))


def versions_of(files: tuple[ModelFile, ...]) -> list[int]:
    return [file.version for file in files]


def test_names_and_versions_are_read_from_the_folder(tmp_path: Path) -> None:
    """Versions come in numerical order, each with its path and the identity of its file."""
    for version in ("10", "9", "2"):
        write_model(tmp_path, "net", version)
    path = write_model(tmp_path, "other net")
    contents = scan(tmp_path)
    assert {name: versions_of(files) for name, files in contents.models.items()} == {
        "net": [2, 9, 10],
        "other net": [1],
    }
    status = path.stat()
    assert contents.models["other net"] == (
        ModelFile("other net", 1, path, (status.st_ino, status.st_mtime_ns, status.st_size)),
    )
    assert contents.skipped == ()


def test_other_files_of_a_version_are_ignored(tmp_path: Path) -> None:
    """Such as the twin without gates: it is no model beside one, and no version without one."""
    path = write_model(tmp_path, "net")
    path.with_name("plain.onnx").write_bytes(b"twin")
    (tmp_path / "net" / "2").mkdir()
    (tmp_path / "net" / "2" / "plain.onnx").write_bytes(b"twin")
    contents = scan(tmp_path)
    assert [file.path for file in contents.models["net"]] == [path]


@pytest.mark.parametrize(
    "version", ["0", "01", "-1", "1.0", "v1", "\u0661", "2147483648", "99999999999", ".1"]
)
def test_only_whole_numbers_are_versions(tmp_path: Path, version: str) -> None:
    """Other folders are ignored."""
    write_model(tmp_path, "net", version)
    contents = scan(tmp_path)
    assert contents.models == {}
    assert contents.skipped == ()


def test_the_largest_version_has_31_bits(tmp_path: Path) -> None:
    """As in other servers, which keep it as a signed number of 32 bits."""
    write_model(tmp_path, "net", "2147483647")
    assert versions_of(scan(tmp_path).models["net"]) == [2**31 - 1]


def test_files_that_are_no_models_are_ignored(tmp_path: Path) -> None:
    """Hidden folders, drafts, files and folders without a model are neither served nor reported."""
    write_model(tmp_path, ".hidden")
    (tmp_path / "empty" / "1").mkdir(parents=True)
    (tmp_path / "draft" / "1").mkdir(parents=True)
    (tmp_path / "draft" / "1" / ".model.onnx.123").write_bytes(b"half")
    (tmp_path / "README.md").write_text("hello")
    assert scan(tmp_path) == RepositoryScan()


def test_links_may_not_leave_the_repository(tmp_path: Path) -> None:
    """This holds for model folders, versions and files. The reason has no path."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    secret = write_model(outside, "secret")
    write_model(root, "inside")
    (root / "folder").symlink_to(outside / "secret")
    (root / "version").mkdir()
    (root / "version" / "1").symlink_to(outside / "secret" / "1")
    (root / "file" / "1").mkdir(parents=True)
    (root / "file" / "1" / MODEL_FILE).symlink_to(secret)
    (root / "dangling" / "1").mkdir(parents=True)
    (root / "dangling" / "1" / MODEL_FILE).symlink_to(outside / "nowhere")
    (root / "loop" / "1").mkdir(parents=True)
    (root / "loop" / "1" / MODEL_FILE).symlink_to(root / "loop" / "1" / MODEL_FILE)
    contents = scan(root)
    assert list(contents.models) == ["inside"]
    assert {(path.name, path.version) for path in contents.skipped} == {
        ("folder", None),
        ("version", 1),
        ("file", 1),
        ("dangling", 1),
        ("loop", 1),
    }
    assert not any(str(tmp_path) in path.reason for path in contents.skipped)


def test_links_within_the_repository_are_followed(tmp_path: Path) -> None:
    """Volumes of Kubernetes have hidden folders, and releases a root that is a link."""
    write_model(tmp_path / "releases", "..data/net")
    (tmp_path / "releases" / "net").symlink_to(tmp_path / "releases" / "..data" / "net")
    (tmp_path / "current").symlink_to(tmp_path / "releases")
    assert versions_of(scan(tmp_path / "current").models["net"]) == [1]


def test_a_folder_in_the_place_of_the_file_is_reported(tmp_path: Path) -> None:
    """It was probably meant to be a model."""
    (tmp_path / "net" / "1" / MODEL_FILE).mkdir(parents=True)
    (skipped,) = scan(tmp_path).skipped
    assert (skipped.name, skipped.version, skipped.reason) == ("net", 1, "model.onnx is not a file")


def test_unprintable_names_are_not_served(tmp_path: Path) -> None:
    """A name that cannot be printed is in no log, URL or label. It is reported with escapes."""
    write_model(tmp_path, "good")
    write_model(tmp_path, "line\nbreak")
    write_model(tmp_path, os.fsdecode(b"bytes\xff"))
    write_model(tmp_path, "n" * (MAX_NAME_LENGTH + 1))
    contents = scan(tmp_path)
    assert list(contents.models) == ["good"]
    assert {path.name for path in contents.skipped} == {"line\\nbreak", "bytes\\udcff", "n" * MAX_NAME_LENGTH}
    assert all(path.name.isprintable() for path in contents.skipped)


def test_a_name_may_be_as_long_as_the_limit(tmp_path: Path) -> None:
    name = "n" * MAX_NAME_LENGTH
    write_model(tmp_path, name)
    assert list(scan(tmp_path).models) == [name]


def test_a_missing_repository_is_reported(tmp_path: Path) -> None:
    """The error has the setting, its value, and the expected value."""
    with pytest.raises(SettingError, match="models: expected a folder that can be read, got .*gone"):
        scan(tmp_path / "gone")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SettingError, match="models: expected a folder"):
        scan(tmp_path / "file")


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [("latest", [10]), ("all", [1, 2, 10]), ("1,10", [1, 10]), (" 2 , 7", [2]), ("7", [])],
)
def test_a_policy_selects_versions(tmp_path: Path, policy: str, chosen: list[int]) -> None:
    """It is the highest version, all versions, or a list."""
    for version in ("1", "2", "10"):
        write_model(tmp_path, "net", version)
    assert versions_of(VersionPolicy.parse(policy).choose(scan(tmp_path).models["net"])) == chosen


@pytest.mark.parametrize("text", ["", "newest", "1,", "0", "1;2", "-1", "1.5", "latest,1"])
def test_an_invalid_policy_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="versions: expected latest, all, or version numbers such as 1,3"):
        VersionPolicy.parse(text)


def test_only_the_scanned_file_is_read(tmp_path: Path) -> None:
    """A file that was replaced, changed or removed since the scan is an error."""
    file = scanned_file(tmp_path, b"model")
    path = file.path
    assert read_model_file(file) == b"model"
    path.write_bytes(b"another one")
    with pytest.raises(ModelFileError, match="has changed since then") as error:
        read_model_file(file)
    assert str(tmp_path) not in error.value.public_message
    path.unlink()
    with pytest.raises(ModelFileError, match="expected a file that can be read") as error:
        read_model_file(file)
    assert str(tmp_path) not in error.value.public_message


def test_files_of_tune_are_ignored(tmp_path: Path) -> None:
    """Its settings and its page are beside the models, and are neither served nor reported."""
    write_model(tmp_path, "net")
    for name in ("tuned.toml", "tuned.html"):
        (tmp_path / name).write_text("workers = 2\n")
    contents = scan(tmp_path)
    assert list(contents.models) == ["net"]
    assert contents.skipped == ()


def test_a_file_truncated_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part that was read does not count as the whole file."""
    file = scanned_file(tmp_path, b"x" * 5000)
    unchanged = scan_module.expect_unchanged

    def then_cut(file: ModelFile, descriptor: int | None = None) -> None:
        unchanged(file, descriptor)
        os.truncate(file.path, 100)

    monkeypatch.setattr(scan_module, "expect_unchanged", then_cut)
    with pytest.raises(ModelFileError, match="expected the file that was scanned, and it has changed"):
        read_model_file(file)


@pytest.mark.parametrize("size", [0, 1, 5 << 20])
def test_a_file_is_read_completely(tmp_path: Path, size: int) -> None:
    content = random.Random(0).randbytes(size)
    assert bytes(read_model_file(scanned_file(tmp_path, content))) == content


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages")
def test_content_is_read_into_huge_pages(tmp_path: Path) -> None:
    """Freeing ordinary pages would take as long as many requests."""
    maps = Path("/proc/self/smaps")
    if "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("this kernel has no huge pages")

    def advised() -> int:
        """How many memory mappings are advised to use huge pages."""
        return sum(" hg" in line for line in maps.read_text().splitlines() if line.startswith("VmFlags"))

    before = advised()
    content = read_model_file(scanned_file(tmp_path, b"x" * (9 << 20)))
    assert advised() == before + 1
    del content
    assert advised() == before
