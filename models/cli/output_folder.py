"""Checks the folder of `--out` before the work begins."""

from __future__ import annotations

from pathlib import Path

from turnpike.common.durable_files import writing_problem
from turnpike.models.errors import ConfigError


def expect_writable(folder: Path) -> None:
    """Raise a ConfigError if nothing can be written into the folder."""
    if problem := writing_problem(folder):
        raise ConfigError(f"--out: expected a folder that can be written, got {folder}: {problem}")
