"""Calls in a low-priority thread."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model
from turnpike.service.artifact.runtime import open_model
from turnpike.service.config.settings import Settings
from turnpike.service.errors import ModelFileError
from turnpike.service.low_priority import LOWEST_PRIORITY, call_directly, low_priority_caller
from turnpike.service.registry.loader import load
from turnpike.service.telemetry.counters import RequestCounters


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_only_its_own_thread_has_low_priority() -> None:
    """The calling thread keeps its priority, during and after the calls."""
    before = priority()
    with low_priority_caller() as call:
        assert call(priority) == LOWEST_PRIORITY
        assert priority() == before
    with low_priority_caller() as call:
        assert call(threading.get_ident) != threading.get_ident()
    assert priority() == before


def test_calls_return_and_raise_like_direct_calls() -> None:
    assert call_directly(pow, 2, 5) == 32
    with low_priority_caller() as call:
        assert call(pow, 2, 5) == 32
        with pytest.raises(ModelFileError, match="broken"):
            call(fails)


def fails() -> None:
    raise ModelFileError("broken")


def test_a_model_is_loaded_with_low_priority(tmp_path: Path) -> None:
    """Reading, hashes, opening and trial runs use the caller. The loaded model runs without it."""
    calls: list[str] = []

    def call(function: Any, /, *args: Any) -> Any:
        calls.append(getattr(function, "__name__", None) or function.func.__name__)
        return function(*args)

    model = load(put_model(tmp_path), Settings(), RequestCounters(), 1, call=call)
    assert calls[:2] == ["read_model_file", "content_digest"]
    assert {"openssl_sha256", "InferenceSession", "run"} < set(calls)
    runs = len(calls)
    rows = np.zeros((1, *model.signature.inputs["x"].dims[1:]), np.float32)
    model.runtime.run({"x": rows})
    assert len(calls) == runs


def test_threads_of_a_model_do_not_get_low_priority() -> None:
    """They would inherit it from the thread that starts them, and keep it for requests."""

    def call(function: Any, /, *args: Any) -> Any:
        raise AssertionError(function)

    open_model(highway().model, threads=2, call=call)
