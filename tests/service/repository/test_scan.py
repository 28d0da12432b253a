"""What counts as a model in a repository, and what never does."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path

import pytest

from service.errors import ModelFileError, SettingError
from service.repository import scan as repository
from service.repository.scan import (
    MAX_NAME_LENGTH,
    MODEL_FILE,
    ModelFile,
    RepositoryScan,
    VersionPolicy,
    file_identity,
    read_model_file,
    scan,
)


def touch(root: Path, name: str, version: str = "1", content: bytes = b"model") -> Path:
    path = root / name / version / MODEL_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put(root: Path, content: bytes) -> ModelFile:
    """A file with that content, found."""
    path = touch(root, "net", content=content)
    return ModelFile("net", 1, path, file_identity(path.stat()))


def numbers(found: tuple[ModelFile, ...]) -> list[int]:
    return [one.version for one in found]


def test_names_and_versions_are_read_from_the_folder(tmp_path: Path) -> None:
    """Versions come in the order of numbers, each with its path and the stamp of its file."""
    for version in ("10", "9", "2"):
        touch(tmp_path, "net", version)
    path = touch(tmp_path, "other net")
    contents = scan(tmp_path)
    assert {name: numbers(found) for name, found in contents.models.items()} == {
        "net": [2, 9, 10],
        "other net": [1],
    }
    kept = path.stat()
    assert contents.models["other net"] == (
        ModelFile("other net", 1, path, (kept.st_ino, kept.st_mtime_ns, kept.st_size)),
    )
    assert contents.skipped == ()


@pytest.mark.parametrize(
    "version", ["0", "01", "-1", "1.0", "v1", "\u0661", "2147483648", "99999999999", ".1"]
)
def test_only_whole_numbers_are_versions(tmp_path: Path, version: str) -> None:
    """Other folders are somebody's own."""
    touch(tmp_path, "net", version)
    contents = scan(tmp_path)
    assert contents.models == {}
    assert contents.skipped == ()


def test_what_is_no_model_is_passed_over(tmp_path: Path) -> None:
    """Hidden folders, drafts, files and folders without a model are none, and no fault either."""
    touch(tmp_path, ".hidden")
    (tmp_path / "empty" / "1").mkdir(parents=True)
    (tmp_path / "draft" / "1").mkdir(parents=True)
    (tmp_path / "draft" / "1" / ".model.onnx.123").write_bytes(b"half")
    (tmp_path / "README.md").write_text("hello")
    assert scan(tmp_path) == RepositoryScan()


