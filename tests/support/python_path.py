"""The PYTHONPATH of processes that tests start: this checkout, which may be a copy."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python_path(*folders: Path) -> str:
    """These folders, the import root, and the check that no package is imported by its short name."""
    return os.pathsep.join(map(str, (*folders, ROOT / "src", ROOT / "tests/support/short_names")))
