"""The cache of downloaded files: names, whole files, listings and what killed downloads leave."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path

import pytest

from turnpike.service.errors import SettingError
from turnpike.service.remote.model_cache import DRAFT_PREFIX, ModelCache, default_cache_folder

CONTENT = b"a model"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
ENTRY = {"name": "net", "version": 1, "revision": "r", "digest": DIGEST}


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(tmp_path)


def add(cache: ModelCache, content: bytes = CONTENT) -> str:
    with cache.draft() as draft:
        draft.write_bytes(content)
        return cache.add(draft)


def test_a_file_is_named_by_its_digest(tmp_path: Path, cache: ModelCache) -> None:
    """No draft is left. A second process finds the file."""
    assert not cache.has(DIGEST)
    assert add(cache) == DIGEST
    assert [path.name for path in (tmp_path / "files").iterdir()] == [DIGEST]
    assert ModelCache(tmp_path).has(DIGEST)


@pytest.mark.parametrize("name", ["", "../x", DIGEST.upper(), f"{DIGEST}0", f"{DIGEST[:-1]}/"])
def test_only_digests_become_paths(cache: ModelCache, name: str) -> None:
    with pytest.raises(ValueError, match="expected a SHA-256 digest"):
        cache.path(name)


def test_a_damaged_file_is_noticed(cache: ModelCache) -> None:
    """It is read again unless this identity was verified before."""
    add(cache)
    verified = cache.identity(DIGEST)
    cache.path(DIGEST).write_bytes(CONTENT.upper())
    assert not cache.has(DIGEST)
    assert not cache.has(DIGEST, verified)
    assert cache.has(DIGEST, cache.identity(DIGEST))


def test_a_failed_download_leaves_nothing(tmp_path: Path, cache: ModelCache) -> None:
    def cut() -> None:
        with cache.draft() as draft:
            draft.write_bytes(CONTENT[:3])
            raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        cut()
    assert list((tmp_path / "files").iterdir()) == []


def test_drafts_of_killed_downloads_are_removed(tmp_path: Path, cache: ModelCache) -> None:
    """One that another process still writes is locked, and stays."""
    abandoned, locked = (tmp_path / "files" / f"{DRAFT_PREFIX}{number}" for number in (1, 2))
    abandoned.write_bytes(CONTENT)
    with locked.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        add(cache)
        assert {path.name for path in (tmp_path / "files").iterdir()} == {locked.name, DIGEST}
        with cache.draft() as draft:
            add(cache)
            assert draft.exists()


def test_listings_are_kept_by_address(cache: ModelCache) -> None:
    cache.write_listing("s3://a", [ENTRY])
    assert cache.read_listing("s3://a") == [ENTRY]
    assert cache.read_listing("s3://b") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "null",
        '{"address": "s3://b", "objects": [1]}',
        '{"address": "s3://a", "objects": [1]}',
        '{"address": "s3://a", "objects": [{"name": "net", "version": 1, "revision": "", "digest": "../x"}]}',
    ],
)
def test_a_damaged_listing_is_empty(tmp_path: Path, cache: ModelCache, text: str) -> None:
    """Its digests become paths, so they are checked."""
    cache.write_listing("s3://a", [ENTRY])
    (listing,) = (tmp_path / "listings").iterdir()
    listing.write_text(text)
    assert cache.read_listing("s3://a") == []


def test_a_folder_that_cannot_be_made_is_a_setting_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        SettingError, match="model_cache: expected a folder that can be written, got '.*/file'"
    ):
        ModelCache(tmp_path / "file")


def test_the_cache_is_in_the_cache_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path))
    assert default_cache_folder() == tmp_path / "models"
