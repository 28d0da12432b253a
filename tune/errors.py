"""What can go wrong, as a tree.

TuneError
├── UsageError      what was asked for makes no sense: exit status 2
├── ServeError      a server of ours could not be started, or what it serves cannot be loaded: exit status 1
├── ExportError     a lower precision could not be made: told of, and left out
└── StoppedError    somebody wants it to end: exit status 130
"""

from __future__ import annotations


class TuneError(Exception):
    """Anything that ends a search with one sentence."""

    exit_status = 1


class UsageError(TuneError):
    """An option that makes no sense."""

    exit_status = 2


class ServeError(TuneError):
    """`turnpike serve` or `turnpike loadtest` did not do what it should, in its own words."""


class ExportError(TuneError):
    """`turnpike export` gave no file of a lower precision, in its own words."""


class StoppedError(TuneError):
    """Ctrl-C, SIGTERM or a terminal that was closed."""

    exit_status = 130
