"""Keeps the errors that the service logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


class ErrorLog(logging.Handler):
    """The messages that are logged as errors: each of them is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


@contextlib.contextmanager
def errors_of(logger: str, log: ErrorLog) -> Iterator[None]:
    """Add the errors of a logger to a log."""
    logging.getLogger(logger).addHandler(log)
    try:
        yield
    finally:
        logging.getLogger(logger).removeHandler(log)
