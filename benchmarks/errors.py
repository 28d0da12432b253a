"""Errors of the benchmarks.

BenchmarkError           a benchmark cannot run or gave no result; the message is one sentence
  FailedRequestError     a server did not answer a request, or answered it with an error status
"""

from __future__ import annotations


class BenchmarkError(Exception):
    """A benchmark cannot run, or a part of it gave no result."""


class FailedRequestError(BenchmarkError):
    """A server did not answer, or with an error status; while it starts, this is expected."""
