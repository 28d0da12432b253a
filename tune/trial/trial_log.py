"""The log of a search: keeps each trial on disk, so that the same command continues an ended search.

The first line of the file says what is measured, and each other line is a trial. The search asks for the same
trials in the same order as long as their figures are the same, so those of the log take their place. A server
that did not start is tried again, since the reason may be gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from turnpike.common.durable_files import write_texts
from turnpike.tune.errors import ServeError
from turnpike.tune.search.candidates import Candidate
from turnpike.tune.search.measurements import LoadFigures, Trial

LOG_FILE = "tuning.jsonl"


class TrialBench(Protocol):
    """Measures candidates."""

    def measure(self, candidate: Candidate, repository: Path | None = None) -> Trial:
        """Load a server with each number of users; raises a ServeError if the server does not start."""


class TrialLog:
    """The trials of one search, in the order in which they were measured.

    Args:
        folder: The folder of the results.
        subject: What is measured, and how: a log of another subject is begun anew.
    """

    def __init__(self, folder: Path, subject: Any) -> None:
        self._path = folder / LOG_FILE
        self._head = {"search": hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()}
        self._records = self._read()
        self._next = 0

    @property
    def known_trials(self) -> int:
        """How many trials an earlier search has left."""
        return len(self._records)

    def take(self, key: str) -> dict[str, Any] | None:
        """The record of the next trial; None from the first on that is missing or another one."""
        if self._next < len(self._records) and self._records[self._next]["trial"] == key:
            self._next += 1
            return self._records[self._next - 1]
        # if there are more, the search went another way
        del self._records[self._next :]
        return None

    def forget_last(self) -> None:
        """Forget the record that was taken last, and those after it."""
        self._next -= 1
        del self._records[self._next :]

    def add(self, record: dict[str, Any]) -> None:
        """Keep a trial that has just been measured."""
        self._records.append(record)
        self._next = len(self._records)
        text = "".join(json.dumps(line) + "\n" for line in (self._head, *self._records))
        write_texts({self._path: text})

    def _read(self) -> list[dict[str, Any]]:
        """The trials of an earlier search for the same."""
        records = []
        with suppress(OSError, ValueError, KeyError, TypeError), self._path.open(encoding="utf-8") as file:
            if json.loads(file.readline()) != self._head:
                return []
            for line in file:
                record = json.loads(line)
                _trial_of(record)
                records.append(record)
        return records


class LoggedBench:
    """Measures what the log does not have, and adds it to the log."""

    def __init__(self, bench: TrialBench, log: TrialLog) -> None:
        self._bench, self._log = bench, log

    def measure(self, candidate: Candidate, repository: Path | None = None) -> Trial:
        """The trial of the log, or a new one; raises a ServeError if the server does not start."""
        # the folder is temporary, and its name says the precision
        key = " ".join((*candidate.options, repository.name if repository is not None else ""))
        record = self._log.take(key)
        if record is not None and "error" not in record:
            return _trial_of(record)
        try:
            trial = self._bench.measure(candidate, repository)
        except ServeError as error:
            if record is None:
                self._log.add({"trial": key, "error": str(error)})
            raise
        if record is not None:
            self._log.forget_last()
        self._log.add({"trial": key, "loads": [asdict(load) for load in trial]})
        return trial


def _trial_of(record: dict[str, Any]) -> Trial:
    """The figures of a record; empty if the server did not start."""
    return tuple(_loads(record)) if "error" not in record else ()


def _loads(record: dict[str, Any]) -> Iterator[LoadFigures]:
    for load in record["loads"]:
        yield LoadFigures(**{**load, "failures": tuple(load["failures"]), "notes": tuple(load["notes"])})
