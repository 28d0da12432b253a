"""All errors of the load test.

LoadTestError
├── UsageError      invalid options: exit status 2
└── TargetError     the server cannot be reached, or does not behave as expected: exit status 1
"""

from __future__ import annotations


class LoadTestError(Exception):
    """Base of all errors that end a load test; the message is one sentence for the user."""

    exit_status = 1


class UsageError(LoadTestError):
    """An invalid option, or an invalid combination of options."""

    exit_status = 2


class TargetError(LoadTestError):
    """The server cannot be reached, does not have the model, or gives answers that cannot be checked."""
