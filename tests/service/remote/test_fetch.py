"""Downloads to the cache: which files, what is checked, and what stays if a download fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import stand_in_store
from tests.support.stand_in_store import StandInStore, spoil_downloads
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.common.file_digest import sha256_of
from turnpike.service.errors import StoreError
from turnpike.service.remote.fetch import FetchRequest, fetch
from turnpike.service.remote.model_cache import ModelCache
from turnpike.service.repository import scan

Answer = dict[str, Any]
Fetch = Callable[..., Answer]


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    stand_in_store.install()
    yield
    stand_in_store.install()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository in the store."""
    return tmp_path / "store"


@pytest.fixture(scope="session")
def whole() -> bytes:
    """A model with the digest of its content in its manifest."""
    return with_manifest(highway())


@pytest.fixture
def fetched(tmp_path: Path, root: Path) -> Fetch:
    def fetched(**request: Any) -> Answer:
        fields: dict[str, Any] = {
            **{"policy": "latest", "offline": False, "verified": {}, "failed": (), "damaged": {}},
            **request,
        }
        address = stand_in_store.address(root)
        return fetch(FetchRequest(address=address, cache=tmp_path / "cache", **fields))

    return fetched


def contents(tmp_path: Path, answer: Answer) -> dict[str, bytes]:
    """The content of each file of an answer."""
    cache = ModelCache(tmp_path / "cache")
    return {
        f"{name}/{version}": cache.path(digest).read_bytes()
        for name, files in answer["models"].items()
        for version, digest, _ in files
    }


def versions(answer: Answer, name: str = "net") -> list[int]:
    return [version for version, _, _ in answer["models"][name]]


def cached_files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "files").iterdir())


def put(root: Path, version: int, text: str) -> Path:
    """A file that is a protobuf message without a manifest, as others export them."""
    data = text.encode()
    return put_model(root, "net", version, b"\x12" + bytes([len(data)]) + data).path


def test_only_what_is_served_is_downloaded(tmp_path: Path, root: Path, fetched: Fetch) -> None:
    paths = [put(root, version, f"version {version}") for version in (1, 2, 10)]
    answer = fetched()
    assert contents(tmp_path, answer) == {"net/10": paths[-1].read_bytes()}
    assert answer["unfetched"] == {"net": [1, 2]}
    assert StandInStore.downloads == ["net/10"]
    assert versions(fetched(policy="all")) == [1, 2, 10]
    assert versions(fetched(policy="2,3")) == [2]
    assert sorted(StandInStore.downloads) == ["net/1", "net/10", "net/2"]


def test_files_are_downloaded_again_only_if_they_changed(tmp_path: Path, root: Path, fetched: Fetch) -> None:
    put(root, 1, "old")
    assert fetched() == fetched()
    assert len(StandInStore.downloads) == 1
    path = put(root, 1, "new")
    assert contents(tmp_path, fetched()) == {"net/1": path.read_bytes()}
    assert len(StandInStore.downloads) == 2


def test_names_in_the_cache_are_digests(tmp_path: Path, root: Path, fetched: Fetch) -> None:
    path = put(root, 1, "content")
    fetched()
    assert cached_files(tmp_path) == [sha256_of(path)]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def fail(path: Path) -> None:
    raise ConnectionResetError(104, "Connection reset by peer")


def refuse(path: Path) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(
    ("spoil", "reason", "note"),
    [
        (cut, "its download was incomplete", "net/2: expected the 11 bytes that are listed, got 10"),
        (fail, "its file cannot be downloaded", "net/2: expected a file that can be downloaded (Connection"),
        (
            lambda path: path.write_bytes(b"<html>busy\n"),
            "its file is damaged",
            "net/2: expected a model file, got something else (",
        ),
    ],
)
def test_a_bad_download_is_refused(
    tmp_path: Path, root: Path, fetched: Fetch, spoil: stand_in_store.Spoil, reason: str, note: str
) -> None:
    """It is not in the cache, and an older version takes its place. The log has what came."""
    old, new = put(root, 1, "old"), put(root, 2, "version 2")
    spoil_downloads(lambda path: spoil(path) if path.stat().st_size == 11 else None)
    answer = fetched()
    assert answer["skipped"] == [["net", 2, reason]]
    assert contents(tmp_path, answer) == {"net/1": old.read_bytes()}
    assert cached_files(tmp_path) == [sha256_of(old)]
    assert any(note in sentence for sentence in answer["notes"])
    spoil_downloads(stand_in_store.leave_alone)
    assert versions(fetched()) == [2]
    assert sha256_of(new) in cached_files(tmp_path)


def flip_a_weight(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)


def test_a_file_with_another_content_than_its_manifest_is_refused(
    tmp_path: Path, root: Path, fetched: Fetch, whole: bytes
) -> None:
    """It is not downloaded again, as long as the service remembers it and the file is not replaced."""
    path = put_model(root, "net", 1, whole).path
    spoil_downloads(flip_a_weight)
    answer = fetched()
    reason = "its graph or weights are not those of its manifest"
    assert (answer["models"], answer["skipped"]) == ({"net": []}, [["net", 1, reason]])
    assert cached_files(tmp_path) == []
    assert "net/1: expected the graph and weights of its manifest, with digest" in answer["notes"][0]
    spoil_downloads(stand_in_store.leave_alone)
    again = fetched(damaged=answer["damaged"])
    assert (again["skipped"], again["damaged"]) == (answer["skipped"], answer["damaged"])
    assert StandInStore.downloads == ["net/1"]
    assert versions(fetched()) == [1]
    path.write_bytes(whole)
    assert versions(fetched(damaged=answer["damaged"])) == [1]


