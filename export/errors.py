"""Every error that `export` reports to its user, and the warning about a source.

ExportError
├── UsageError         an option or argument that makes no sense
├── SourceError        a source, its weights, labels or rows cannot be read or do not fit
├── RefusedError       an untrusted file asks for something that is never done
├── UntraceableError   a module that no graph can represent faithfully
├── ParityError        the graph does not compute what the network computes
└── PrecisionError     a lower-precision variant gives too many different answers

Each message is one sentence for a person: what was expected, what came, and where.
"""

from __future__ import annotations

import warnings


class ExportError(Exception):
    """Base of all errors that the command line shows as one sentence, without a traceback."""

    # exit status of the command: 1 means that the job failed, 2 that the command was used wrongly
    exit_status = 1


class UsageError(ExportError, ValueError):
    """An option or argument makes no sense: the message names it, its value and the valid values."""

    exit_status = 2


class SourceError(ExportError):
    """The source, or something that came with it, cannot be read or does not fit."""


class RefusedError(ExportError):
    """An untrusted file wants code run, other files read, or far more memory than a row of data needs."""


class UntraceableError(ExportError):
    """No graph represents the module for every input. The message names the place and a remedy."""


class ParityError(ExportError):
    """The exported graph and the network differ, so nothing was written.

    `table` lists the errors of each tensor as text; empty where the failure has no figures.
    """

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(message)
        self.table = table


class PrecisionError(ExportError):
    """A lower-precision variant agrees with fp32 too rarely, so nothing was written."""


class SourceWarning(UserWarning):
    """Something a user should know about a source that does not stop its export."""


def warn_user(text: str) -> None:
    """Raise a SourceWarning; `export_model` collects and returns them."""
    warnings.warn(text, SourceWarning, stacklevel=3)
