"""A thread that gives way, and who waits for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.artifact.low_priority import LOWEST_PRIORITY, call_directly, low_priority_caller
from service.artifact.runtime import open_model
from service.config.settings import Settings
from service.errors import ModelFileError
from service.registry.loader import load
from service.telemetry.counters import RequestCounters
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_it_has_the_least_priority_and_nobody_else_has() -> None:
    """The thread that waits stays as it was, and so do those that come after it."""
    before = priority()
    with low_priority_caller() as call:
        assert call(priority) == LOWEST_PRIORITY
        assert priority() == before
    with low_priority_caller() as call:
        assert call(threading.get_ident) != threading.get_ident()
    assert priority() == before


def test_what_is_called_returns_or_raises_as_if_called_directly() -> None:
    """Arguments and results pass; an error is the caller's."""
    assert call_directly(pow, 2, 5) == 32
    with low_priority_caller() as call:
        assert call(pow, 2, 5) == 32
        with pytest.raises(ModelFileError, match="broken"):
            call(fails)


def fails() -> None:
    raise ModelFileError("broken")


def test_a_model_is_loaded_aside_but_for_what_is_python(tmp_path: Path) -> None:
    """Reading, hashes, opening and runs are left to the thread; the model that comes of it runs directly."""
    called: list[str] = []

    def call(do: Any, /, *given: Any) -> Any:
        called.append(getattr(do, "__name__", None) or do.func.__name__)
        return do(*given)

    model = load(put(tmp_path), Settings(), RequestCounters(), 1, call=call)
    assert called[:2] == ["read_model_file", "InferenceSession"]
    assert {"content_digest", "openssl_sha256", "run"} < set(called)
    runs = len(called)
    rows = np.zeros((1, *model.signature.inputs["x"].dims[1:]), np.float32)
    model.runtime.run({"x": rows})
    assert len(called) == runs


def test_threads_of_a_model_are_not_started_aside() -> None:
    """They would take after who starts them, and run requests with the least priority for good."""

    def call(do: Any, /, *given: Any) -> Any:
        raise AssertionError(do)

    open_model(highway().model, threads=2, call=call)
