"""All errors of a tuning search.

TuneError
├── UsageError             invalid options: exit status 2
├── ServeError             a server could not be started or loaded: exit status 1
├── LowerPrecisionError    a lower precision could not be made: reported, and left out of the comparison
└── StoppedError           the user stopped the search: exit status 130
"""

from __future__ import annotations


class TuneError(Exception):
    """Base of all errors that end a search; the message is one sentence for the user."""

    exit_status = 1


class UsageError(TuneError):
    """An invalid option."""

    exit_status = 2


class ServeError(TuneError):
    """`turnpike serve` or the load failed; the message quotes its error."""


class LowerPrecisionError(TuneError):
    """`turnpike export` could not make a lower precision; the message quotes its error."""


class StoppedError(TuneError):
    """Ctrl-C, SIGTERM, or the terminal was closed."""

    exit_status = 130
