"""Looks at the files of keys before the start: who may read them, and which are pipes.

A pipe can be read only once, as the shell's for `--api-keys-file <(pass show keys)`, and every worker reads
its keys as it starts.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from turnpike.service.config.settings import FILE_SETTINGS, Settings
from turnpike.service.errors import SettingError

# Folders where containers find their secrets. Only the container sees them, so their modes mean nothing.
SECRET_FOLDERS = (Path("/run/secrets"), Path("/var/run/secrets"))


def exposed_keys(settings: Settings) -> list[str]:
    """A sentence for each file of keys that every user of this machine may read."""
    sentences = []
    for name in FILE_SETTINGS:
        path: Path | None = getattr(settings, name)
        if name == "tls_cert" or path is None or any(map(path.is_relative_to, SECRET_FOLDERS)):
            continue
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & stat.S_IROTH:
            sentences.append(f"{name}: every user of this machine may read {path}: chmod o-r {path}")
    return sentences


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
