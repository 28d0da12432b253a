"""A virtual environment for each rival, with the exact versions that its `requirements.txt` names."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.places import ENVIRONMENTS, HERE


def python(name: str, base: str | None = None) -> Path:
    """The Python of a rival's environment, which is made once for these versions; `base` is what makes it."""
    wanted = HERE / "rivals" / name / "requirements.txt"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()[:8]
    folder = ENVIRONMENTS / f"{name}-{digest}"
    program = folder / "bin/python"
    if not (folder / "ready").exists():
        print(f"installing {name} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        call(name, base or sys.executable, "-m", "venv", "--without-pip", folder)
        pip = (sys.executable, "-m", "pip", "--python", program, "install", "--quiet", "--no-deps")
        call(name, *pip, "--requirement", wanted)
        (folder / "ready").touch()
    return program


def call(name: str, *words: str | Path) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchmarkError(f"{name}: expected to run {words[0]}, got {error.strerror}") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise BenchmarkError(f"{name}: expected an environment of its versions, got: {last[0]}")
