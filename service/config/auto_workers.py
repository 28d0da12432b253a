"""Resolves `--workers auto`: the settings that `turnpike tune` measured on this machine, or else a guess.

The guess depends on the size of the model's weights and on the number of CPUs.
"""

from __future__ import annotations

import asyncio
import mmap
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from turnpike.common.cpus import available_cpus, cpu_model
from turnpike.service.artifact.onnx_file.protobuf import submessages
from turnpike.service.config.cpus import default_workers
from turnpike.service.config.settings import MAX_WORKERS, Settings
from turnpike.service.errors import SettingError
from turnpike.service.remote.remote_repository import open_repository
from turnpike.service.repository.location import locate
from turnpike.service.repository.scan import VersionPolicy

# the file in a model repository that `turnpike tune` writes
TUNED_FILE = "tuned.toml"
# the table of that file that says when and on which machine the settings were measured
MEASURED_TABLE = "measured"
# properties that older files lack, with their values there
OLDER_MEASURED = {"precision": "fp32"}
# the settings that the file must have
TUNED_SETTINGS = ("workers", "threads", "max_batch", "max_delay_ms")

# field numbers of onnx.proto: ModelProto.graph, GraphProto.initializer
GRAPH, INITIALIZER = 7, 5
# smaller initializers are biases and scales, which take hardly any time
MIN_WEIGHT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """Settings by name, and where they come from. `warning` says why a tuned file was not used."""

    settings: Mapping[str, int | float]
    origin: str
    warning: str = ""


def auto_settings(settings: Settings) -> TunedSettings:
    """The settings that suit the models of these settings on this machine."""
    if not isinstance(settings.models, Path):
        return guess(settings)
    file = locate(settings.models).root / TUNED_FILE
    if not file.exists():
        return guess(settings)
    try:
        return TunedSettings(read_tuned_file(file, describe_machine(settings)), str(file))
    except SettingError as error:
        return guess(settings, f"--workers auto ignores {error}")


def read_tuned_file(file: Path, machine: Mapping[str, Any]) -> dict[str, int | float]:
    """The settings of a tuned file.

    Raises:
        SettingError: The file is damaged, or was measured on a machine other than `machine`.
    """
    try:
        # opening a pipe would block
        if not stat.S_ISREG(file.stat().st_mode):
            raise SettingError(f"{file}: expected a file, got something else")
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{file}: expected a file that can be read ({error.strerror})") from error
    except ValueError as error:
        raise SettingError(f"{file}: expected TOML, got something else: {error}") from error

    # the machine must be the same
    measured = values.pop(MEASURED_TABLE, None)
    if not isinstance(measured, dict):
        raise SettingError(
            f"{file}: expected a table [{MEASURED_TABLE}] that describes the machine, got none"
        )
    measured = OLDER_MEASURED | measured
    for name, value in machine.items():
        if measured.get(name) != value:
            raise SettingError(
                f"{file}: expected it to be measured on a machine like this one, with {name} = {value!r}, "
                f"got {measured.get(name)!r}"
            )

    # exactly the tuned settings, with valid values
    if values.keys() != set(TUNED_SETTINGS):
        raise SettingError(
            f"{file}: expected {', '.join(TUNED_SETTINGS)}, got {', '.join(values) or 'nothing'}"
        )
    if any(type(value) not in (int, float) for value in values.values()):
        raise SettingError(f"{file}: expected numbers, got {values}")
    try:
        Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingError(
            f"{file}: {first['loc'][0]}: expected a number that serve accepts, got {first['input']!r}"
        ) from error
    return values


def describe_machine(settings: Settings) -> dict[str, Any]:
    """Properties of this machine, and of what runs models on it, on which speed depends.

    Settings measured elsewhere may be poor ones.
    """
    return {
        "cpus": available_cpus(),
        "cpu": cpu_model(),
        "device": settings.device,
        "precision": settings.precision,
    }


def guess(settings: Settings, warning: str = "") -> TunedSettings:
    """The usual number of workers for these CPUs and for the largest model that will be served."""
    allowed_cpus = available_cpus()
    if settings.threads:
        workers = max(1, int(allowed_cpus) // settings.threads)
        reason = f"{settings.threads} threads each"
    elif settings.device == "cuda":
        # each worker would hold a copy of every model on the GPU
        workers, reason = 1, "one GPU"
    else:
        weight_size = largest_model_weight_size(settings)
        workers = default_workers(allowed_cpus, weight_size)
        reason = f"weights of {weight_size / 1e6:.1f} MB" if weight_size else "small weights"
    return TunedSettings(
        {"workers": min(workers, MAX_WORKERS)}, f"usual for {allowed_cpus:g} CPUs and {reason}", warning
    )


def largest_model_weight_size(settings: Settings) -> int:
    """Bytes of a typical weight in the largest file that will be served, 0 if its weights are small."""
    if settings.models is None:
        # the weights of the bundled model are small
        return 0
    repository = open_repository(
        settings.models, settings.versions, settings.model_cache, settings.store_seconds
    )
    # files of a remote repository are downloaded, and the service then finds them in the cache
    models = asyncio.run(repository.find_models()).models
    policy = VersionPolicy.parse(settings.versions)
    files = [file for versions in models.values() for file in policy.choose(versions)]
    return median_weight_size(max(files, key=attrgetter("size")).path) if files else 0


def median_weight_size(path: Path) -> int:
    """The median of the sizes in bytes of all large initializers; 0 if there are none, or no valid file."""
    try:
        with path.open("rb") as file:
            model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        sizes = [
            len(weight)
            for graph in submessages(model, GRAPH)
            for weight in submessages(graph, INITIALIZER)
            if len(weight) >= MIN_WEIGHT_BYTES
        ]
    except (OSError, ValueError):
        # loading the model reports what is wrong with the file
        return 0
    return int(median(sizes)) if sizes else 0
