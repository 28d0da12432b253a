"""Virtual environments of the rivals, with exactly the versions of their `requirements.txt`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.folders import ENVIRONMENTS, RIVALS


def ensure_environment(rival: str, base_python: str | None = None) -> Path:
    """The Python of a rival's environment, which is created unless it exists with these versions.

    `base_python` is the Python that the environment is created with, instead of the running one.
    """
    requirements = RIVALS / rival / "requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:8]
    folder = ENVIRONMENTS / f"{rival}-{digest}"
    python = folder / "bin/python"
    if not (folder / "ready").exists():
        print(f"installing {rival} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        run_command(rival, base_python or sys.executable, "-m", "venv", "--without-pip", folder)
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
        run_command(rival, *pip, "--requirement", requirements)
        (folder / "ready").touch()
    return python


def run_command(rival: str, *arguments: str | Path) -> None:
    try:
        process = subprocess.run(arguments, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchmarkError(f"{rival}: expected to run {arguments[0]}, got {error.strerror}") from error
    if process.returncode:
        last_line = process.stderr.strip().splitlines()[-1:] or ["no message"]
        raise BenchmarkError(f"{rival}: expected an environment with its versions, got: {last_line[0]}")
