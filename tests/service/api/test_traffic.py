"""`/traffic`: the history of traffic that the supervisor keeps, and its documentation."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.support.in_process_worker import ROOT, InProcessWorker, request, run
from tests.support.live_server import serving, worker_processes
from tests.support.waiting import wait_until
from turnpike.service.telemetry.traffic_history import Figures

PAGE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
INPUT = {"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}


@pytest.mark.parametrize(("query", "after"), [("", 0.0), ("?after=12.5", 12.5)])
def test_moments_after_a_time_are_asked_for(query: str, after: float) -> None:
    async def scene(worker: InProcessWorker) -> None:
        asked: list[Any] = []

        async def ask_supervisor(what: str, argument: Any) -> Any:
            asked.append((what, argument))
            return {"moments": []}

        vars(worker.app.context.supervisor)["ask"] = ask_supervisor
        reply = await worker.connect().ask(request(f"/traffic{query}", method="GET"))
        assert (reply.status, reply.json, asked) == (200, {"moments": []}, [("traffic", after)])

    run(scene)


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", ""])
def test_a_time_that_is_no_number_is_refused(text: str) -> None:
    async def scene(worker: InProcessWorker) -> None:
        reply = await worker.connect().ask(request(f"/traffic?after={text}", method="GET"))
        assert reply.status == 400
        assert reply.json["error"] == f"after: expected seconds from 0, got {text!r}"

    run(scene)


def test_traffic_needs_a_key() -> None:
    async def scene(worker: InProcessWorker) -> None:
        assert (await worker.connect().ask(request("/traffic", method="GET"))).status == 401

    run(scene, api_keys=("a-key-for-tests",))


def test_every_figure_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| [^|]*\|$", PAGE, re.MULTILINE)) >= set(Figures._fields)


@pytest.mark.thorough
@pytest.mark.slow
def test_traffic_of_all_workers_is_kept_after_one_ends() -> None:
    """Requests that a worker has reported stay in the history when it ends."""
    with serving("--workers", "2", "--no-access-log") as server:
        for _ in range(20):
            assert server.post("/v2/models/digits-10/infer", {"inputs": [INPUT]}).status_code == 200

        def requests() -> float:
            moments = server.get("/traffic").json()["moments"]
            seconds = zip([0.0, *(moment["at"] for moment in moments)], moments, strict=False)
            return sum(
                moment["total"]["requests_per_s"] * (moment["at"] - before) for before, moment in seconds
            )

        wait_until(lambda: round(requests()) == 20, 15)
        worker_processes(server)[0].kill()
        time.sleep(7)
        assert round(requests()) == 20
