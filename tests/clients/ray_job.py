"""Scores rows on a Ray cluster of three nodes on this machine, and kills one of them midway.

    ray_job.py MODEL ROWS BAD_ROWS OUTPUT

Prints the error for the bad rows, the rows of the result, the finished parts when the node was killed, and
what the job said about it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from turnpike.score.errors import ScoreError
from turnpike.score.run import JobOptions, run_job

NODES = 3


def main(model: str, rows: str, bad: str, output: str) -> dict[str, Any]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES)]
    ray.init(address=cluster.address, log_to_driver=False)
    killed_after: list[int] = []

    def on_progress(finished: int, total: int, scored: int) -> None:
        if finished >= total // 4 and not killed_after:
            killed_after.append(finished)
            cluster.remove_node(nodes[0], allow_graceful=False)

    try:
        run_job(JobOptions(Path(model), bad, Path(f"{output}-bad"), engine="ray"), lambda *_: None)
        error = ""
    except ScoreError as refused:
        error = str(refused)
    notes: list[str] = []
    result = run_job(JobOptions(Path(model), rows, Path(output), engine="ray"), on_progress, notes.append)
    ray.shutdown()
    cluster.shutdown()
    return {
        "error": error,
        "rows": result.rows,
        "parts": result.parts,
        "killed_after": killed_after,
        "notes": notes,
    }


if __name__ == "__main__":
    # Ray prints messages of the cluster
    with contextlib.redirect_stdout(sys.stderr):
        answer = main(*sys.argv[1:])
    sys.stdout.write(json.dumps(answer))
