"""Virtual environments for tests: one for each foreign client."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.live_server import environment
from tests.support.locks import locked

ROOT = Path(__file__).parents[2]


def installed_programs(name: str, *requirements: str, python: str = sys.executable) -> Path:
    """The `bin` folder of an environment with these requirements; kept in `.clients` for the next run.

    `python` is the program that creates it.
    """
    digest = hashlib.sha256(" ".join(requirements).encode()).hexdigest()
    folder = ROOT / ".clients" / f"{name}-{digest[:8]}"
    with locked(folder.with_suffix(".lock")):
        if not (folder / "ready").exists():
            subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
            subprocess.run([folder / "bin/pip", "install", "--quiet", *requirements], check=True)
            (folder / "ready").touch()
    return folder / "bin"


def run_client(
    script: str, programs: Path, *arguments: str | Path, stdin: str | None = None, **variables: str
) -> Any:
    """Run a script of tests/clients by the Python of such an environment; returns the JSON that it prints."""
    result = subprocess.run(
        [programs / "python", ROOT / "tests/clients" / script, *arguments],
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
