"""The plan of a job: model, options and parts. The output folder has it, so that a job can be continued."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnpike.common.durable_files import replacing
from turnpike.score.errors import UsageError
from turnpike.score.readers.parts import Part

# programs that read a folder of Parquet files leave out names that begin with an underscore
PLAN_FILE = "_job.json"
FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """Everything that decides what the output is.

    Attributes:
        model: Path of the model, absolute.
        digest: SHA-256 of its file.
        gates: Whether the gates are columns of the output.
        warnings: Whether the output has a column of warnings.
        inputs: Path, size and time of change of each input file, in order.
        parts: The parts of these files, in order.
    """

    model: str
    digest: str
    gates: bool
    warnings: bool
    inputs: tuple[tuple[str, int, int], ...]
    parts: tuple[Part, ...]

    def part_file(self, folder: Path, number: int) -> Path:
        """The file of a part; names sort in the order of the parts."""
        return folder / f"part-{number:0{max(5, len(str(len(self.parts))))}}.parquet"

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)})


def describe_inputs(files: list[Path]) -> tuple[tuple[str, int, int], ...]:
    """What a plan says of its input files."""
    stats = ((file, file.stat()) for file in files)
    return tuple((str(file.resolve()), stat.st_size, stat.st_mtime_ns) for file, stat in stats)


@contextmanager
def job_folder(folder: Path, plan: Plan, *, overwrite: bool) -> Iterator[None]:
    """Claim the output folder for a job, until the end of the block.

    Raises:
        UsageError: The folder has something else, or another job is writing into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UsageError(
            f"--output: expected a folder that can be written, got {folder} ({error.strerror})"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"--output: another job is writing into {folder}") from error
        _expect_same_job(folder, plan, overwrite=overwrite)
        _write_plan(folder, plan)
        yield
    finally:
        os.close(lock)


def _expect_same_job(folder: Path, plan: Plan, *, overwrite: bool) -> None:
    """Remove what a killed job left half-written, and with `overwrite` also what another job has written."""
    path = folder / PLAN_FILE
    for pattern in (".part-*", f".{path.stem}.*"):
        for draft in folder.glob(pattern):
            draft.unlink(missing_ok=True)
    if not path.exists():
        if others := sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(".")):
            raise UsageError(f"--output: expected an empty folder, got one with {others[0]}: {folder}")
        return
    difference = _difference(path.read_text(encoding="utf-8"), plan)
    if difference is None:
        return
    if overwrite:
        path.unlink()
        for part in folder.glob("part-*.parquet"):
            part.unlink()
        return
    raise UsageError(f"--output: {folder} has a job with {difference}; choose another folder, or --overwrite")


def _difference(text: str, plan: Plan) -> str | None:
    """The first thing that an earlier job had otherwise. The path of the model may be another."""
    now = json.loads(plan.to_json())
    try:
        # a job of an older version has no warnings
        earlier = now | {"warnings": False} | json.loads(text)
    except (ValueError, TypeError):
        return f"an unreadable {PLAN_FILE}"
    if earlier["digest"] != plan.digest:
        return f"another model, {earlier['model']} with digest {str(earlier['digest'])[:12]}"
    if earlier["gates"] != plan.gates:
        return f"{'' if earlier['gates'] else 'no '}--gates"
    if earlier["warnings"] != plan.warnings:
        return f"{'' if earlier['warnings'] else 'no '}--warnings"
    if (earlier["inputs"], earlier["parts"], earlier["format"]) != (now["inputs"], now["parts"], FORMAT):
        return "other input files, or files that have changed since"
    return None


def _write_plan(folder: Path, plan: Plan) -> None:
    with replacing(folder / PLAN_FILE, folder_is_locked=True) as draft:
        draft.write_text(plan.to_json(), encoding="utf-8")
