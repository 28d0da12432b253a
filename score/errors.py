"""Errors of scoring.

ScoreError              a job that failed
├── UsageError          an option is wrong
└── RowsError           rows cannot be read, or do not fit the model
"""

from __future__ import annotations


class ScoreError(Exception):
    """A job that failed. The message is for the user."""

    exit_status = 1


class UsageError(ScoreError):
    """An option is wrong."""

    exit_status = 2


class RowsError(ScoreError):
    """Rows cannot be read, or do not fit the model. The message says where they are."""
