"""Models that need more memory than there is, with a real server: only their own requests fail."""

from __future__ import annotations

import asyncio
import re
import resource
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pytest
import requests
from onnx import TensorProto, helper, numpy_helper

from tests.support.digit_requests import BUNDLED_MODEL, checked_requests
from tests.support.live_server import Server, serving, worker_processes
from tests.support.load_clients import LoadGenerator
from tests.support.onnx_sources import model_of, value
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until
from turnpike.service.memory.free_memory import MAX_KEPT_BYTES

# an output of 4 TiB in fp32
SHAPE = [1 << 20, 1 << 20]
X = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0] * 4}
REQUESTS = 50


def sized(shape: list[int]) -> dict[str, Any]:
    """The input that gives the shape of what the model makes."""
    return {"name": "s", "shape": [2], "datatype": "INT64", "data": shape}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The bundled model, one that makes an array of SHAPE, and one whose caller chooses the shape."""
    shutil.copytree(BUNDLED_MODEL.parent.parent, tmp_path / "digits-10")
    shape = numpy_helper.from_array(np.array(SHAPE, np.int64), "s")
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["y"], keepdims=0),
    ]
    huge = model_of(nodes, outputs=[value("y")], initializers=[shape])
    inputs = [value("s", 2, dtype=TensorProto.INT64)]
    chosen = model_of(nodes, inputs=inputs, outputs=[value("y")], initializers=[])
    put_model(tmp_path, "huge", data=huge.SerializeToString())
    put_model(tmp_path, "chosen", data=chosen.SerializeToString())
    return tmp_path


def ask_beside_others(server: Server, model: str, tensor: dict[str, Any]) -> Counter[tuple[int, str]]:
    """Send requests for a model while others use the bundled one; returns its answers.

    Answers for the bundled model must be right, and none may be lost.
    """
    load = LoadGenerator(server.url, checked_requests(16), 4)

    def ask() -> Counter[tuple[int, str]]:
        answers: Counter[tuple[int, str]] = Counter()
        with requests.Session() as session:
            for _ in range(REQUESTS):
                url = f"{server.url}/v2/models/{model}/infer"
                answer = session.post(url, json={"inputs": [tensor]}, timeout=30)
                answers[answer.status_code, answer.json().get("error", "")] += 1
        return answers

    async def scenario() -> Counter[tuple[int, str]]:
        loading = asyncio.create_task(load.run(60))
        answers = await asyncio.to_thread(ask)
        load.stopping = True
        await loading
        return answers

    answers = asyncio.run(scenario())
    assert (load.tally.lost, load.tally.wrong, load.tally.refused) == ([], [], 0)
    assert set(load.tally.statuses) == {200}
    return answers


@pytest.mark.slow
def test_a_run_that_needs_terabytes_fails_alone(repository: Path) -> None:
    """It gets 500 with the reason, however its size is given, and the same workers serve on."""
    with serving("--models", repository, "--allow-unverified", "--workers", 2) as server:
        before = {process.pid for process in worker_processes(server)}
        for model, tensor in (("huge", X), ("chosen", sized(SHAPE))):
            expected = f"model {model!r} needs more memory for these rows than the worker has"
            assert ask_beside_others(server, model, tensor) == {(500, expected): REQUESTS}
        assert {process.pid for process in worker_processes(server)} == before


def test_a_run_that_needs_more_than_the_limit_fails_alone(repository: Path) -> None:
    """The kernel would promise this amount, but the limit of the process does not allow it."""
    with serving("--models", repository, "--allow-unverified") as server:
        (worker,) = worker_processes(server)
        resource.prlimit(worker.pid, resource.RLIMIT_DATA, (1 << 29, 1 << 29))
        # 400 MB of the 537 MB, of which the worker already uses a part
        large = sized([100_000, 1000])
        expected = "model 'chosen' needs more memory for these rows than the worker has"
        assert ask_beside_others(server, "chosen", large) == {(500, expected): REQUESTS}
        assert worker_processes(server) == [worker]


def test_the_kernel_kills_workers_before_the_supervisor(repository: Path) -> None:
    """A killed worker is replaced, and with the supervisor everything ends."""

    def score(process: psutil.Process) -> int:
        return int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())

    with serving("--models", repository, "--allow-unverified", "--workers", 2) as server:
        supervisor = psutil.Process(server.process.pid)
        assert [score(worker) - score(supervisor) for worker in worker_processes(server)] == [200, 200]


@pytest.mark.slow
def test_a_worker_is_small_again_after_a_flood() -> None:
    """The gates of many rows take much more memory than their requests and answers."""
    images = np.random.default_rng(1).random((4096, 1, 8, 8), np.float32)
    tensor = {"name": "x", "shape": images.shape, "datatype": "FP32", "data": images.ravel().tolist()}
    body = orjson.dumps({"inputs": [tensor]})

    def ask_for_gates(_: int) -> int:
        # all of them are in flight at once, and a busy machine takes 30 s for them
        return server.post("/v2/models/digits-10/gates?detail=rows", body, timeout=240).status_code

    with serving("--workers", 1, "--max-held", 1 << 30) as server:
        (worker,) = worker_processes(server)
        before = worker.memory_info().rss
        with ThreadPoolExecutor(20) as pool:
            assert set(pool.map(ask_for_gates, range(20))) == {200}
        # the highest of all times, which the kernel keeps
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{worker.pid}/status").read_text())
        assert int(peak) * 1024 > before + 4 * MAX_KEPT_BYTES
        # a little more than what may stay free: libraries and objects that the first request needed
        wait_until(lambda: worker.memory_info().rss < before + 1.5 * MAX_KEPT_BYTES, 60)
