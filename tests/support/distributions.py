"""The wheel and sdist of this checkout, and fresh environments in which uv installs the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.locks import locked

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
UV = Path(sys.executable).with_name("uv")


def wheel() -> Path:
    """The wheel in dist/, which `make dist` has built."""
    wheels = list(DIST.glob("*.whl"))
    assert len(wheels) == 1, f"expected one wheel in {DIST}, got {wheels}: make dist builds it"
    return wheels[0]


def environment(**changes: str) -> dict[str, str]:
    """The environment of a user, who has no checkout: without its path and settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("TURNPIKE_")
    }
    # uv does not read the settings of pip
    links = {"UV_FIND_LINKS": kept["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in kept else {}
    constraint = {"UV_CONSTRAINT": str(ROOT / "constraints.txt")}
    return kept | links | constraint | {"UV_PYTHON_DOWNLOADS": "never", "OMP_NUM_THREADS": "1"} | changes


def find_python(version: str) -> str | None:
    """A Python of a version such as 3.12, from the path or from pyenv; None if there is none."""
    candidates = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], check=True, capture_output=True, text=True).stdout.strip()
        candidates += map(str, Path(root).glob(f"versions/{version}.*/bin/python"))
    for candidate in filter(None, candidates):
        # the program of pyenv on the path ends with an error for versions that are not chosen
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def install(folder: Path, extras: str, *others: str, python: str = sys.executable) -> Path:
    """The `bin` folder of a fresh environment with the wheel and these extras, and other distributions."""
    with locked(folder.with_suffix(".lock")):
        if not (folder / "ready").exists():
            run([UV, "venv", "--quiet", "--python", python, folder])
            command: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", folder / "bin/python"]
            run([*command, f"{wheel()}[{extras}]", *others])
            (folder / "ready").touch()
    return folder / "bin"


def run(command: list[str | Path], folder: Path = ROOT, **variables: str) -> str:
    """The output of a command that must succeed, in the environment of a user."""
    result = subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout
