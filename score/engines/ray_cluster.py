"""Runs a job on a Ray cluster with Ray Data: one actor for each CPU, each with the model.

All nodes must see the model, the input files and the output folder under the same paths. A part that was
running on a lost node is scored again by another; its file appears once, because it is named by the part.
"""

from __future__ import annotations

import dataclasses
import json
import logging
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
) -> dict[Path, str]:
    """Score the parts; each is written to its file. Returns why parts cannot be scored, by their files.

    Args:
        model: Path of the model, the same on all nodes.
        options: What is written for each row.
        parts: The parts that are not there yet, by their files.
        workers: Actors; by default one for each CPU of the cluster.
        on_progress: Called after each part with the finished parts and their rows.

    Raises:
        ScoreError: There is no cluster, or the model or the disk fails. Finished parts stay.
    """
    # imported here, because Ray is an extra of its own
    import ray
    import ray.data
    from ray.exceptions import RayError

    failures: dict[Path, str] = {}
    try:
        if not ray.is_initialized():
            ray.init(logging_level=logging.WARNING, log_to_driver=False)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        cpus = int(ray.cluster_resources().get("CPU", 1))
        items = [{"part": _to_json(part), "target": str(file.resolve())} for file, part in parts.items()]
        results = ray.data.from_items(items, override_num_blocks=len(items)).map(
            PartScorer,
            fn_constructor_args=(str(model.resolve()), options),
            compute=ray.data.ActorPoolStrategy(size=min(workers or cpus, len(items))),
            num_cpus=1,
        )
        rows = 0
        for finished, result in enumerate(results.iter_rows(), 1):
            if result["error"]:
                raise ScoreError(result["error"])
            if result["failure"]:
                failures[Path(result["target"])] = result["failure"]
            rows += result["rows"]
            on_progress(finished, rows)
    except RayError as error:
        raise ScoreError(f"Ray: {str(error).splitlines()[0]}") from error
    return failures


def _to_json(part: Part) -> str:
    """The part with a path that does not depend on the current folder, which is another one on each node."""
    return json.dumps({**dataclasses.asdict(part), "path": str(Path(part.path).resolve())})
