"""Errors of the benchmarks.

BenchmarkError           a benchmark cannot run or gave no result; the message is one sentence
  FailedRequestError     a server did not answer a request, or answered it with a status other than 200
"""

from __future__ import annotations


class BenchmarkError(Exception):
    """A benchmark cannot run, or a part of it gave no result."""


class FailedRequestError(BenchmarkError):
    """A server did not answer with 200; while it starts, this is expected."""
