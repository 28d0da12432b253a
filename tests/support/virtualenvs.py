"""Virtual environments for tests: one for each foreign client, and one that holds our own wheel."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
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


def install_wheel(wheel: Path, folder: Path) -> Path:
    """The `bin` folder of a new environment with a wheel of ours, and without the checkout.

    The wheel's dependencies are those of the running environment. A .pth file adds their folder to the path.
    Python does not read .pth files of such a folder, so an editable installation of the checkout stays out.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"
