"""Refuses to build without the packages: git can be set to check out their links in src/turnpike as text."""

import sys
from pathlib import Path

from setuptools import setup

PACKAGES = ("client", "common", "export", "loadtest", "models", "reporting", "score", "service", "tune")

missing = [name for name in PACKAGES if not Path("src/turnpike", name, "__init__.py").is_file()]
if missing:
    sys.exit(
        f"expected src/turnpike/{missing[0]}/__init__.py, found none: "
        "src/turnpike needs its links (git config core.symlinks true; git checkout -- src)"
    )
setup()