def test_links_may_not_leave_the_repository(tmp_path: Path) -> None:
    """Neither a model's folder nor a version nor the file itself; the reason is kept and holds no path."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    secret = touch(outside, "secret")
    touch(root, "inside")
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
    assert {(one.name, one.version) for one in contents.skipped} == {
        ("folder", None),
        ("version", 1),
        ("file", 1),
        ("dangling", 1),
        ("loop", 1),
    }
    assert not any(str(tmp_path) in one.reason for one in contents.skipped)


def test_links_within_the_repository_are_followed(tmp_path: Path) -> None:
    """As volumes of Kubernetes and releases are laid out: hidden folders, and a root that is a link."""
    touch(tmp_path / "releases", "..data/net")
    (tmp_path / "releases" / "net").symlink_to(tmp_path / "releases" / "..data" / "net")
    (tmp_path / "current").symlink_to(tmp_path / "releases")
    assert numbers(scan(tmp_path / "current").models["net"]) == [1]


def test_a_folder_in_the_place_of_the_file_is_said(tmp_path: Path) -> None:
    """What is called like a model and is none was meant to be one."""
    (tmp_path / "net" / "1" / MODEL_FILE).mkdir(parents=True)
    (skipped,) = scan(tmp_path).skipped
    assert (skipped.name, skipped.version, skipped.reason) == ("net", 1, "model.onnx is no file")


def test_odd_names_are_not_served(tmp_path: Path) -> None:
    """A name that cannot be shown goes into no log, address or label; it is shown escaped, with why."""
    touch(tmp_path, "good")
    touch(tmp_path, "line\nbreak")
    touch(tmp_path, os.fsdecode(b"bytes\xff"))
    touch(tmp_path, "n" * (MAX_NAME_LENGTH + 1))
    contents = scan(tmp_path)
    assert list(contents.models) == ["good"]
    assert {one.name for one in contents.skipped} == {"line\\nbreak", "bytes\\udcff", "n" * MAX_NAME_LENGTH}
    assert all(one.name.isprintable() for one in contents.skipped)


def test_a_repository_that_is_not_there_is_said(tmp_path: Path) -> None:
    """The setting, what it was, and what was expected."""
    with pytest.raises(SettingError, match="models: expected a folder that can be read, got .*gone"):
        scan(tmp_path / "gone")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SettingError, match="models: expected a folder"):
        scan(tmp_path / "file")


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [("latest", [10]), ("all", [1, 2, 10]), ("1,10", [1, 10]), (" 2 , 7", [2]), ("7", [])],
)
def test_a_policy_chooses_versions(tmp_path: Path, policy: str, chosen: list[int]) -> None:
    """The highest, every one, or those of a list that are there."""
    for version in ("1", "2", "10"):
        touch(tmp_path, "net", version)
    assert numbers(VersionPolicy.parse(policy).choose(scan(tmp_path).models["net"])) == chosen


@pytest.mark.parametrize("text", ["", "newest", "1,", "0", "1;2", "-1", "1.5", "latest,1"])
def test_a_policy_that_makes_no_sense_is_refused(text: str) -> None:
    """Start-up stops with what the setting may be."""
    with pytest.raises(SettingError, match="versions: expected latest, all, or whole numbers from 1"):
        VersionPolicy.parse(text)


def test_only_the_file_that_was_found_is_read(tmp_path: Path) -> None:
    """One that was exchanged, changed or removed since then waits to be found again."""
    found = put(tmp_path, b"model")
    path = found.path
    assert read_model_file(found) == b"model"
    path.write_bytes(b"another one")
    with pytest.raises(ModelFileError, match="has changed since then") as error:
        read_model_file(found)
    assert str(tmp_path) not in error.value.public_message
    path.unlink()
    with pytest.raises(ModelFileError, match="expected a file that can be read") as error:
        read_model_file(found)
    assert str(tmp_path) not in error.value.public_message


def test_what_tune_writes_is_no_model(tmp_path: Path) -> None:
    """Its settings and its page lie beside the models, and are neither served nor complained of."""
    touch(tmp_path, "net")
    for name in ("tuned.toml", "tuned.html"):
        (tmp_path / name).write_text("workers = 2\n")
    contents = scan(tmp_path)
    assert list(contents.models) == ["net"]
    assert contents.skipped == ()


def test_a_file_that_is_cut_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there of it is not taken for all."""
    found = put(tmp_path, b"x" * 5000)
    unchanged = repository.expect_unchanged

    def then_cut(found: ModelFile, opened: int | None = None) -> None:
        unchanged(found, opened)
        os.truncate(found.path, 100)

    monkeypatch.setattr(repository, "expect_unchanged", then_cut)
    with pytest.raises(ModelFileError, match="expected the file that was found, and it has changed"):
        read_model_file(found)


@pytest.mark.parametrize("size", [0, 1, 5 << 20])
def test_all_of_a_file_is_read(tmp_path: Path, size: int) -> None:
    """As it is, be it empty or large."""
    content = random.Random(0).randbytes(size)
    assert bytes(read_model_file(put(tmp_path, content))) == content


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without huge pages")
def test_what_is_read_is_soon_given_back(tmp_path: Path) -> None:
    """It lies in huge pages where there are any: small ones take the time of many requests to free."""
    maps = Path("/proc/self/smaps")
    if "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("a kernel without huge pages")

    def advised() -> int:
        """How many mappings are to have them."""
        return sum(" hg" in line for line in maps.read_text().splitlines() if line.startswith("VmFlags"))

    before = advised()
    content = read_model_file(put(tmp_path, b"x" * (9 << 20)))
    assert advised() == before + 1
    del content
    assert advised() == before
