"""The trial of a file in a process of its own: what it finds, its time limit, and the end of its process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.endless_model import endless_model
from tests.support.live_server import ROOT, environment
from tests.support.processes import is_alive
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until
from turnpike.service.config.settings import Settings
from turnpike.service.process import trial as trials
from turnpike.service.process.trial import Trial
from turnpike.service.repository.scan import ModelFile


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children()]


def end(pid: int) -> None:
    """End a process, which would run for ever if the test fails."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def trial(**settings: Any) -> Trial:
    return Trial(Settings(allow_unverified=True, **settings))


def run_with_child(file: ModelFile, act: Callable[[asyncio.Task[str | None], int], None]) -> str | None:
    """The outcome of a trial, to whose task and process something is done once it has begun."""

    async def start() -> str | None:
        before = set(children())
        running = asyncio.create_task(trial()(file))
        (child,) = await asyncio.to_thread(wait_until, lambda: set(children()) - before)
        act(running, child)
        try:
            return await running
        finally:
            is_left = is_alive(child)
            end(child)
            assert not is_left

    return asyncio.run(start())


def test_a_file_that_can_be_loaded_passes(tmp_path: Path) -> None:
    before = children()  # libraries may keep one, such as multiprocessing's tracker of resources
    file = put_model(tmp_path, data=highway().model)
    assert asyncio.run(trial()(file)) is None
    assert children() == before


def test_a_file_that_cannot_be_loaded_fails_for_the_same_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has path and cause."""
    file = put_model(tmp_path, data=highway().model.replace(b"Sigmoid", b"Nonsens"))
    assert asyncio.run(trial()(file)) == "its file is damaged or not an ONNX model"
    assert f"net/1 is not served: {file.path}: onnxruntime cannot open it" in caplog.text


def test_a_process_that_gives_no_answer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A library may end the process with status 0. This one prints other things."""
    (tmp_path / "talker.py").write_text("def main():\n    print('a library says goodbye')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(trials, "MODULE", "talker")
    assert asyncio.run(trial()(put_model(tmp_path))) == "its trial gave no answer"
    assert "net/1 is not served: its trial gave no answer: " in caplog.text


def test_a_trial_has_a_time_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The limit is shorter than the start of the process, so any file takes longer."""
    before = children()
    reason = "its trial took longer than 0.01 s (--trial-seconds)"
    with caplog.at_level(logging.INFO):
        assert asyncio.run(trial(trial_seconds=0.01)(put_model(tmp_path, data=endless_model()))) == reason
    assert children() == before
    assert caplog.messages == [
        "net/1 has no manifest: it is on trial for up to 0.01 s",
        f"net/1 is not served: {reason}",
    ]


def test_a_trial_that_crashes_names_the_signal(tmp_path: Path) -> None:
    file = put_model(tmp_path, data=endless_model())
    outcome = run_with_child(file, lambda _, child: os.kill(child, signal.SIGSEGV))
    assert outcome == "its trial was ended by SIGSEGV"


def test_a_trial_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(asyncio.CancelledError):
        run_with_child(put_model(tmp_path, data=endless_model()), lambda running, _: running.cancel())


PARENT = """
import asyncio, sys
from pathlib import Path
from turnpike.service.config.settings import Settings
from turnpike.service.process import trial as trials
from turnpike.service.process.trial import Trial
from turnpike.service.repository.scan import ModelFile, file_identity

path = Path(sys.argv[1])
file = ModelFile("net", 1, path, file_identity(path.stat()))
asyncio.run(Trial(Settings(allow_unverified=True))(file))
"""


def test_a_trial_ends_if_its_service_is_killed(tmp_path: Path) -> None:
    """While it runs the endless model."""
    path = put_model(tmp_path, data=endless_model()).path
    parent = subprocess.Popen([sys.executable, "-c", PARENT, path], cwd=ROOT, env=environment())
    try:
        (child,) = wait_until(lambda: psutil.Process(parent.pid).children())
        # its imports take less
        wait_until(lambda: child.cpu_times().user > 1.5)
    finally:
        parent.kill()
        parent.wait()
    try:
        wait_until(lambda: not is_alive(child.pid), seconds=10)
    finally:
        end(child.pid)
