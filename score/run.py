"""Runs a job: plans its parts, scores those that are missing, and says what was done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from turnpike.common.distribution import needs_extra
from turnpike.score.engines.local import run_local
from turnpike.score.engines.ray_cluster import run_on_ray
from turnpike.score.errors import UsageError
from turnpike.score.job.plan import Plan, describe_inputs, job_folder
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.files import find_files, split_files

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class JobOptions:
    """What to score, with what, and where to."""

    model: Path
    input: str
    output: Path
    gates: bool = False
    warnings: bool = False
    engine: Engine = "local"
    workers: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class JobResult:
    """What a job did."""

    rows: int
    parts: int
    reused_parts: int
    seconds: float


def run_job(options: JobOptions, on_progress: Callable[[int, int, int], None]) -> JobResult:
    """Score all rows; parts that an earlier, interrupted run has finished are kept.

    `on_progress` is called with the finished parts, all parts, and the rows that were scored since the start.
    """
    if options.engine == "ray" and find_spec("ray") is None:
        raise UsageError(needs_extra("--engine ray", "ray", "ray"))
    model = ScoringModel(options.model, gates=options.gates, warnings=options.warnings)
    if options.output.resolve().is_relative_to(Path(options.input).resolve()):
        raise UsageError("--output: expected a folder outside of --input, whose files would be read again")
    files = find_files(options.input)
    plan = Plan(
        model=str(options.model.resolve()),
        digest=model.digest,
        gates=options.gates,
        warnings=options.warnings,
        inputs=describe_inputs(files),
        parts=tuple(split_files(options.input, files)),
    )
    total = len(plan.parts)
    if not total:
        raise UsageError(f"--input: expected rows, got none in {options.input}")
    with job_folder(options.output, plan, overwrite=options.overwrite):
        targets = {plan.part_file(options.output, number): part for number, part in enumerate(plan.parts)}
        missing = {file: part for file, part in targets.items() if not file.exists()}
        reused = total - len(missing)
        rows = 0

        def show(finished: int, scored: int) -> None:
            nonlocal rows
            rows = scored
            on_progress(reused + finished, total, scored)

        start = time.perf_counter()
        if missing:
            run_parts = run_on_ray if options.engine == "ray" else run_local
            run_parts(
                options.model,
                gates=options.gates,
                warnings=options.warnings,
                parts=missing,
                workers=options.workers,
                on_progress=show,
            )
        return JobResult(rows, total, reused, time.perf_counter() - start)
