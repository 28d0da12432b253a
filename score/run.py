"""Runs a job: plans its parts, scores those that are missing, and says what was done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from turnpike.common.distribution import needs_extra
from turnpike.score.engines.local import run_local
from turnpike.score.engines.ray_cluster import run_on_ray
from turnpike.score.errors import FilesError, UsageError
from turnpike.score.job.folder import job_folder, write_bad_rows
from turnpike.score.job.options import OutputOptions
from turnpike.score.job.plan import Plan, with_files
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.files import find_files

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class JobOptions:
    """What to score, with what, and where to."""

    model: Path
    input: str
    output: Path
    rows: OutputOptions = field(default_factory=OutputOptions)
    engine: Engine = "local"
    workers: int | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class JobResult:
    """What a job did.

    Attributes:
        rows: The rows of this run.
        parts: All parts.
        reused_parts: Those of an earlier run.
        seconds: The time of this run.
        changed_files: The files that have changed since an earlier run, whose parts were scored again.
        bad_rows: All rows that cannot be scored.
        bad_rows_file: The file that lists them.
    """

    rows: int
    parts: int
    reused_parts: int
    seconds: float
    changed_files: int
    bad_rows: int
    bad_rows_file: Path


def run_job(options: JobOptions, on_progress: Callable[[int, int, int], None]) -> JobResult:
    """Score all rows; parts that an earlier, interrupted run has finished are kept.

    `on_progress` is called with the finished parts, all parts, and the rows that were scored since the start.

    Raises:
        FilesError: Files cannot be scored. All others are.
    """
    if options.engine == "ray" and find_spec("ray") is None:
        raise UsageError(needs_extra("--engine ray", "ray", "ray"))
    model = ScoringModel(options.model, options.rows)
    if options.output.resolve().is_relative_to(Path(options.input).resolve()):
        raise UsageError("--output: expected a folder outside of --input, whose files would be read again")
    root, files = find_files(options.input)
    plan = Plan(str(options.model.resolve()), model.digest, options.rows)
    with job_folder(
        options.output,
        plan,
        lambda earlier: with_files(plan, earlier, root, files),
        overwrite=options.overwrite,
    ) as changes:
        targets = changes.plan.targets(options.output)
        total = len(targets)
        missing = {file: part for file, part in targets.items() if not file.exists()}
        reused = total - len(missing)
        rows, failures = 0, {}

        def show(finished: int, scored: int) -> None:
            nonlocal rows
            rows = scored
            on_progress(reused + finished, total, scored)

        start = time.perf_counter()
        if missing:
            run_parts = run_on_ray if options.engine == "ray" else run_local
            failures = run_parts(
                options.model,
                options=options.rows,
                parts=missing,
                workers=options.workers,
                on_progress=show,
            )
        seconds = time.perf_counter() - start
        bad_rows_file, bad_rows = write_bad_rows(options.output, changes.plan)
        # the first reason of each file
        reasons = changes.unreadable | {
            targets[target].path: reason for target, reason in sorted(failures.items(), reverse=True)
        }
        if reasons:
            raise FilesError(list(reasons.values()), len(files), options.output)
        return JobResult(rows, total, reused, seconds, len(changes.changed), bad_rows, bad_rows_file)
