"""A model is loaded and unloaded many times while another one is used: nothing grows, no request fails."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.digit_requests import BUNDLED_MODEL, INFER_PATH, checked_requests
from tests.support.live_server import Server, serving, worker_processes
from tests.support.load_clients import ClientRequest, LoadGenerator
from tests.support.python_path import python_path

pytestmark = pytest.mark.timeout(900)

WORKERS = 2
ADMIN_KEY = "the-admin-key"
# loads after which caches and pools of the libraries have their size
WARM_UP_LOADS = 10
# A model that is kept takes about 1 MiB in each worker, so thirty loads would add 30 MiB.
MAX_GROWTH_MIB = 12
# connections of the other model's clients come and go
MAX_GROWTH_FILES = 8

# `sitecustomize` is imported when the server starts; its workers are forks of it
KEEP_MODELS = """
from turnpike.service.registry import loader

kept, load = [], loader.load

def load_and_keep(*arguments, **options):
    model = load(*arguments, **options)
    kept.append(model)
    return model

loader.load = load_and_keep
"""


@dataclass(frozen=True)
class Usage:
    """What the processes of a server use, supervisor first, and the number of lines of its metrics."""

    resident: tuple[int, ...]
    files: tuple[int, ...]
    threads: tuple[int, ...]
    metrics: int

    @classmethod
    def of(cls, server: Server) -> Usage:
        processes = [psutil.Process(server.process.pid), *worker_processes(server)]
        return cls(
            tuple(process.memory_info().rss for process in processes),
            tuple(process.num_fds() for process in processes),
            tuple(process.num_threads() for process in processes),
            # drift has lines as soon as enough rows were seen
            sum("drift" not in line for line in server.get("/metrics").text.splitlines()),
        )


def repository(folder: Path) -> Path:
    """The bundled model twice, by the names `steady` and `changing`."""
    for name in ("steady", "changing"):
        shutil.copytree(BUNDLED_MODEL.parent, folder / "models" / name / "1")
    return folder / "models"


def change(server: Server, action: str) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    answer = server.post(f"/v2/repository/models/changing/{action}", {}, headers=headers)
    assert answer.status_code == 200, answer.text


def requests_for(name: str, count: int) -> list[ClientRequest]:
    return [
        ClientRequest(INFER_PATH.replace("digits-10", name), request.body, request.headers, request.check)
        for request in checked_requests(count)
    ]


def successes(server: Server, name: str) -> int:
    (stats,) = server.get(f"/v2/models/{name}/stats").json()["model_stats"]
    return int(stats["inference_stats"]["success"]["count"])


def load_repeatedly(server: Server, loads: int) -> tuple[Usage, Usage]:
    """What the server uses after a warm-up and at the end, with the model unloaded."""
    steady = LoadGenerator(server.url, requests_for("steady", 16), 2)
    used = requests_for("changing", 4)
    usages: list[Usage] = []

    def load_and_unload() -> None:
        for number in range(loads):
            change(server, "load")
            request = used[number % len(used)]
            answer = server.post(request.path, request.body, headers=dict(request.headers))
            assert answer.status_code == 200
            assert request.check(answer.content) is None
            change(server, "unload")
            if number + 1 == WARM_UP_LOADS:
                usages.append(Usage.of(server))
        usages.append(Usage.of(server))

    async def scenario() -> None:
        running = asyncio.create_task(steady.run(900))
        try:
            await asyncio.to_thread(load_and_unload)
        finally:
            steady.stopping = True
            await running

    change(server, "unload")
    # from now on the metrics count this route
    server.get("/metrics")
    asyncio.run(scenario())
    # no request of the other model failed, and the statistics have every request once
    assert steady.tally.lost == []
    assert steady.tally.wrong == []
    assert set(steady.tally.statuses) == {200}
    assert steady.tally.statuses[200] > loads
    assert successes(server, "steady") == steady.tally.statuses[200]
    change(server, "load")
    assert successes(server, "changing") == loads
    before, after = usages
    return before, after


def expect_no_growth(before: Usage, after: Usage) -> None:
    grown = [(end - start) / 2**20 for start, end in zip(before.resident, after.resident, strict=True)]
    assert max(grown) < MAX_GROWTH_MIB, f"expected at most {MAX_GROWTH_MIB} MiB, got {grown}"
    for start, end in zip(before.files, after.files, strict=True):
        assert end <= start + MAX_GROWTH_FILES
    for start, end in zip(before.threads, after.threads, strict=True):
        assert end <= start + 1
    assert after.metrics == before.metrics


@pytest.mark.thorough
@pytest.mark.parametrize(
    "loads",
    [pytest.param(40, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.endurance)],
)
def test_repeated_loads_take_no_more_memory(tmp_path: Path, loads: int) -> None:
    with serving(
        "--workers", WORKERS, "--models", repository(tmp_path), TURNPIKE_ADMIN_KEY=ADMIN_KEY
    ) as server:
        before, after = load_repeatedly(server, loads)
        sys.stdout.write(f"before {before}\nafter  {after}\n")
        expect_no_growth(before, after)


@pytest.mark.thorough
@pytest.mark.slow
def test_models_that_are_kept_are_noticed(tmp_path: Path) -> None:
    """The same test fails for a service that keeps each model that it loads."""
    (tmp_path / "sitecustomize.py").write_text(KEEP_MODELS)
    with serving(
        *("--workers", WORKERS, "--models", repository(tmp_path)),
        TURNPIKE_ADMIN_KEY=ADMIN_KEY,
        PYTHONPATH=python_path(tmp_path),
    ) as server:
        usages = load_repeatedly(server, 40)
        with pytest.raises(AssertionError, match="expected at most 12 MiB"):
            expect_no_growth(*usages)
