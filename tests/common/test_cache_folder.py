"""The cache folder of a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnpike.common.cache_folder import cache_folder


def test_the_cache_folder_can_be_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TURNPIKE_CACHE comes first, then an absolute XDG_CACHE_HOME, then ~/.cache."""
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder("mnist") == tmp_path / "own" / "mnist"
    monkeypatch.delenv("TURNPIKE_CACHE")
    assert cache_folder("mnist") == tmp_path / "xdg" / "turnpike" / "mnist"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder("mnist") == tmp_path / "home" / ".cache" / "turnpike" / "mnist"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("mnist") == tmp_path / "home" / ".cache" / "turnpike" / "mnist"
