"""Reads a checkpoint of `turnpike train`: the file records its network, its data and how it was trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnpike.export.errors import SourceError, UsageError
from turnpike.export.input_spec import InputSpec, valid_name
from turnpike.export.network import Network, TextForm
from turnpike.export.sources.data.datasets import is_dataset_name
from turnpike.export.sources.data.features import recorded_features
from turnpike.models.errors import MissingRecordError, ModelsError
from turnpike.models.networks.base import Net
from turnpike.models.training import checkpoint
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.service.artifact.manifest import Interval

# name of the checkpoint in the folder of a training run
WEIGHTS_FILE = "model.safetensors"


def read_checkpoint(path: Path, inputs: tuple[InputSpec, ...] = ()) -> Network:
    """The network of a file, or of a run's folder; `inputs` may rename its input and dimensions."""
    file = path / WEIGHTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise SourceError(f"{path}: expected the folder of a run, with a file {WEIGHTS_FILE}, got none")
    try:
        net, record = checkpoint.load_network(file)
    except ModelsError as error:
        hint = (
            ": bare weights need the code of their network: file.py:factory --weights"
            if isinstance(error, MissingRecordError)
            else ""
        )
        raise SourceError(f"{error}{hint}") from error
    labels = _record_field(record, "labels", list, file)
    alphabet = _record_field(record, "alphabet", str, file)
    if labels and len(labels) != net.config.classes:
        raise SourceError(f"{file}: expected {net.config.classes} labels, one per class, got {len(labels)}")
    own_inputs = _with_user_names(network_input(net), inputs)
    white = record.data.get("white")
    return Network(
        _model_name(record, file),
        "checkpoint",
        own_inputs,
        module=net,
        labels=tuple(labels),
        alphabet=alphabet,
        text=TextForm(own_inputs[0].name, "alphabet") if alphabet and net.reads_ids else None,
        features=recorded_features(record, str(file)),
        task="number" if net.config.classes == 1 else "classes",
        target=_record_field(record, "target", str, file),
        pixels=(0.0, float(white)) if isinstance(white, int | float) else None,
        interval=_recorded_interval(record, file),
        training=record,
    )


def _model_name(record: TrainingRecord, file: Path) -> str:
    """The preset, or for a user's own data the name of its file or folder, or else of what is predicted."""
    data, target = record.data.get("name"), record.data.get("target")
    names: list[object] = [record.preset, file.stem]
    # a table may be called digits.csv
    if isinstance(data, str) and (target or not is_dataset_name(data)):
        names = [data, target, *names]
    return next((name for name in names if isinstance(name, str) and valid_name(name)), "")


def network_input(net: Net) -> InputSpec:
    """The input of a network of `models`; axes of any length are called time, or words if it reads text."""
    dynamic = "words" if net.reads_ids else "time"
    sizes = net.config.inputs
    dims = tuple(dynamic if axis in net.free_axes else size for axis, size in enumerate(sizes))
    name, dtype = ("ids", "int64") if net.reads_ids else ("x", "float32")
    return InputSpec(name, dtype, ("batch", *dims))


def _with_user_names(own: InputSpec, inputs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    """The input under the user's names; dynamic axes may be given a fixed size."""
    if not inputs:
        return (own,)
    renamed = inputs[0]
    fits = len(inputs) == 1 and renamed.dtype == own.dtype and len(renamed.dims) == len(own.dims)
    if not fits or any(
        old != new for old, new in zip(own.dims, renamed.dims, strict=True) if isinstance(old, int)
    ):
        raise UsageError(f"--input: expected {own}, under any names, got {', '.join(map(str, inputs))}")
    return (renamed,)


def _recorded_interval(record: TrainingRecord, file: Path) -> Interval | None:
    """The intervals of a predicted number that the training computed, None without."""
    names = {"level": "interval_level", "half_width": "interval_half_width", "rows": "interval_rows"}
    metrics = record.metrics
    if not isinstance(metrics, dict) or not set(names.values()) <= metrics.keys():
        return None
    try:
        return Interval.model_validate({field: metrics[name] for field, name in names.items()})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise SourceError(
            f"{file}: the record's metrics.{names[str(problem['loc'][0])]}: {problem['msg']}"
        ) from error


def _record_field(record: TrainingRecord, key: str, kind: Callable[[], Any], file: Path) -> Any:
    """A string, or a list of strings, that the record of the run holds about its data."""
    value: Any = record.data.get(key, kind()) if isinstance(record.data, dict) else None
    if type(value) is not kind or not all(isinstance(item, str) for item in value):
        raise SourceError(f"{file}: the record's data.{key} is of an unexpected type")
    return value
