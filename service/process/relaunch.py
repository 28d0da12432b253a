"""A new start of the interpreter, between reading the settings and serving by them.

What reads a command line and checks settings takes more memory than the supervisor, and every worker would
inherit it. So this process becomes one that never had it; the settings reach it in a file in memory.
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


def buffer_pipes(settings: Settings) -> Settings:
    """The settings with each pipe read, and a file in memory in its place, which forked processes have."""
    from service.config.settings import FILE_SETTINGS

    pipes = {name: path for name in FILE_SETTINGS if (path := getattr(settings, name)) and not path.is_file()}
    return settings.model_copy(update={name: _copy_to_memory(name, path) for name, path in pipes.items()})


def _copy_to_memory(name: str, path: Path) -> Path:
    from service.errors import SettingError

    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingError(f"{name}: cannot read {path} ({error.strerror})") from error
    # it stays open as long as this process lives, whatever it becomes, and its workers
    descriptor = os.memfd_create(name, 0)
    with open(descriptor, "wb", closefd=False) as copy:
        copy.write(content)
    return Path(f"/proc/self/fd/{descriptor}")


ROOT = Path(__file__).resolve().parents[2]
# the exit status of a command that its user has interrupted
INTERRUPTED = 130


class PlainSettings:
    """The settings by name, without what has checked them; they are not shown, as secrets are among them."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def relaunch(settings: Settings) -> NoReturn:
    """Become the supervisor of these settings."""
    descriptor = anonymous_file()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(to_json(buffer_pipes(settings)))
    # nothing is to be found beside the script, or in the folder where the command was given
    os.execv(sys.executable, [sys.executable, "-P", __file__, str(descriptor), *sys.argv])  # noqa: S606


def anonymous_file() -> int:
    """A file that no folder has, and that outlives this program; in memory where that can be."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("settings", 0)
    import tempfile

    with tempfile.TemporaryFile() as file:
        descriptor = os.dup(file.fileno())
    os.set_inheritable(descriptor, True)
    return descriptor


def to_json(settings: Settings) -> bytes:
    """The settings as JSON, which has no paths and no tuples."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    paths = [name for name, value in values.items() if isinstance(value, Path)]
    return orjson.dumps({"values": values, "paths": paths}, default=str)


def from_json(content: bytes) -> Settings:
    """The settings as they were."""
    record = orjson.loads(content)
    values = record["values"]
    for name, value in values.items():
        if name in record["paths"]:
            values[name] = Path(value)
        elif isinstance(value, list):
            values[name] = tuple(value)
    return cast("Settings", PlainSettings(values))


def make_app(settings: Settings, control: Any) -> Any:
    """The application, imported in a worker: the supervisor stays small."""
    from service.api.app import create_app

    return create_app(settings, control)


def main(descriptor: int, words: list[str]) -> int:
    """Serve; what goes wrong is said in a line, as the command says it, and the exit status returned."""
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
        if "--verbose" in words:
            traceback.print_exc()
        label = "\033[1;31merror:\033[0m" if sys.stderr.isatty() else "error:"
        sys.stderr.write(f"{label} {' '.join(str(error).split())}\n")
        return error.exit_status


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
