"""Copies the pipes among the files of the settings to memory, as a pipe can be read only once.

The shell gives a pipe for `--api-keys-file <(pass show keys)`, but every worker reads its keys as it starts.
"""

from __future__ import annotations

import os
from pathlib import Path

from turnpike.service.config.settings import FILE_SETTINGS, Settings
from turnpike.service.errors import SettingError


def buffer_pipes(settings: Settings) -> Settings:
    """The settings with each pipe replaced by a file in memory, for this process and those that it forks."""
    pipes = {name: path for name in FILE_SETTINGS if (path := getattr(settings, name)) and not path.is_file()}
    return settings.model_copy(update={name: _copy_to_memory(name, path) for name, path in pipes.items()})


def _copy_to_memory(name: str, path: Path) -> Path:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingError(f"{name}: cannot read {path} ({error.strerror})") from error
    # never closed: the file exists as long as a process has it open
    descriptor = os.memfd_create(name)
    with open(descriptor, "wb", closefd=False) as copy:
        copy.write(content)
    return Path(f"/proc/self/fd/{descriptor}")
