"""Replaces the process of `turnpike serve` by a fresh interpreter that becomes the supervisor.

Reading the command line and checking settings imports typer, rich and pydantic, which the supervisor does
not need. This process calls exec to release that memory, so that workers do not inherit it. Settings reach
the new program as JSON in an anonymous file. Measured with two workers and the bundled model: the supervisor
takes 24 instead of 38 MiB of RSS (12 instead of 19 MiB of PSS), and a worker 53 MiB of PSS either way.

This module is also the script that exec runs, with `python -P` and before the repository is on the import
path. Therefore it imports `service` only inside functions.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import orjson

if TYPE_CHECKING:
    from service.config.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
# exit status of a command that was interrupted with Ctrl-C: 128 + SIGINT
INTERRUPTED = 130


class PlainSettings:
    """Settings as attributes, without pydantic. It has no repr of its values, because some are secrets."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def relaunch(settings: Settings) -> NoReturn:
    """Become the supervisor, with these settings."""
    descriptor = anonymous_file()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(to_json(buffer_pipes(settings)))
    # -P: import nothing from the folder of this script or from the working directory
    os.execv(sys.executable, [sys.executable, "-P", __file__, str(descriptor), *sys.argv])  # noqa: S606


def main(descriptor: int, arguments: list[str]) -> int:
    """Read the settings and supervise. Prints an error as one line, like the command, and returns the status.

    Args:
        descriptor: the file of settings, which `relaunch` wrote.
        arguments: the original command line.
    """
    from service.errors import ServiceError
    from service.process.supervisor import supervise

    with open(descriptor, "rb") as file:
        file.seek(0)
        settings = from_json(file.read())
    try:
        return supervise(settings, make_app)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ServiceError as error:
        if "--verbose" in arguments:
            traceback.print_exc()
        label = "\033[1;31merror:\033[0m" if sys.stderr.isatty() else "error:"
        sys.stderr.write(f"{label} {' '.join(str(error).split())}\n")
        return error.exit_status


def make_app(settings: Settings, control: Any) -> Any:
    """Create the application. Imports it here, in the worker, so that the supervisor stays small."""
    from service.api.app import create_app

    return create_app(settings, control)


def buffer_pipes(settings: Settings) -> Settings:
    """The settings with each pipe replaced by a file in memory, which every process can read."""
    from service.config.settings import FILE_SETTINGS

    pipes = {name: path for name in FILE_SETTINGS if (path := getattr(settings, name)) and not path.is_file()}
    return settings.model_copy(update={name: _copy_to_memory(name, path) for name, path in pipes.items()})


def _copy_to_memory(name: str, path: Path) -> Path:
    from service.errors import SettingError

    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingError(f"{name}: cannot read {path} ({error.strerror})") from error
    # the descriptor stays open in this process, whatever program it runs, and in its workers
    descriptor = os.memfd_create(name, 0)
    with open(descriptor, "wb", closefd=False) as copy:
        copy.write(content)
    return Path(f"/proc/self/fd/{descriptor}")


def anonymous_file() -> int:
    """The descriptor of a file without a name that stays open over exec; in memory, if the system can."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("settings", 0)
    import tempfile

    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, True)
    return descriptor


def to_json(settings: Settings) -> bytes:
    """The settings as JSON. Paths become strings and are listed, so that `from_json` can restore them."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    paths = [name for name, value in values.items() if isinstance(value, Path)]
    return orjson.dumps({"values": values, "paths": paths}, default=str)


def from_json(content: bytes) -> Settings:
    """The settings with the same values and types, as PlainSettings."""
    record = orjson.loads(content)
    values = record["values"]
    for name, value in values.items():
        if name in record["paths"]:
            values[name] = Path(value)
        elif isinstance(value, list):
            values[name] = tuple(value)
    return cast("Settings", PlainSettings(values))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
