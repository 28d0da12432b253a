"""Routes with the figures of all workers: statistics of models, metrics for Prometheus, recent traffic.

The statistics are those of the Open Inference Protocol: how many requests and runs, and the time they took.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

import orjson

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.endpoint import add_model_routes
from turnpike.service.api.open_inference import TAG
from turnpike.service.api.openapi.operation import operation, parameter
from turnpike.service.errors import RequestError
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response, UncompressedResponse
from turnpike.service.requests.router import Router
from turnpike.service.telemetry.counters import Snapshot, merge_snapshots

ALL_STATISTICS = operation("Statistics", "Statistics of all models, over all workers", TAG)
STATISTICS = operation("Statistics", "A model's statistics, over all workers", TAG)
METRICS = operation("Metrics", "Counters of all workers, for Prometheus", "Metrics", media_type="text/plain")
AFTER = parameter(
    "after", "query", "Only moments later than this `at`.", {"type": "number", "default": 0, "minimum": 0}
)
TRAFFIC = operation("Traffic", "The traffic of the last 15 minutes", "Metrics", parameters=[AFTER])


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the routes. The statistics are of all models, of one, or of one version."""

    async def metrics(_: Request) -> Response:
        # prometheus_client is imported at the first scrape, in a thread because the import is slow
        await asyncio.to_thread(import_module, "turnpike.service.api.metrics")
        from turnpike.service.api.metrics import collect_metrics, metrics_response

        snapshots = await context.supervisor.ask("snapshots")
        families = collect_metrics(snapshots, context.registry)
        return await asyncio.to_thread(metrics_response, families)

    async def traffic(request: Request) -> Response:
        # each open page asks every few seconds, so it can get only what is new
        query = parse_qs(request.head.query.decode("latin-1"), keep_blank_values=True)
        after = _seconds(query.get("after", ["0"])[-1])
        return Response(orjson.dumps(await context.supervisor.ask("traffic", after)))

    statistics = StatisticsEndpoint(context)
    router.add("GET", "/v2/models/stats", "api", statistics, "all_stats", ALL_STATISTICS)
    add_model_routes(router, "GET", "/v2/models/{model}/stats", statistics, "stats", STATISTICS)
    router.add("GET", "/metrics", "api", metrics, "metrics", METRICS)
    router.add("GET", "/traffic", "api", traffic, "traffic", TRAFFIC)


class StatisticsEndpoint:
    """Responds with the statistics, over all workers, of what the path of a request names."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    async def __call__(self, request: Request) -> Response:
        params = request.path_params
        name, version = params.get("model"), None
        if name is not None:
            model = self._context.registry.find(name, params.get("version"))
            version = model.version if "version" in params else None
        snapshots = await self._context.supervisor.ask("snapshots")
        return UncompressedResponse(orjson.dumps({"model_stats": model_stats(snapshots, name, version)}))


def model_stats(
    snapshots: Iterable[Mapping[str, Any]], name: str | None = None, version: int | None = None
) -> list[dict[str, Any]]:
    """One entry per version: of all models, of the model `name`, or only of its `version`."""
    merged = merge_snapshots(snapshot["counters"] for snapshot in snapshots)
    return [
        _stats_entry(model, number, counts)
        for model, versions in sorted(merged["models"].items())
        if name in (None, model)
        for number, counts in sorted(versions.items(), key=lambda item: int(item[0]))
        if version is None or number == str(version)
    ]


def _stats_entry(name: str, version: str, counts: Snapshot) -> dict[str, Any]:
    answered = sum(counts["seconds"]["counts"])
    failed = counts["failed"].values()
    return {
        "name": name,
        "version": version,
        "last_inference": counts["last"],
        "inference_count": counts["rows"],
        "execution_count": sum(counts["run"]["counts"]),
        "inference_stats": {
            "success": _count_and_ns(answered, counts["seconds"]["total"]),
            "fail": _count_and_ns(sum(count for count, _ in failed), sum(ns for _, ns in failed)),
            "queue": _count_and_ns(answered, counts["queue"]["total"]),
            "compute_input": _count_and_ns(answered, counts["decode_ns"]),
            "compute_infer": _count_and_ns(answered, counts["infer_ns"]),
            "compute_output": _count_and_ns(answered, counts["encode_ns"]),
            # the service caches no responses
            "cache_hit": _count_and_ns(0, 0),
            "cache_miss": _count_and_ns(0, 0),
        },
        "batch_stats": [
            {
                "batch_size": int(rows),
                # input and output count the requests in batches of this size, compute_infer counts the runs
                "compute_input": _count_and_ns(requests, decode_ns),
                "compute_infer": _count_and_ns(runs, run_ns),
                "compute_output": _count_and_ns(requests, encode_ns),
            }
            for rows, (runs, run_ns, requests, decode_ns, encode_ns) in sorted(
                counts["sizes"].items(), key=lambda item: int(item[0])
            )
        ],
    }


def _count_and_ns(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise RequestError(f"after: expected seconds from 0, got {text[:40]!r}")
    return seconds
