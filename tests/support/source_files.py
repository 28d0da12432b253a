"""The Python files of the packages, and trees of such files for tests of checks."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("common", "reporting", "models", "export", "service", "loadtest", "score", "tune", "client")


def files(package: str, root: Path = ROOT) -> list[Path]:
    return sorted((root / package).rglob("*.py"))


def write(root: Path, **texts: str) -> Path:
    """A tree of modules for tests of the checks; `a__b` is the file a/b.py."""
    for name, text in texts.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
