"""A remote repository as the service sees it: addresses, the child process, its time limit, and the cache."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_server import ROOT, free_port
from tests.support.processes import is_alive
from tests.support.rollout_workers import Workers, run
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until
from turnpike.service.errors import SettingError, StoreError
from turnpike.service.remote.model_cache import ModelCache
from turnpike.service.remote.remote_repository import RemoteRepository
from turnpike.service.repository.rollout import Rollout

# a protobuf message with one string, as the cache accepts it
MODEL = b"\x12\x01a"


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"ftp://127.0.0.1:{listener.getsockname()[1]}/models"


def remote(tmp_path: Path, address: str | None = None, silence_limit: float = 10) -> RemoteRepository:
    return RemoteRepository(
        address or f"file://{tmp_path}/store", "latest", tmp_path / "cache", silence_limit
    )


def children() -> set[int]:
    """The ids of the processes that fetch for this one."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    return {int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()}


def test_models_are_served_from_the_cache(tmp_path: Path) -> None:
    """A changed file is seen by the next scan. No process is left, and none of it is imported here."""
    put_model(tmp_path / "store", "net", 1, MODEL)
    put_model(tmp_path / "store", "net", 3, MODEL)
    (tmp_path / "store/README.md").touch()
    repository = remote(tmp_path)
    before = children()
    found = run(repository.find_models())
    (file,) = found.models["net"]
    assert (file.version, file.path.parent, file.path.read_bytes()) == (3, tmp_path / "cache/files", MODEL)
    assert found.unfetched == {"net": (1,)}
    assert repository.other_entries() == ["README.md"]
    assert children() == before
    put_model(tmp_path / "store", "net", 3, MODEL + MODEL)
    (new,) = run(repository.find_models()).models["net"]
    assert new.path != file.path
    assert file.path.exists()


def test_a_silent_store_is_given_up(tmp_path: Path) -> None:
    """Its process is killed. The event loop has its turn meanwhile."""
    before = children()

    async def scan_and_count() -> int:
        turns = 0
        scan = asyncio.create_task(remote(tmp_path, address, 0.3).find_models())
        while not scan.done() and turns < 500:
            turns += 1
            await asyncio.sleep(0.01)
        with pytest.raises(StoreError, match=r"within 0\.3 s \(--store-seconds\), got none"):
            scan.result()
        return turns

    with silent_server() as address:
        assert asyncio.run(scan_and_count()) > 10
    assert children() == before


def test_a_cancelled_scan_ends_its_process(tmp_path: Path) -> None:
    """So does a service that stops."""
    before = children()

    async def cancel() -> None:
        scan = asyncio.create_task(remote(tmp_path, address, 60).find_models())
        while children() == before:
            await asyncio.sleep(0.01)
        scan.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await scan

    with silent_server() as address:
        asyncio.run(cancel())
    assert children() == before


# prints the id of the process that fetches, and is killed
KILLED_SERVICE = """
import asyncio, os, signal, sys
from pathlib import Path
from turnpike.service.remote.remote_repository import RemoteRepository

async def main():
    repository = RemoteRepository(sys.argv[1], "latest", Path(sys.argv[2]), 60)
    scan = asyncio.create_task(repository.find_models())
    await asyncio.sleep(1)
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_that_lost_its_service_ends(tmp_path: Path) -> None:
    """A killed service cannot end it."""
    with silent_server() as address:
        command = [sys.executable, "-c", KILLED_SERVICE, address, str(tmp_path)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        wait_until(lambda: not is_alive(int(ended.stdout)), 10)


def test_a_process_without_an_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the end of what it printed."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho start\necho killed\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(StoreError, match=r"ended without one: killed$"):
        run(remote(tmp_path).find_models())


def test_a_start_without_the_store_serves_the_last_listing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Later, a failed scan is an error, and what is served stays."""
    put_model(tmp_path / "store", "net", 1, MODEL)
    last = run(remote(tmp_path).find_models())
    shutil.move(tmp_path / "store", tmp_path / "away")
    repository = remote(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert run(repository.find_models()) == last
    assert "the models of the last listing are served from" in caplog.text
    assert "expected a repository that can be listed" in caplog.text
    with pytest.raises(StoreError, match="expected a repository that can be listed"):
        run(repository.find_models())


def test_a_start_without_the_store_and_a_cache_fails(tmp_path: Path) -> None:
    address = f"ftp://127.0.0.1:{free_port()}/models"
    with pytest.raises(StoreError, match="expected a store that can be opened, got .*ConnectionRefused"):
        run(remote(tmp_path, address).find_models())


def test_a_wrong_address_is_not_hidden_by_the_cache(tmp_path: Path) -> None:
    """Nor is a missing library: the service would never see a change."""
    entry = {"name": "net", "version": 1, "revision": "", "digest": "0" * 64}
    ModelCache(tmp_path / "cache").write_listing("none://models", [entry])
    with pytest.raises(SettingError, match="an address that fsspec knows"):
        run(remote(tmp_path, "none://models").find_models())


def test_a_damaged_file_is_logged_once_and_tried_again_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put_model(tmp_path / "store", "net", 1, b"<html>").path
    repository = remote(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert run(repository.find_models()).skipped[0].reason == "its file is damaged"
    assert caplog.text.count("expected a model file, got something else") == 1
    status = path.stat()
    path.write_bytes(MODEL + MODEL)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run(repository.find_models()).models == {}
    assert list(run(repository.find_models(explicit=True)).models) == ["net"]


def test_a_rollout_serves_an_older_version_if_the_newest_fails(tmp_path: Path, workers: Workers) -> None:
    """It is downloaded only then. A poll leaves it as it is. Other versions are named."""
    for version in (1, 2):
        put_model(tmp_path / "store", "net", version, MODEL)
    put_model(tmp_path / "store", "net", 3, MODEL + MODEL)
    workers.bad = MODEL + MODEL
    rollout = Rollout(remote(tmp_path), "latest", workers.broadcast)
    run(rollout.rescan())
    assert rollout.names == ["net/2"]
    assert [(model.version, model.reason) for model in rollout.failed] == [(3, "its file is damaged")]
    left_out = [(model.version, model.reason) for model in workers.committed.left_out]
    assert left_out == [(1, "--versions latest serves version 2")]
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/2"]


def test_a_model_can_be_unloaded_while_a_store_is_silent(tmp_path: Path, workers: Workers) -> None:
    put_model(tmp_path / "store", "net", 1, MODEL)
    repository = remote(tmp_path, silence_limit=30)
    rollout = Rollout(repository, "latest", workers.broadcast)

    async def unload() -> float:
        await rollout.rescan()
        repository.address = address
        scan = asyncio.create_task(rollout.rescan(explicit=False))
        await asyncio.sleep(0.1)
        started = time.perf_counter()
        assert await rollout.unload("net") == {"ok": True}
        seconds = time.perf_counter() - started
        scan.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await scan
        return seconds

    with silent_server() as address:
        assert asyncio.run(unload()) < 1
