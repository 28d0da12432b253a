"""The PYTHONPATH of processes that tests start: this checkout, or a copy that controls and mutants make."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python_path(*folders: Path, root: Path = ROOT) -> str:
    """These folders, the import root, and the check that no package is imported by its short name."""
    return os.pathsep.join(map(str, (*folders, root / "src", root / "tests/support/short_names")))
