"""What a request asks for, decoded and validated, and what it gets."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Parameter = str | int | float | bool


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that was asked for, and how: as binary, or as its `classes` best classes unless that is 0."""

    name: str
    binary: bool = False
    classes: int = 0


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A request that fits the model: every input there, in its dtype and a shape it takes.

    `rows` is the length of the batch axis, 1 for a model without one. `outputs` are never empty.
    """

    feeds: Mapping[str, Array]
    rows: int
    outputs: tuple[RequestedOutput, ...]
    id: str | None = None
    # microseconds, as the client gave them
    timeout_us: int | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple([wanted.name for wanted in self.outputs])


class OutputReader(Protocol):
    """Makes something of outputs, for all requests of a run together."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs that it reads."""

    def read(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
        """What it makes of each of several requests of so many rows, which lie one after the other."""


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """The arrays of one request, in the order it named them, and what they took in nanoseconds.

    `batch` is how many rows ran together, `reading` what a reader made of the request's rows.
    """

    arrays: tuple[Array, ...]
    queue_ns: int = 0
    run_ns: int = 0
    batch_rows: int = 0
    reader_result: Any = None


class Waiter(Protocol):
    """What a caller awaits; every future of asyncio is one."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until it is done."""

    def done(self) -> bool:
        """Whether there is a result, or nobody waits for one any more."""

    def set_result(self, result: None, /) -> None:
        """Let who waits go on."""
