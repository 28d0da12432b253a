"""The files of the dashboard, for tests of how they are served and of what they contain."""

from __future__ import annotations

from pathlib import Path

from turnpike.service.api.dashboard import FOLDER

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
