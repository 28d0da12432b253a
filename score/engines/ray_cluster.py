"""Runs a job on a Ray cluster with Ray Data: one actor for each CPU, each with the model.

All nodes must see the model, the input files and the output folder under the same paths. A part that was
running on a lost node is scored again by another; its file appears once, because it is named by the part.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turnpike.score.errors import RowsError, ScoreError
from turnpike.score.job.options import OutputOptions
from turnpike.score.job.plan import part_of
from turnpike.score.job.score_part import score_part
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.parts import Part


class PartScorer:
    """An actor that scores parts, one after the other."""

    def __init__(self, model: str, options: OutputOptions) -> None:
        self._model = ScoringModel(Path(model), options)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        answer = {"target": row["target"], "rows": 0, "failure": "", "error": ""}
        try:
            part = part_of(json.loads(row["part"]))
            answer["rows"] = score_part(self._model, part, Path(row["target"]), lambda _: None)
        # Ray would replace errors by those of its own
        except RowsError as error:
            answer["failure"] = str(error)
        except ScoreError as error:
            answer["error"] = str(error)
        return answer


def run_on_ray(
    model: Path,
    *,
    options: OutputOptions,
    parts: Mapping[Path, Part],
    workers: int | None,
    on_progress: Callable[[int, int], None],
    on_note: Callable[[str], None] = lambda _: None,
) -> dict[Path, str]:
    """Score the parts; each is written to its file. Returns why parts cannot be scored, by their files.

    Args:
        model: Path of the model, the same on all nodes.
        options: What is written for each row.
        parts: The parts that are not there yet, by their files.
        workers: Actors; by default one for each CPU of the cluster.
        on_progress: Called after each part with the finished parts and their rows.
        on_note: Called with a text for the user when a node is lost.

    Raises:
        ScoreError: There is no cluster, or the model or the disk fails. Finished parts stay.
    """
    # the warnings of Ray and of its processes; a user who wants them sets the variable
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    # imported here, because Ray is an extra of its own
    import ray
    import ray.data
    from ray.exceptions import RayError

    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Ray prints what its processes say of a lost node, which no option prevents; its debugger does the same
    ray._private.worker._worker_logs_enabled = False
    failures: dict[Path, str] = {}
    try:
        if not ray.is_initialized():
            ray.init(logging_level=logging.CRITICAL, log_to_driver=False)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        cpus = int(ray.cluster_resources().get("CPU", 1))
        # the current folder is another one on each node
        targets = {str(file.resolve()): file for file in parts}
        items = [
            {"part": _to_json(part), "target": target}
            for target, part in zip(targets, parts.values(), strict=True)
        ]
        results = ray.data.from_items(items, override_num_blocks=len(items)).map(
            PartScorer,
            fn_constructor_args=(str(model.resolve()), options),
            compute=ray.data.ActorPoolStrategy(size=min(workers or cpus, len(items))),
            num_cpus=1,
        )
        rows = 0
        nodes = _Nodes(on_note)
        for finished, result in enumerate(results.iter_rows(), 1):
            if result["error"]:
                raise ScoreError(result["error"])
            if result["failure"]:
                failures[targets[result["target"]]] = result["failure"]
            rows += result["rows"]
            on_progress(finished, rows)
            nodes.look()
    except RayError as error:
        raise ScoreError(f"Ray: {str(error).splitlines()[0]}") from error
    finally:
        ray._private.worker._worker_logs_enabled = True
    return failures


class _Nodes:
    """Notices nodes that are lost, and says so once for each."""

    def __init__(self, on_note: Callable[[str], None]) -> None:
        self._on_note = on_note
        self._alive = self._find()

    def look(self) -> None:
        alive = self._find()
        for node in self._alive.keys() - alive.keys():
            self._on_note(f"node {self._alive[node]} is lost: other nodes score its parts")
        self._alive = alive

    @staticmethod
    def _find() -> dict[str, str]:
        """The address of each node that runs, by its id."""
        import ray

        return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def _to_json(part: Part) -> str:
    """The part with a path that does not depend on the current folder, which is another one on each node."""
    return json.dumps({**dataclasses.asdict(part), "path": str(Path(part.path).resolve())})
