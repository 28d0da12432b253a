"""Runs a job: plans its parts, scores those that are missing, and says what was done."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from turnpike.common.distribution import needs_extra
from turnpike.common.durable_files import replacing, write_texts
from turnpike.score.engines.local import run_local
from turnpike.score.engines.ray_cluster import run_on_ray
from turnpike.score.errors import FilesError, RowsError, UsageError
from turnpike.score.job.folder import job_folder, remove_inputs, write_bad_rows
from turnpike.score.job.one_file import ENDINGS, write_parts
from turnpike.score.job.options import OutputOptions
from turnpike.score.job.plan import Plan, changed_inputs, with_files
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.files import find_files

Engine = Literal["local", "ray"]
STANDARD_STREAM = "-"
# endings of files that are not written, and that no folder is meant to have
OTHER_ENDINGS = frozenset(
    (".gz", ".json", ".ndjson", ".tsv", ".txt", ".xls", ".xlsx", ".npy", ".npz", ".feather", ".arrow", ".zip")
)


@dataclass(frozen=True)
class JobOptions:
    """What to score, with what, and where to.

    Attributes:
        model: An .onnx file, or a folder with one model.
        input: A file, a folder, a pattern, or - for standard input.
        output: A folder, a .parquet, .csv or .jsonl file, or - for standard output.
        rows: What is written for each row.
        engine: What runs the parts.
        workers: Processes; by default one for each CPU.
        overwrite: Whether what another job has written there is replaced.
        format: Of standard input, and of standard output if it is "jsonl"; that is CSV otherwise.
    """

    model: Path
    input: str
    output: Path
    rows: OutputOptions = field(default_factory=OutputOptions)
    engine: Engine = "local"
    workers: int | None = None
    overwrite: bool = False
    format: str = "csv"


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


def run_job(
    options: JobOptions,
    on_progress: Callable[[int, int, int], None],
    on_note: Callable[[str], None] = lambda _: None,
) -> JobResult:
    """Score all rows; parts that an earlier, interrupted run has finished are kept.

    One file, or standard output, gets the rows when all of them are scored. Until then its parts are in a
    folder beside it.

    `on_progress` is called with the finished parts, all parts, and the rows that were scored since the start;
    `on_note` with what the user may want to know meanwhile, such as the loss of a node.

    Raises:
        FilesError: Files cannot be scored. All others are.
    """
    _expect_options(options)
    with ExitStack() as stack:
        is_stream = options.input == STANDARD_STREAM
        if is_stream:
            source = stack.enter_context(_standard_input(options.format))
            options = dataclasses.replace(options, input=str(source))
        if str(options.output) == STANDARD_STREAM:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnpike-score-")))
            result, parts = stack.enter_context(_scored_parts(options, folder, on_progress, on_note))
            ending = ".jsonl" if options.format == "jsonl" else ".csv"
            write_parts(parts, sys.stdout.buffer, ending)
            sys.stdout.buffer.flush()
            return _with_bad_rows(result, None)
        ending = options.output.suffix.lower()
        if ending not in ENDINGS:
            return stack.enter_context(_scored_parts(options, options.output, on_progress, on_note))[0]
        folder = options.output.with_name(f"{options.output.name}.parts")
        if is_stream:
            # standard input cannot be read again
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        result, parts = stack.enter_context(_scored_parts(options, folder, on_progress, on_note))
        result = _with_bad_rows(result, bad_rows_of(options.output))
        with replacing(options.output) as draft, draft.open("wb") as file:
            write_parts(parts, file, ending)
        shutil.rmtree(folder)
        return result


def bad_rows_of(output: Path) -> Path:
    """The file of the bad rows of an output that is one file."""
    return output.with_name(f"{output.name}.bad_rows.csv")


@contextmanager
def _standard_input(ending: str) -> Iterator[Path]:
    """Copy standard input into a file, which several processes can read. Errors name no folder of it."""
    with tempfile.TemporaryDirectory(prefix="turnpike-score-") as folder:
        source = Path(folder, f"stdin.{ending}")
        with source.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield source
        except FilesError as error:
            raise RowsError(str(error).replace(f"{folder}/", "")) from error


def _expect_options(options: JobOptions) -> None:
    """Raise a UsageError for options that do not go together."""
    if options.rows.label_only and options.rows.columns:
        raise UsageError(f"--label-only: expected no --columns, got {','.join(options.rows.columns)}")
    is_stream = STANDARD_STREAM in (options.input, str(options.output))
    if options.engine == "ray":
        if is_stream:
            raise UsageError("--engine ray: expected files that all nodes see, got standard input or output")
        if find_spec("ray") is None:
            raise UsageError(needs_extra("--engine ray", "ray", "ray"))
    is_folder = str(options.output) != STANDARD_STREAM and options.output.suffix.lower() not in ENDINGS
    if options.rows.partition_by is not None and not is_folder:
        raise UsageError(f"--partition-by: expected a folder as --output, got {options.output}")
    if options.output.suffix.lower() in OTHER_ENDINGS:
        raise UsageError(
            f"--output: expected a folder, or a file that ends in {', '.join(ENDINGS)}, got {options.output}"
        )
    if not is_folder and options.output.exists():
        if options.output.is_dir():
            raise UsageError(f"--output: expected a file, got a folder: {options.output}")
        if not options.overwrite:
            raise UsageError(f"--output: {options.output} exists; choose another file, or --overwrite")


def _with_bad_rows(result: JobResult, target: Path | None) -> JobResult:
    """Move the bad rows of a job to where they stay: a file, or standard error."""
    if not result.bad_rows:
        if target is not None:
            target.unlink(missing_ok=True)
        return result
    text = result.bad_rows_file.read_text(encoding="utf-8")
    if target is None:
        sys.stderr.write(text)
        return dataclasses.replace(result, bad_rows_file=Path("standard error"))
    write_texts({target: text})
    return dataclasses.replace(result, bad_rows_file=target)


@contextmanager
def _scored_parts(
    options: JobOptions,
    output: Path,
    on_progress: Callable[[int, int, int], None],
    on_note: Callable[[str], None],
) -> Iterator[tuple[JobResult, list[Path]]]:
    """Score all parts into a folder, locked until the end of the block. Yields the result and their files."""
    model = ScoringModel(options.model, options.rows)
    if output.resolve().is_relative_to(Path(options.input).resolve()):
        raise UsageError("--output: expected a folder outside of --input, whose files would be read again")
    root, files = find_files(options.input)
    written = {options.output.resolve(), bad_rows_of(options.output).resolve()}
    if own := [path for path in files if path.resolve() in written]:
        raise UsageError(f"--output: expected a file that is not read, got {own[0]}, which is in --input")
    plan = Plan(str(options.model.resolve()), model.digest, options.rows)
    with job_folder(
        output,
        plan,
        lambda earlier: with_files(plan, earlier, root, files),
        overwrite=options.overwrite,
    ) as changes:
        targets = changes.plan.targets(output)
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
            run_parts = partial(run_on_ray, on_note=on_note) if options.engine == "ray" else run_local
            failures = run_parts(
                options.model,
                options=options.rows,
                parts=missing,
                workers=options.workers,
                on_progress=show,
            )
        seconds = time.perf_counter() - start
        # the parts of a file that has changed meanwhile may have halves of rows
        numbers = changed_inputs(changes.plan)
        remove_inputs(output, numbers)
        changed = {
            path: f"{path}: expected a file that does not change while it is scored, got one that did"
            for path in (changes.plan.inputs[number].path for number in numbers)
        }
        bad_rows_file, bad_rows = write_bad_rows(output, changes.plan)
        # the first reason of each file
        reasons = changed | changes.unreadable
        reasons |= {targets[target].path: failures[target] for target in sorted(failures, reverse=True)}
        if reasons:
            raise FilesError(list(reasons.values()), len(files), output)
        result = JobResult(rows, total, reused, seconds, len(changes.changed), bad_rows, bad_rows_file)
        yield result, list(targets)
