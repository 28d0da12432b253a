"""Errors of scoring.

ScoreError              a job that failed
├── UsageError          an option is wrong
└── RowsError           rows cannot be read, or do not fit the model
    └── FilesError      some of the files of a job
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class ScoreError(Exception):
    """A job that failed. The message is for the user."""

    exit_status = 1


class UsageError(ScoreError):
    """An option is wrong."""

    exit_status = 2


class RowsError(ScoreError):
    """Rows cannot be read, or do not fit the model. The message says where they are."""


class FilesError(RowsError):
    """Some files of a job, the other files of which are scored. `reasons` has a message for each."""

    def __init__(self, reasons: Sequence[str], files: int, output: Path) -> None:
        others = f"the rows of the other files are in {output}, and the same command tries again"
        if files == 1:
            text = reasons[0]
        elif len(reasons) == 1:
            text = f"{reasons[0]} ({others})"
        else:
            text = f"{len(reasons):,} of {files:,} files cannot be scored; {others}"
        super().__init__(text)
        self.reasons = reasons
