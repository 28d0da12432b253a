"""What a store lists: which names become models, when a file counts as replaced, and errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import stand_in_store
from tests.support.tiny_repository import put_model
from turnpike.service.errors import SettingError, StoreError
from turnpike.service.remote.listing import Listing, list_repository, open_store, parse_listing
from turnpike.service.repository.scan import MAX_NAME_LENGTH, SkippedPath

FILE = {"type": "file", "size": 5, "ETag": "a"}


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    stand_in_store.install()
    yield
    stand_in_store.install()


def listed(*paths: str, root: str = "bucket/models", **info: Any) -> Listing:
    return parse_listing(dict.fromkeys(paths, FILE | info), root)


def revision(**info: Any) -> str:
    (file,) = listed("bucket/models/net/1/model.onnx", **info).files
    return file.revision


def listing_of(folder: Path) -> Listing:
    address = stand_in_store.address(folder)
    return list_repository(*open_store(address), address)


def test_models_and_versions_are_read_from_the_listing() -> None:
    """Versions come in numerical order, and other files are named once."""
    listing = listed(
        "bucket/models/net/10/model.onnx",
        "bucket/models/net/9/model.onnx",
        "bucket/models/net/9/plain.onnx",
        "bucket/models/other/1/model.onnx",
        "bucket/models/notes/a.md",
        "bucket/models/notes/b.md",
        "bucket/models/README.md",
    )
    found = [(file.name, file.version, file.path, file.size) for file in listing.files]
    assert found == [
        ("net", 9, "bucket/models/net/9/model.onnx", 5),
        ("net", 10, "bucket/models/net/10/model.onnx", 5),
        ("other", 1, "bucket/models/other/1/model.onnx", 5),
    ]
    assert (listing.skipped, listing.others) == ((), ("README.md", "notes"))


@pytest.mark.parametrize(
    "path",
    [
        "bucket/elsewhere/net/1/model.onnx",
        "bucket/models2/net/1/model.onnx",
        "../../etc/net/1/model.onnx",
        "bucket/models/../1/model.onnx",
        "bucket/models/./1/model.onnx",
        "bucket/models//1/model.onnx",
        "bucket/models/.hidden/1/model.onnx",
        "bucket/models/net/../model.onnx",
        "bucket/models/net/0/model.onnx",
        "bucket/models/net/2147483648/model.onnx",
        "bucket/models/net/1/../../model.onnx",
        "bucket/models/net/1/model.onnx/",
        "bucket/models/a/net/1/model.onnx",
    ],
)
def test_paths_that_are_no_models_are_ignored(path: str) -> None:
    assert listed(path).files == ()


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\u202eb", "x" * (MAX_NAME_LENGTH + 1)])
def test_names_are_checked_as_those_of_folders_are(name: str) -> None:
    """What cannot be printed is shown with escapes."""
    listing = listed(f"bucket/models/{name}/1/model.onnx", f"bucket/models/{name}/2/model.onnx")
    assert listing.files == ()
    (skipped,) = listing.skipped
    assert skipped.name.isprintable()
    assert len(skipped.name) <= 2 * MAX_NAME_LENGTH


def test_what_is_not_a_file_is_skipped() -> None:
    skipped = SkippedPath("net", 1, "model.onnx is not a file")
    assert listed("bucket/models/net/1/model.onnx", type="other").skipped == (skipped,)


def test_a_revision_changes_when_a_file_is_replaced() -> None:
    """Facts that say nothing about the content count only if there are no others."""
    before = revision(LastModified="Monday", atime=1)
    assert revision(LastModified="Monday", atime=2) == before
    assert revision(LastModified="Tuesday", atime=1) != before
    assert revision(LastModified="Monday", atime=1, size=6) != before
    assert revision(LastModified="Monday", atime=1, ETag="b") != before
    assert revision(ETag=None, state=1) != revision(ETag=None, state=2)


def test_a_repository_without_files_is_an_error(tmp_path: Path) -> None:
    """Most stores cannot tell an empty folder from a missing one."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"which has no files$"):
        listing_of(tmp_path / "empty")
    with pytest.raises(StoreError, match="expected a repository that can be listed, got .*FileNotFoundError"):
        listing_of(tmp_path / "gone")


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Its models would seem to be removed, and no longer be served."""
    put_model(tmp_path, "net", 1, b"content")
    put_model(tmp_path, "other", 1, b"content")
    stand_in_store.StandInStore.refused = "other"
    with pytest.raises(StoreError, match="PermissionError"):
        listing_of(tmp_path)


@pytest.mark.parametrize("part", ["net", "net/1", "net/1/model.onnx"])
def test_the_address_of_a_model_is_refused(tmp_path: Path, part: str) -> None:
    put_model(tmp_path, "net", 1, b"content")
    with pytest.raises(SettingError, match="give that of the folder above"):
        listing_of(tmp_path / part)


@pytest.mark.parametrize(
    ("missing", "address", "advice"),
    [
        (
            "fsspec.core",
            "file:///models",
            r"'file:///models' needs fsspec, which is not installed: pip install .*\[serve,remote\]'",
        ),
        ("s3fs", "s3://bucket/models", "expected the library of s3:// for .*: pip install s3fs$"),
        ("ocifs", "oci://bucket/models", "expected the library of oci:// for .*Install ocifs"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str, address: str, advice: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SettingError, match=advice) as error:
        open_store(address)
    assert not isinstance(error.value, StoreError)


def test_an_unknown_protocol_is_a_setting_error() -> None:
    with pytest.raises(SettingError, match="expected an address that fsspec knows, got 'none://x'"):
        open_store("none://x")
