"""Refuses to import the packages of a checkout without `turnpike.`, as `service` for example.

Python would load such a module a second time, with other classes, beside `turnpike.service`.

Python imports a module called `sitecustomize` when it starts, if one is on the path. So this also runs in the
environments of other clients.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
SHORT_NAMES = {link.name for link in (ROOT / "src/turnpike").iterdir() if link.is_symlink()}


class ShortNamesFinder:
    """Finds no module; raises an ImportError for the short name of a package of the checkout."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in SHORT_NAMES:
            spec = PathFinder.find_spec(name)
            if spec and spec.origin == str(ROOT / name / "__init__.py"):
                raise ImportError(f"expected turnpike.{name}, got an import of {name}", name=name)
        return None


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, ShortNamesFinder())
