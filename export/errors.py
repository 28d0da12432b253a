"""Every error that `export` reports to its user.

ExportError
├── UsageError         an option or argument that makes no sense
├── SourceError        a source, its weights, labels or rows cannot be read or do not fit
│   └── SourceOptionError  the same for the value of an option, such as --weights or --data
├── RefusedError       an untrusted file asks for something that is never done
├── UntraceableError   a module that no graph can represent faithfully
├── GateCountError     a graph with another number of gates than the user expects
├── ParityError        the graph does not compute what the network computes
├── PrecisionError     a lower-precision variant gives too many different answers
└── CompressionError   a network that cannot be made smaller as requested

Each message is one sentence for a person: what was expected, what came, and where.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

MAX_ERROR_CHARACTERS = 300  # of another library's message inside of ours
# codes that color text in a terminal; PyTorch writes them into some messages
TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class ExportError(Exception):
    """Base of all errors that the command line shows as one sentence, without a traceback."""

    # exit status of the command: 1 means that the job failed, 2 that the command was used wrongly
    exit_status = 1


class UsageError(ExportError, ValueError):
    """An option or argument makes no sense: the message names it, its value and the valid values."""

    exit_status = 2


class SourceError(ExportError):
    """The source, or something that came with it, cannot be read or does not fit."""


class SourceOptionError(SourceError):
    """The value of an option cannot be read or does not fit. The message begins with the option."""

    exit_status = 2


class RefusedError(ExportError):
    """An untrusted file wants code run, other files read, or far more memory than a row of data needs."""


class UntraceableError(ExportError):
    """No graph represents the module for every input. The message names the place and a remedy."""


class GateCountError(ExportError):
    """The graph has another number of gates than `--expect-gates` says, so nothing was written."""


class ParityError(ExportError):
    """The exported graph and the network differ, so nothing was written.

    `table` lists the errors of each tensor as text; empty where the failure has no figures.
    """

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(message)
        self.table = table


class PrecisionError(ExportError):
    """A lower-precision variant agrees with fp32 too rarely, so nothing was written."""


class CompressionError(ExportError):
    """No unit can be removed, a limit cannot be kept, or the smaller graph is slower; nothing was written."""


def one_line(error: BaseException, limit: int = MAX_ERROR_CHARACTERS) -> str:
    """The message of an exception in one line without colors; the exception's type if it has no message."""
    words = TERMINAL_CODES.sub("", str(error)).split()
    return " ".join(words)[:limit].rstrip(" :") or type(error).__name__


def error_with_type(error: BaseException) -> str:
    """The type of an exception, and its message in one line if it has one."""
    kind, text = type(error).__name__, one_line(error)
    return kind if text == kind else f"{kind}: {text}"


@contextmanager
def errors_of_option(option: str) -> Iterator[None]:
    """Begin the errors of the block with an option, such as --data, whose value they are about."""
    try:
        yield
    except SourceError as error:
        raise SourceOptionError(f"{option}: {error}") from error
    except RefusedError as error:
        raise RefusedError(f"{option}: {error}") from error
