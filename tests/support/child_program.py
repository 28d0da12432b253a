"""Runs a module of the tests as a program of its own, which prints its outcomes as lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.support.live_server import ROOT, environment


def outcomes_of(module: str, *arguments: object, before: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What `python -m MODULE ARGUMENTS` prints; `before` is a command that runs this one.

    The program checks what it sees, and ends with another status than 0 if something is wrong.
    """
    ran = subprocess.run(
        [*before, sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]
