"""The plan of a job: model, options and inputs. The output folder has it, so that a job can be continued."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnpike.score.errors import RowsError, UsageError
from turnpike.score.job.options import OnError, OutputOptions
from turnpike.score.readers.files import is_image, split_file
from turnpike.score.readers.images import PART_IMAGES
from turnpike.score.readers.parts import Part, spans

FORMAT = 2
MARKERS_FOLDER = "_parts"


@dataclass(frozen=True)
class Input:
    """An input file, or some images, which are scored again if one of them changes.

    Attributes:
        path: The file, absolute; the folder of images.
        stamp: Changes when the file does: its size and time.
        parts: The parts of the file. A file that cannot be read has none.
    """

    path: str
    stamp: str
    parts: tuple[Part, ...]

    @property
    def files(self) -> list[str]:
        """The paths of the files."""
        images = [str(Path(self.path) / name) for part in self.parts for name in part.files]
        return images or [self.path]


@dataclass(frozen=True)
class Plan:
    """Everything that decides what the output is.

    Attributes:
        model: Path of the model, absolute.
        digest: SHA-256 of its file.
        options: What is written for each row.
        inputs: The input files: in order when the job began, and those that were added later.
    """

    model: str
    digest: str
    options: OutputOptions
    inputs: tuple[Input, ...] = ()

    def targets(self, folder: Path) -> dict[Path, Part]:
        """The file of each part; names sort in the order of the rows.

        If rows are in folders for values of a column, the files here are empty and say that a part is done.
        """
        folder = folder if self.options.partition_by is None else folder / MARKERS_FOLDER
        return {
            folder / f"part-{number:06}-{place:05}.parquet": part
            for number, source in enumerate(self.inputs)
            for place, part in enumerate(source.parts)
        }

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)})


@dataclass
class Changes:
    """What is new since an earlier run: the plan, files that cannot be read, and inputs that have changed."""

    plan: Plan
    unreadable: dict[str, str] = field(default_factory=dict)
    changed: list[int] = field(default_factory=list)


def read_plan(text: str) -> Plan:
    """The plan that `to_json` wrote. Raises a ValueError, KeyError or TypeError for any other text."""
    record = json.loads(text)
    if record["format"] != FORMAT:
        raise ValueError
    options = record["options"]
    names = {name: None if options[name] is None else tuple(options[name]) for name in ("columns", "keep")}
    inputs = tuple(
        Input(one["path"], one["stamp"], tuple(map(part_of, one["parts"]))) for one in record["inputs"]
    )
    on_error = OnError(options["on_error"])
    return Plan(
        record["model"], record["digest"], OutputOptions(**options | names | {"on_error": on_error}), inputs
    )


def part_of(record: dict[str, Any]) -> Part:
    """A part from its JSON."""
    return Part(**record | {"files": tuple(record["files"])})


def with_files(plan: Plan, earlier: Plan | None, root: Path, files: Sequence[Path]) -> Changes:
    """The plan for these files below `root`. Inputs of an earlier run keep their places.

    Raises:
        UsageError: A file of the earlier run is not among them, or they have no rows.
    """
    changes = Changes(plan)
    root = root.absolute()
    paths = {str(path): path for path in map(Path.absolute, files)}
    inputs: list[Input] = []
    for number, source in enumerate(earlier.inputs if earlier else ()):
        if missing := [path for path in source.files if path not in paths]:
            raise UsageError(
                f"--output: the job there has rows of {missing[0]}, which is not in --input any more; "
                "choose another folder, or --overwrite"
            )
        some = [paths.pop(path) for path in source.files]
        if (stamp := _stamp(some)) != source.stamp:
            changes.changed.append(number)
        if source.parts and source.parts[0].files:
            inputs.append(dataclasses.replace(source, stamp=stamp))
        elif source.parts and stamp == source.stamp:
            inputs.append(source)
        else:
            inputs.append(_split(some[0], root, changes))
    images = [path for path in paths.values() if is_image(path)]
    inputs += [_split(path, root, changes) for path in paths.values() if not is_image(path)]
    for start, stop in spans(len(images), PART_IMAGES):
        names = tuple(str(path.relative_to(root)) for path in images[start:stop])
        part = Part(str(root), start, stop, files=names)
        inputs.append(Input(str(root), _stamp(images[start:stop]), (part,)))
    if not changes.unreadable and not any(source.parts for source in inputs):
        raise UsageError(f"--input: expected rows, got none in {root}")
    changes.plan = dataclasses.replace(plan, inputs=tuple(inputs))
    return changes


def changed_inputs(plan: Plan) -> list[int]:
    """The numbers of the inputs that have changed since the plan was made."""
    return [
        number
        for number, source in enumerate(plan.inputs)
        if _stamp([Path(path) for path in source.files]) != source.stamp
    ]


def _split(path: Path, root: Path, changes: Changes) -> Input:
    stamp = _stamp([path])
    try:
        return Input(str(path), stamp, split_file(path, root))
    except RowsError as error:
        changes.unreadable[str(path)] = str(error)
        return Input(str(path), stamp, ())


def _stamp(paths: Sequence[Path]) -> str:
    """The size and time of a file, or a digest of those of several; "" if a file is gone."""
    try:
        stats = [path.stat() for path in paths]
    except OSError:
        return ""
    text = " ".join(f"{stat.st_size}-{stat.st_mtime_ns}" for stat in stats)
    return text if len(paths) == 1 else hashlib.sha256(text.encode()).hexdigest()
