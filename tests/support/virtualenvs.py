"""Programs of other people's packages, each package in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def programs(name: str, wanted: str) -> Path:
    """The folder of programs of an environment with what is wanted, which is made once for a version."""
    folder = ROOT / ".clients" / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", wanted], check=True)
        (folder / "ready").touch()
    return folder / "bin"


def asked(script: str, programs: Path, *words: str | Path, told: str | None = None) -> Any:
    """What a script of tests/clients, run by such an environment's Python and told it, says as JSON."""
    ran = subprocess.run(
        [programs / "python", ROOT / "tests/clients" / script, *words],
        input=told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
