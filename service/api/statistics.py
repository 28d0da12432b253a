"""`/v2/models/…/stats`: the statistics of the Open Inference Protocol, over all workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from service.telemetry.counters import Snapshot, merge


def model_stats(
    snapshots: Iterable[Mapping[str, Any]], name: str | None = None, version: int | None = None
) -> list[dict[str, Any]]:
    """One entry a version, of all models or of one, or of one version of it."""
    merged = merge(snapshot["meter"] for snapshot in snapshots)
    return [
        _entry(model, number, counts)
        for model, versions in sorted(merged["models"].items())
        if name in (None, model)
        for number, counts in sorted(versions.items(), key=lambda item: int(item[0]))
        if version is None or number == str(version)
    ]


def _entry(name: str, version: str, counts: Snapshot) -> dict[str, Any]:
    answered = sum(counts["seconds"]["counts"])
    failed = counts["failed"].values()
    return {
        "name": name,
        "version": version,
        "last_inference": counts["last"],
        "inference_count": counts["rows"],
        "execution_count": sum(counts["run"]["counts"]),
        "inference_stats": {
            "success": _times(answered, counts["seconds"]["total"]),
            "fail": _times(sum(count for count, _ in failed), sum(ns for _, ns in failed)),
            "queue": _times(answered, counts["queue"]["total"]),
            "compute_input": _times(answered, counts["decode_ns"]),
            "compute_infer": _times(answered, counts["infer_ns"]),
            "compute_output": _times(answered, counts["encode_ns"]),
            # there is no cache
            "cache_hit": _times(0, 0),
            "cache_miss": _times(0, 0),
        },
        "batch_stats": [
            {
                "batch_size": int(rows),
                # of the requests that ran in such batches, while compute_infer is of the runs themselves
                "compute_input": _times(requests, decode_ns),
                "compute_infer": _times(runs, run_ns),
                "compute_output": _times(requests, encode_ns),
            }
            for rows, (runs, run_ns, requests, decode_ns, encode_ns) in sorted(
                counts["sizes"].items(), key=lambda item: int(item[0])
            )
        ],
    }


def _times(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}
