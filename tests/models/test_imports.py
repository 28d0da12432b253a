"""Imports with the garbage collector paused."""

from __future__ import annotations

import gc
import sys

import pytest

from turnpike.models.imports import collector_paused


def test_the_collector_is_paused_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of imported modules are not visited any more."""
    freezes: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: freezes.append(gc.isenabled()))
    with collector_paused():
        assert not gc.isenabled()
        monkeypatch.setitem(sys.modules, "a module", sys)  # as an import does
    assert gc.isenabled()
    assert freezes == [False]


def test_nothing_is_frozen_if_nothing_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that calls a command again and again frees its garbage."""
    monkeypatch.setattr(gc, "freeze", lambda: pytest.fail("froze objects"))
    with collector_paused():
        import gc as _  # noqa: F401
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
