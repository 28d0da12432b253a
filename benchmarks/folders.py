"""The folders of the benchmarks, and a temporary model repository.

Benchmarks write into `.bench`, which git ignores. Results that the repository keeps are in `results/`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BENCHMARKS = Path(__file__).parent
ROOT = BENCHMARKS.parent
RIVALS = BENCHMARKS / "contestants" / "rivals"
LIMITS = BENCHMARKS / "contestants" / "limits"
RESULTS = BENCHMARKS / "results"
DOCS = ROOT / "docs"

WORK_FOLDER = ROOT / ".bench"
ENVIRONMENTS = WORK_FOLDER / "environments"
NETWORK_FILES = WORK_FOLDER / "nets"
LOGS = WORK_FOLDER / "logs"


@contextmanager
def linked_models(files: Mapping[str, Path]) -> Iterator[Path]:
    """A temporary model repository with hard links to the files, each under the name that it is served by."""
    with tempfile.TemporaryDirectory(dir=WORK_FOLDER) as repository:
        for name, file in files.items():
            version = Path(repository) / name / "1"
            version.mkdir(parents=True)
            os.link(file, version / "model.onnx")
        yield Path(repository)
