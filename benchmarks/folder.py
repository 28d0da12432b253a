"""A folder of models for a while: files by the names that they are served under."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.places import KEPT


@contextmanager
def folder_of(files: Mapping[str, Path]) -> Iterator[Path]:
    """Each file is there once: what lies in the folder are links to it."""
    with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
        for name, file in files.items():
            version = Path(scratch) / name / "1"
            version.mkdir(parents=True)
            os.link(file, version / "model.onnx")
        yield Path(scratch)
