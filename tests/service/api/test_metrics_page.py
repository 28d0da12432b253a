"""docs/reference/metrics.md lists every metric of a worker with its type and labels, and every reason."""

from __future__ import annotations

import re
from typing import Any, get_args

from prometheus_client.parser import text_string_to_metric_families

from tests.support.in_process_worker import (
    INFER,
    MODEL_FILE,
    NAME,
    ROOT,
    InProcessWorker,
    infer,
    request,
    rows,
    run,
)
from turnpike.service import errors
from turnpike.service.grpc.connection.ends import End
from turnpike.service.repository.deployment import Deployment, UnavailableModel
from turnpike.service.repository.scan import ModelFile, file_identity

PAGE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")


async def scrape(worker: InProcessWorker) -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric, after requests and a file that make every metric have a value."""
    file = ModelFile(NAME, 1, MODEL_FILE, file_identity(MODEL_FILE.stat()))
    failed = (UnavailableModel(NAME, 2, "its file is damaged"),)
    await worker.app.registry.commit(Deployment(2, {NAME: (file,)}, failed).to_json())

    async def ask_supervisor(what: str) -> Any:
        assert what == "snapshots"
        return [await worker.app.handlers["snapshot"](None)]

    worker.app.context.counters.count_stream_end("answered")
    worker.app.context.counters.count_connection_end("idle")
    worker.app.context.counters.payload_events = {"sent": 1}
    worker.app.registry.find(NAME, None).counters.count_warnings({"outside_range": 1})
    # the counters of this worker are those of all
    vars(worker.app.context.supervisor)["ask"] = ask_supervisor
    client = worker.connect()
    assert (await client.ask(request(INFER, infer(rows(*range(100)))))).status == 200
    assert (await client.ask(request(INFER, b"{}"))).status == 400
    reply = await client.ask(request("/metrics", method="GET"))
    metrics = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert family.samples, f"{family.name} has no value, so its labels cannot be checked"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        metrics[name] = (family.type, labels)
    return metrics


def test_every_metric_is_on_the_page() -> None:
    documented = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in re.findall(r"^\| `(turnpike_\w+)` \| (\w+) \|([^|]*)\|", PAGE, re.MULTILINE)
    }

    async def scene(worker: InProcessWorker) -> None:
        assert await scrape(worker) == documented

    run(scene, drift_rows=100)


def test_every_end_is_on_the_page() -> None:
    assert re.findall(r"^\| `(\w+)` \| (?:streams|connections|both) \|", PAGE, re.MULTILINE) == [
        *get_args(End)
    ]


def test_every_reason_is_on_the_page() -> None:
    """The table has the status of each, as `service/errors.py` does."""
    documented = dict(re.findall(r"^\| `(\w+)` \| (\d+|none) \|", PAGE, re.MULTILINE))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    expected = {kind.reason: str(kind.status) for kind in kinds if issubclass(kind, errors.RequestError)}
    # a method that a route lacks is an error of the router, and a client that has left gets no answer
    assert documented == expected | {"method": "405", "gone": "none"}