def test_a_file_that_changes_while_it_is_downloaded_is_refused(root: Path, fetched: Fetch) -> None:
    """Some libraries download parts at a time, and could mix two files."""
    put(root, 1, "old")
    spoil_downloads(lambda _: put(root, 1, "new"))
    assert fetched()["skipped"] == [["net", 1, "its file changed while it was downloaded"]]
    spoil_downloads(stand_in_store.leave_alone)
    assert fetched()["skipped"] == []


def test_a_file_over_the_limit_is_not_downloaded(
    monkeypatch: pytest.MonkeyPatch, root: Path, fetched: Fetch
) -> None:
    monkeypatch.setattr("turnpike.service.remote.fetch.MAX_FILE_BYTES", 5)
    assert scan.MAX_FILE_BYTES == 2**31 - 1
    put(root, 1, "content")
    assert fetched()["skipped"] == [["net", 1, "its file is larger than 2 GiB"]]
    assert StandInStore.downloads == []


def test_the_file_before_stays_while_a_new_one_cannot_be_downloaded(
    tmp_path: Path, root: Path, fetched: Fetch
) -> None:
    """Each scan tries the new one again, after a restart too."""
    put(root, 1, "older")
    before = put(root, 2, "old").read_bytes()
    fetched()
    path = put(root, 2, "new!")
    spoil_downloads(fail)
    for _ in range(2):
        answer = fetched()
        assert contents(tmp_path, answer) == {"net/2": before}
        assert answer["skipped"] == [["net", 2, "its file cannot be downloaded"]]
    spoil_downloads(stand_in_store.leave_alone)
    assert contents(tmp_path, fetched()) == {"net/2": path.read_bytes()}


def test_a_scan_that_is_killed_keeps_its_downloads(root: Path, fetched: Fetch) -> None:
    for version in (1, 2):
        put(root, version, f"version {version}")

    def kill(path: Path) -> None:
        if path.read_bytes().endswith(b"2"):
            raise KeyboardInterrupt

    spoil_downloads(kill)
    with pytest.raises(KeyboardInterrupt):
        fetched(policy="all")
    spoil_downloads(stand_in_store.leave_alone)
    assert versions(fetched(policy="all")) == [1, 2]
    assert StandInStore.downloads == ["net/1", "net/2", "net/2"]


def test_a_store_that_fails_is_not_tried_for_every_file(root: Path, fetched: Fetch) -> None:
    """Libraries try again for a long time. Files that may not be read do not count."""
    for version in range(1, 9):
        put(root, version, f"version {version}")
    spoil_downloads(fail)
    answer = fetched(policy="all")
    assert StandInStore.downloads == ["net/1", "net/2", "net/3"]
    assert [version for _, version, _ in answer["skipped"]] == list(range(1, 9))
    assert answer["unfetched"] == {"net": []}
    spoil_downloads(refuse)
    assert len(fetched(policy="all")["skipped"]) == 8
    assert len(StandInStore.downloads) == 3 + 8
    spoil_downloads(stand_in_store.leave_alone)
    assert len(versions(fetched(policy="all"))) == 8


def test_a_version_that_workers_cannot_load_has_an_older_one_beside_it(root: Path, fetched: Fetch) -> None:
    for version in (1, 2, 3):
        put(root, version, f"version {version}")
    ((_, newest, _),) = fetched()["models"]["net"]
    answer = fetched(failed=[newest])
    assert versions(answer) == [2, 3]
    assert answer["unfetched"] == {"net": [1]}


def test_a_damaged_file_in_the_cache_is_downloaded_again(tmp_path: Path, root: Path, fetched: Fetch) -> None:
    path = put(root, 1, "content")
    ((_, digest, identity),) = fetched()["models"]["net"]
    (tmp_path / "cache/files" / digest).write_bytes(b"damaged")
    answer = fetched(verified={digest: identity})
    assert contents(tmp_path, answer) == {"net/1": path.read_bytes()}
    assert "its file in the cache is missing or damaged" in answer["notes"][0]
    assert len(StandInStore.downloads) == 2


def test_without_the_store_the_last_listing_is_served(tmp_path: Path, root: Path, fetched: Fetch) -> None:
    """Files that are not in the cache, or damaged there, are left out."""
    path = put(root, 1, "one")
    fetched()
    put(root, 2, "two")
    ((_, digest, _),) = fetched()["models"]["net"]
    root.rename(tmp_path / "gone")
    assert versions(fetched(offline=True)) == [2]
    (tmp_path / "cache/files" / digest).write_bytes(b"damaged")
    answer = fetched(offline=True)
    assert contents(tmp_path, answer) == {"net/1": (tmp_path / "gone" / path.relative_to(root)).read_bytes()}
    assert answer["skipped"] == [["net", 2, "its file is not in the cache"]]


def test_without_the_store_and_a_cache_there_is_an_error(fetched: Fetch) -> None:
    with pytest.raises(StoreError, match="expected files of 'stand-in://.*' in the cache, got none"):
        fetched(offline=True)
