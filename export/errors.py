"""What can go wrong in `export`, and how it is said.

ExportError
├── RequestError       a flag or argument that makes no sense
├── SourceError        a source, its weights, labels or rows that cannot be read or do not fit
├── RefusedError       a file from a stranger that asks for what is never done
├── UntraceableError   a module that cannot be exported honestly: the place, and the remedy
├── ParityError        a graph that does not compute what the network does
└── PrecisionError     a variant of lower precision that answers too differently

Each message is one sentence for a person: what was expected, what came, and where.
"""

from __future__ import annotations

import warnings


class ExportError(Exception):
    """Anything that this package reports to its user rather than crashing on."""

    # of the command line: 1 is a job that failed, 2 is wrong use
    exit_status = 1


class RequestError(ExportError, ValueError):
    """What was asked for has no meaning: the message names it, its value and the valid ones."""

    exit_status = 2


class SourceError(ExportError):
    """What was to be exported, or what came with it, cannot be read or does not fit."""


class RefusedError(ExportError):
    """A stranger's file wants code run, other files read, or room that no row of data needs."""


class UntraceableError(ExportError):
    """A module has no graph that is true for every input."""


class ParityError(ExportError):
    """The exported graph and the network differ; nothing was written. `table` shows where and by how much."""

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(message)
        self.table = table


class PrecisionError(ExportError):
    """A variant's answers agree with fp32 too rarely; nothing was written."""


class SourceWarning(UserWarning):
    """A note on a source: whoever loads one may collect them, and show them."""


def warn_user(text: str) -> None:
    """Say it to whoever loads the source."""
    warnings.warn(text, SourceWarning, stacklevel=3)
