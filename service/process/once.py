"""Files that can be read once only, such as `<(pass show keys)`, kept so that every worker can read them."""

from __future__ import annotations

import os
from pathlib import Path

from service.config.settings import FILES, Settings
from service.errors import SettingError


def kept(settings: Settings) -> Settings:
    """The settings with each pipe read, and a file in memory in its place, which forked processes have."""
    pipes = {name: path for name in FILES if (path := getattr(settings, name)) and not path.is_file()}
    return settings.model_copy(update={name: _copy(name, path) for name, path in pipes.items()})


def _copy(name: str, path: Path) -> Path:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingError(f"{name}: cannot read {path} ({error.strerror})") from error
    # it stays open as long as this process lives, whatever it becomes, and its workers
    descriptor = os.memfd_create(name, 0)
    with open(descriptor, "wb", closefd=False) as copy:
        copy.write(content)
    return Path(f"/proc/self/fd/{descriptor}")
