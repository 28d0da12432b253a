"""The output folder of a job: claimed by one process, and emptied of what is not to be kept."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from turnpike.common.durable_files import replacing
from turnpike.score.errors import UsageError
from turnpike.score.job.options import OnError, OutputOptions
from turnpike.score.job.plan import MARKERS_FOLDER, Changes, Plan, read_plan
from turnpike.score.job.score_part import BAD_ROWS_FOLDER, bad_rows_file

# programs that read a folder of Parquet files leave out names that begin with an underscore
PLAN_FILE = "_job.json"
BAD_ROWS_FILE = f"{BAD_ROWS_FOLDER}.csv"


@contextmanager
def job_folder(
    folder: Path, plan: Plan, find_changes: Callable[[Plan | None], Changes], *, overwrite: bool
) -> Iterator[Changes]:
    """Claim the output folder for a job, until the end of the block.

    Args:
        folder: The folder; it is created.
        plan: The model and the options of the job.
        find_changes: Returns the whole plan, and what is new since an earlier one.
        overwrite: Whether what another job has written is removed.

    Raises:
        UsageError: The folder has something else, or another job is writing into it.
    """
    is_new = not folder.exists()
    has_lock = False
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
        has_lock = True
        _remove_drafts(folder)
        earlier = _earlier_plan(folder, plan, overwrite=overwrite)
        try:
            changes = find_changes(earlier)
        except UsageError:
            if earlier is None or not overwrite:
                raise
            changes = find_changes(None)
            _remove(folder.rglob("part-*.parquet"))
        remove_inputs(folder, changes.changed)
        with replacing(folder / PLAN_FILE, folder_is_locked=True) as draft:
            draft.write_text(changes.plan.to_json(), encoding="utf-8")
        if plan.options.partition_by is not None:
            (folder / MARKERS_FOLDER).mkdir(exist_ok=True)
        yield changes
    finally:
        if has_lock and is_new:
            with contextlib.suppress(OSError):  # it has files, unless nothing was done
                folder.rmdir()
        os.close(lock)


def remove_inputs(folder: Path, numbers: Collection[int]) -> None:
    """Remove all rows of some inputs."""
    if numbers:
        names = {f"part-{number:06}" for number in numbers}
        _remove(part for part in folder.rglob("part-*.parquet") if part.name[: part.name.rfind("-")] in names)


def write_bad_rows(folder: Path, plan: Plan) -> tuple[Path, int]:
    """Put the bad rows of all parts into one file, absent if there are none. Returns it, and their number."""
    path = folder / BAD_ROWS_FILE
    found = [file for file in map(bad_rows_file, plan.targets(folder)) if file.exists()]
    if not found:
        path.unlink(missing_ok=True)
        return path, 0
    rows = 0
    with (
        replacing(path, folder_is_locked=True) as draft,
        draft.open("w", encoding="utf-8", newline="") as file,
    ):
        file.write("file,row,reason\r\n")
        for part in found:
            text = part.read_text(encoding="utf-8")
            rows += text.count("\n")
            file.write(text)
    return path, rows


def _remove_drafts(folder: Path) -> None:
    """Remove what a killed job left half-written."""
    for drafts in folder.glob(f"{MARKERS_FOLDER}/.part-*.drafts"):
        shutil.rmtree(drafts)
    for pattern in (
        ".part-*",
        f"{MARKERS_FOLDER}/.part-*",
        f"{MARKERS_FOLDER}/{BAD_ROWS_FOLDER}/.part-*",
        f".{Path(PLAN_FILE).stem}.*",
        f".{BAD_ROWS_FOLDER}.*",
        f"{BAD_ROWS_FOLDER}/.part-*",
    ):
        for draft in folder.glob(pattern):
            draft.unlink(missing_ok=True)


def _earlier_plan(folder: Path, plan: Plan, *, overwrite: bool) -> Plan | None:
    """The plan of the job that is continued. With `overwrite`, what another job has written is removed."""
    path = folder / PLAN_FILE
    if not path.exists():
        if others := sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(".")):
            raise UsageError(f"--output: expected an empty folder, got one with {others[0]}: {folder}")
        return None
    try:
        earlier = read_plan(path.read_text(encoding="utf-8"))
        difference = _difference(earlier, plan)
    except (ValueError, KeyError, TypeError):
        difference = f"a {PLAN_FILE} that this version of turnpike cannot read"
    if difference is None:
        return earlier
    if overwrite:
        # the plan last: without it, the folder of a job that is killed meanwhile would be another's
        _remove(folder.rglob("part-*.parquet"))
        path.unlink()
        return None
    raise UsageError(f"--output: {folder} has a job with {difference}; choose another folder, or --overwrite")


def _remove(parts: Iterator[Path]) -> None:
    # those that say that a part is done first
    for part in sorted(parts, key=lambda part: part.parent.name != MARKERS_FOLDER):
        part.unlink()
        bad_rows_file(part).unlink(missing_ok=True)


def _difference(earlier: Plan, plan: Plan) -> str | None:
    """The first thing that an earlier job had otherwise. The path of the model may be another."""
    if earlier.digest != plan.digest:
        return f"another model, {earlier.model} with digest {earlier.digest[:12]}"
    for option in dataclasses.fields(OutputOptions):
        before, now = (getattr(each.options, option.name) for each in (earlier, plan))
        # a job with `fail` may go on with null or reject: its finished parts have no bad rows
        if before != now and (option.name, before) != ("on_error", OnError.FAIL):
            return _option_text(f"--{option.name.replace('_', '-')}", before)
    return None


def _option_text(flag: str, value: object) -> str:
    """An option as it was given."""
    if isinstance(value, bool):
        return f"{'' if value else 'no '}{flag}"
    if isinstance(value, tuple):
        return f"{flag} {','.join(value)}" if value else f"{flag} none" if flag == "--keep" else f"no {flag}"
    return f"no {flag}" if value is None else f"{flag} {value}"
