"""A service in a container with little memory and half a CPU: what is too much fails, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import numpy as np
import pytest
import requests
from onnx import TensorProto, helper, numpy_helper

from tests.support.compose_project import (
    BODY,
    PREDICT,
    README_REQUEST,
    ROOT,
    Project,
    docker,
    need_engine,
    temporary_project,
)
from tests.support.load_clients import LoadGenerator, LoadTally
from tests.support.onnx_sources import model_of, value
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

MEMORY_BYTES = 512 << 20
LIMITS = {"SERVICE_MEMORY": "512m", "SERVICE_CPUS": "0.5"}
SETTINGS = {"TURNPIKE_WORKERS": "2", "TURNPIKE_QUEUE": "16", "TURNPIKE_ALLOW_UNVERIFIED": "true"}
INFER = "/v2/models/digits-10/infer"
# One small process after the other that holds 11 MB for some seconds, until the kernel has killed a process:
# it chooses a worker. The kernel's count is in the first file or, with version 1 of cgroups, in the second.
HOG = """
killed() { grep -hs 'oom_kill ' /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; }
before=$(killed)
count=0
while [ "$(killed)" = "$before" ] && [ $count -lt 64 ]; do
    { head -c 11m /dev/zero; sleep 10; } | tail > /dev/null &
    count=$((count + 1))
    sleep 0.1
done
wait
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The bundled model, one whose callers choose how much memory a run needs, and one that needs 1.6 GB."""
    need_engine()
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(ROOT / "service/default/digits-10", folder / "digits-10")
    shape = numpy_helper.from_array(np.array([400_000, 1000], np.int64), "s")
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["y"], keepdims=0),
    ]
    inputs = [value("s", 2, dtype=TensorProto.INT64)]
    chosen = model_of(nodes, inputs=inputs, outputs=[value("y")], initializers=[])
    put_model(folder, "chosen", data=chosen.SerializeToString())
    huge = model_of(nodes, outputs=[value("y")], initializers=[shape])
    put_model(folder, "huge", data=huge.SerializeToString())
    folder.chmod(0o755)
    with temporary_project("limits", MODELS=str(folder), **LIMITS, **SETTINGS) as project:
        project.compose("build", "service", "export")
        project.compose("up", "--wait")
        wait_until(lambda: requests.get(project.url + "/v2/health/ready", timeout=30).ok, 60)
        yield project


@pytest.fixture
def same_processes(service: Project) -> Iterator[None]:
    """The test must neither restart the container nor end one of its processes."""
    before = processes(service)
    yield
    assert processes(service) == before


def processes(project: Project) -> list[str]:
    """The process ids of init, supervisor and workers; of a stopped container there are none.

    Parents come first: numbers begin again at the system's largest.
    """
    (container,) = project.ids("service")
    lines = docker("top", container, "-o", "pid,ppid,args").splitlines()
    parents = dict(line.split()[:2] for line in lines[1:] if "alive" not in line)

    def depth(process: str) -> int:
        return 1 + depth(parents[process]) if process in parents else 0

    return sorted(parents, key=depth)


def ask_for_run(project: Project, millions: int) -> tuple[int, str]:
    """Status and error of a run that makes so many million bytes."""
    tensor = {"name": "s", "shape": [2], "datatype": "INT64", "data": [millions * 250, 1000]}
    answer = project.post("/v2/models/chosen/infer", json.dumps({"inputs": [tensor]}).encode())
    return answer.status_code, answer.json().get("error", "")


def under_load(project: Project, action: Callable[[], Awaitable[object]], connections: int = 4) -> LoadTally:
    """The results of requests for the bundled model during an action."""

    async def run() -> LoadTally:
        load = LoadGenerator(project.address("service"), [README_REQUEST], connections)
        sending = asyncio.create_task(load.run(300))
        try:
            await action()
        finally:
            load.stopping = True
        return await sending

    return asyncio.run(run())


def rows_request(rows: int, outputs: str = "") -> bytes:
    """An infer request with rows of zeros as binary data."""
    head = (
        f'{{"inputs":[{{"name":"x","shape":[{rows},1,8,8],"datatype":"FP32",'
        f'"parameters":{{"binary_data_size":{rows * 256}}}}}]{outputs}}}'
    ).encode()
    return (
        (
            f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(head) + rows * 256}\r\n"
            f"Inference-Header-Content-Length: {len(head)}\r\n\r\n"
        ).encode()
        + head
        + bytes(rows * 256)
    )


async def send_and_wait(address: str, data: bytes, seconds: float) -> int:
    """Send a request, but read nothing for some time; returns the status, 0 without an answer."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        # an early answer closes the connection
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await asyncio.wait_for(writer.drain(), 20)
            await asyncio.sleep(seconds)
        words = (await asyncio.wait_for(reader.readline(), 60)).split()
        return int(words[1]) if words else 0
    except ConnectionError:
        return 0
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def statuses_of(project: Project, data: bytes, count: int, seconds: float) -> Counter[int]:
    """The statuses of many such requests at once. Meanwhile, every health check is answered in time."""
    address = project.address("service")
    sending = asyncio.gather(*(send_and_wait(address, data, seconds) for _ in range(count)))
    checks = []
    while not sending.done():
        check = await asyncio.to_thread(requests.get, project.url + "/v2/health/ready", timeout=3)
        checks.append(check.status_code)
        await asyncio.sleep(0.1)
    statuses = Counter(await sending)
    assert set(checks) == {200}
    return statuses


