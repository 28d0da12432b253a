"""A checkpoint of ours as a source: the file itself says what network it is and what was trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from export.errors import RequestError, SourceError
from export.input_spec import InputSpec
from export.source import Source
from models.errors import MissingRecordError, ModelsError
from models.networks.base import Net
from models.training import checkpoint
from models.training.checkpoint import TrainingRecord

WEIGHTS_FILE = "model.safetensors"


def read_checkpoint(path: Path, inputs: tuple[InputSpec, ...] = ()) -> tuple[Source, TrainingRecord]:
    """The network of a file, or of a run's folder; `inputs` may call its input and dimensions otherwise."""
    file = path / WEIGHTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise SourceError(f"{path}: expected the folder of a run, with its {WEIGHTS_FILE}, and there is none")
    try:
        net, record = checkpoint.load_network(file)
    except ModelsError as error:
        hint = (
            ": weights alone need their code: file.py:factory --weights"
            if isinstance(error, MissingRecordError)
            else ""
        )
        raise SourceError(f"{error}{hint}") from error
    labels, alphabet = (
        _record_field(record, "labels", list, file),
        _record_field(record, "alphabet", str, file),
    )
    if labels and len(labels) != net.config.classes:
        raise SourceError(f"{file}: expected {net.config.classes} labels, one per class, got {len(labels)}")
    name = record.preset if isinstance(record.preset, str) and record.preset else file.stem
    source = Source(
        name,
        "checkpoint",
        _renamed(network_input(net), inputs),
        module=net,
        labels=tuple(labels),
        alphabet=alphabet,
    )
    return source, record


def network_input(net: Net) -> InputSpec:
    """What a network of ours reads; axes of any length are called time, or words where it reads text."""
    free = "words" if net.reads_ids else "time"
    sizes = net.config.inputs
    dims = tuple(free if axis in net.free_axes else size for axis, size in enumerate(sizes))
    return InputSpec(*(("ids", "int64") if net.reads_ids else ("x", "float32")), ("batch", *dims))


def _renamed(own: InputSpec, inputs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    """The user's own names for the input, which must be the same input; a free axis may be fixed."""
    if not inputs:
        return (own,)
    given = inputs[0]
    fits = len(inputs) == 1 and given.dtype == own.dtype and len(given.dims) == len(own.dims)
    if not fits or any(
        mine != theirs for mine, theirs in zip(own.dims, given.dims, strict=True) if isinstance(mine, int)
    ):
        raise RequestError(f"--input: expected {own}, under any names, got {', '.join(map(str, inputs))}")
    return (given,)


def _record_field(record: TrainingRecord, key: str, kind: Callable[[], Any], file: Path) -> Any:
    """A field of what the record says of its data: text, or a list of texts."""
    value: Any = record.data.get(key, kind()) if isinstance(record.data, dict) else None
    if type(value) is not kind or not all(isinstance(item, str) for item in value):
        raise SourceError(f"{file}: the record's data.{key} cannot be understood")
    return value
