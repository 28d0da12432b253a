"""A request as the batcher knows it, from its arrival until its caller has what came of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from service.errors import Broken, Expired
from service.inference_types import Answer, Array, Reader

Shapes = tuple[tuple[tuple[int, ...], np.dtype[np.generic]], ...]


class Pending(Protocol):
    """What a caller awaits; every future of asyncio is one."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until it is done."""

    def done(self) -> bool:
        """Whether there is a result, or nobody waits for one any more."""

    def set_result(self, result: None, /) -> None:
        """Let who waits go on."""


# a deque that has not what it is to remove writes it out, and numbers take 5 µs each
@dataclass(slots=True, eq=False, repr=False)
class Job:
    """Rows that wait for a run, and are then run."""

    feeds: Mapping[str, Array]
    rows: int
    names: tuple[str, ...]
    # what a row is like, by input: only rows that are alike run together. None: runs by itself
    shapes: Shapes | None
    deadline: float
    since: int
    # done when there is an outcome; cancelled when the caller has gone
    future: Pending
    size: int
    # reads outputs of its rows, in the run itself
    reader: Reader | None = None
    outcome: Answer | Exception | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The outputs that it names, and those that its reader reads."""
        return self.names if self.reader is None else self.names + self.reader.tensors

    def result(self) -> Answer:
        """The answer, or the error raised; given once."""
        outcome, self.outcome = self.outcome, None
        if isinstance(outcome, Answer):
            return outcome
        try:
            raise outcome or Broken("model: the run ended without an answer")
        finally:
            # the error holds this frame: held by it in turn, only the collector could free the two
            del outcome

    def expire(self) -> None:
        """Give it up: its deadline has passed."""
        if not self.future.done():
            self.outcome = Expired(
                "timeout: expected a run before the deadline, and the request was still waiting for one"
            )
            self.future.set_result(None)