@pytest.mark.usefixtures("same_processes")
def test_a_run_that_needs_more_memory_than_the_container_fails_alone(service: Project) -> None:
    """All other requests are answered by the same workers, and smaller runs of that model are, too."""
    index = {model["name"]: model["state"] for model in service.post("/v2/repository/index", b"{}").json()}
    assert index == {"digits-10": "READY", "chosen": "READY", "huge": "READY"}
    answers: Counter[tuple[int, str]] = Counter()

    async def ask() -> None:
        for _ in range(50):
            answers[await asyncio.to_thread(ask_for_run, service, 300)] += 1

    tally = under_load(service, ask)
    expected = "model 'chosen' needs more memory for these rows than the worker has"
    assert answers == {(500, expected): 50}
    assert (tally.lost, tally.wrong, set(tally.statuses)) == ([], [], {200})
    assert ask_for_run(service, 60) == (200, "")


@pytest.mark.usefixtures("same_processes")
def test_large_bodies_are_refused_before_memory_is_short(service: Project) -> None:
    """Twelve bodies of 60 MiB at once would need more memory than there is."""
    statuses = asyncio.run(statuses_of(service, rows_request(60 * 4096), 12, 0))
    # One that was read has too many rows. A refused sender may fail to send before it sees its answer.
    assert statuses.keys() <= {503, 400, 0}
    assert statuses[503] > 0
    wait_until(lambda: service.post(PREDICT, BODY).status_code == 200)


@pytest.mark.usefixtures("same_processes")
def test_unread_answers_are_refused_before_memory_is_short(service: Project) -> None:
    """Sixty answers of 10 MB, which their clients do not read."""
    names = [{"name": f"layer{layer:02d}.transform_gate"} for layer in range(10)]
    outputs = f',"outputs":{json.dumps(names)},"parameters":{{"binary_data_output":true}}'
    statuses = asyncio.run(statuses_of(service, rows_request(4000, outputs), 60, 3))
    assert statuses[503] > 0
    assert statuses[200] > 0
    assert statuses.keys() == {200, 503}
    wait_until(lambda: service.post(PREDICT, BODY).status_code == 200)


@pytest.mark.usefixtures("same_processes")
def test_more_requests_than_half_a_cpu_can_answer_are_refused(service: Project) -> None:
    """Others are answered, none is lost, and health checks are answered in time."""
    refusals: list[requests.Response] = []

    async def check() -> None:
        for _ in range(30):
            health = await asyncio.to_thread(requests.get, service.url + "/v2/health/live", timeout=3)
            assert health.status_code == 200
            answer = await asyncio.to_thread(service.post, PREDICT, BODY)
            if answer.status_code == 503:
                refusals.append(answer)
            await asyncio.sleep(0.1)

    tally = under_load(service, check, connections=128)
    assert (tally.lost, tally.wrong, tally.refused) == ([], [], 0)
    assert set(tally.statuses) == {200, 503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refusals)
    (container,) = service.ids("service")
    assert service.inspect(container)["State"]["Health"]["Status"] == "healthy"


def test_the_kernel_kills_workers_only(service: Project) -> None:
    """Whatever takes the memory, the supervisor lives on and replaces the workers."""
    (container,) = service.ids("service")
    supervisor = processes(service)[:2]
    service.inside("service", HOG)
    wait_until(lambda: "was ended by SIGKILL (the kernel found no" in service.compose("logs", "service"))
    wait_until(lambda: len(processes(service)) == 4)
    assert processes(service)[:2] == supervisor
    wait_until(lambda: service.post(PREDICT, BODY).status_code == 200)
    assert service.inspect(container)["RestartCount"] == 0
