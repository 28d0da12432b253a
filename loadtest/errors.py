"""What can go wrong, as a tree.

LoadTestError
├── UsageError      what was asked for cannot be done: exit status 2
└── TargetError     the server is not there, or is not what was expected: exit status 1
"""

from __future__ import annotations


class LoadTestError(Exception):
    """Anything that ends a load test with one sentence."""

    exit_status = 1


class UsageError(LoadTestError):
    """An option, or a combination of options, that makes no sense."""

    exit_status = 2


class TargetError(LoadTestError):
    """The server cannot be reached, has no such model, or gives answers that no load can be built on."""
