"""What keeps a benchmark from being measured.

BenchmarkError     one sentence: what was expected, what came, and where
  SilentError      a server does not answer, or not with 200
"""

from __future__ import annotations


class BenchmarkError(Exception):
    """Nothing was measured, or not all of it."""


class SilentError(BenchmarkError):
    """It may still be starting."""
