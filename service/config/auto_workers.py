"""What `--workers auto` comes to: what `turnpike tune` found on a machine like this one, or what is usual."""

from __future__ import annotations

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

from service.artifact.protobuf import submessages
from service.config.cpus import available_cpus, cpu_model, default_workers
from service.config.settings import MAX_WORKERS, Settings
from service.errors import SettingError
from service.repository.scan import VersionPolicy, scan

# numbers of fields: ModelProto.graph, GraphProto.initializer
GRAPH, INITIALIZER = 7, 5
# biases and scales are smaller, and take next to no time
MIN_WEIGHT_BYTES = 1 << 16


def median_weight_size(path: Path) -> int:
    """Bytes of the weight in the middle of all that are not small; 0 where there is none, or no model."""
    try:
        with path.open("rb") as file:
            cpu_model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        sizes = [
            len(weight)
            for graph in submessages(cpu_model, GRAPH)
            for weight in submessages(graph, INITIALIZER)
            if len(weight) >= MIN_WEIGHT_BYTES
        ]
    except (OSError, ValueError):
        # whoever loads the file says what is wrong with it
        return 0
    return int(median(sizes)) if sizes else 0


TUNED_FILE = "tuned.toml"
# the table of that file that says on which machine its settings were measured, and when
MEASURED_TABLE = "measured"
# the settings that it may hold
TUNED_SETTINGS = ("workers", "threads", "max_batch", "max_delay_ms")


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """Settings by name, and where they are from; `warning` says why those of a file were not taken."""

    settings: Mapping[str, int | float]
    origin: str
    warning: str = ""


def auto_settings(settings: Settings) -> TunedSettings:
    """What suits the models of these settings on this machine."""
    file = None if settings.models is None else settings.models / TUNED_FILE
    if file is None or not file.exists():
        return guess(settings)
    try:
        return TunedSettings(read_tuned_file(file, describe_machine(settings.device)), str(file))
    except SettingError as error:
        return guess(settings, f"--workers auto goes without {error}")


def read_tuned_file(file: Path, here: Mapping[str, Any]) -> dict[str, int | float]:
    """The settings of a file; a SettingError where it is damaged, or was measured on another machine."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise SettingError(f"{file}: expected a file, got something else")
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{file}: expected a file that can be read ({error.strerror})") from error
    except ValueError as error:
        raise SettingError(f"{file}: expected TOML, got something else: {error}") from error
    measured = found.pop(MEASURED_TABLE, None)
    if not isinstance(measured, dict):
        raise SettingError(f"{file}: expected a table [{MEASURED_TABLE}] that says on what machine, got none")
    for name, value in here.items():
        if measured.get(name) != value:
            raise SettingError(
                f"{file}: expected it to be measured on a machine like this one, with {name} = {value!r}, "
                f"got {measured.get(name)!r}"
            )
    if found.keys() != set(TUNED_SETTINGS):
        raise SettingError(
            f"{file}: expected {', '.join(TUNED_SETTINGS)}, got {', '.join(found) or 'nothing'}"
        )
    if any(type(value) not in (int, float) for value in found.values()):
        raise SettingError(f"{file}: expected numbers, got {found}")
    try:
        Settings(**found)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingError(
            f"{file}: {first['loc'][0]}: expected a number that serve takes, got {first['input']!r}"
        ) from error
    return found


def describe_machine(device: str) -> dict[str, Any]:
    """What decides how fast a model is here: settings that were measured elsewhere may be poor ones."""
    return {"cpus": available_cpus(), "cpu": cpu_model(), "device": device}


def guess(settings: Settings, warning: str = "") -> TunedSettings:
    """What is usual for the largest model that will be served, on so many CPUs."""
    allowed = available_cpus()
    if settings.threads:
        workers, why = max(1, int(allowed) // settings.threads), f"{settings.threads} threads each"
    elif settings.device == "cuda":
        # which holds every model once for each worker
        workers, why = 1, "one GPU"
    else:
        weight = largest_model_weight_size(settings)
        workers, why = (
            default_workers(allowed, weight),
            f"weights of {weight / 1e6:.1f} MB" if weight else "small weights",
        )
    return TunedSettings(
        {"workers": min(workers, MAX_WORKERS)}, f"usual for {allowed:g} CPUs and {why}", warning
    )


def largest_model_weight_size(settings: Settings) -> int:
    """Bytes of a usual weight in the largest file that will be served; the bundled model's are small."""
    if settings.models is None:
        return 0
    policy = VersionPolicy.parse(settings.versions)
    found = scan(settings.models).models.values()
    served = [one for versions in found for one in policy.choose(versions)]
    return median_weight_size(max(served, key=attrgetter("size")).path) if served else 0
