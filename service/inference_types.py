"""Types of an inference request and its result, used by every layer of the service."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Parameter = str | int | float | bool


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that a request names, and its form: binary or JSON, values or the best classes.

    `classes` is how many of the best classes to return in place of the values; 0 returns the values.
    """

    name: str
    binary: bool = False
    classes: int = 0


# shape of one row and dtype of each input
RowShapes = tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]


@dataclass(frozen=True, slots=True)
class FeedLayout:
    """The shapes of feeds: requests with equal `row_shapes` can share a run.

    `rows` is the length of all feeds along axis 0, None if they have no common one. `size` is the number of
    values in all feeds.
    """

    rows: int | None
    size: int
    row_shapes: RowShapes

    @classmethod
    def of(cls, feeds: Mapping[str, Array]) -> FeedLayout:
        lengths: set[int | None] = set()
        size = 0
        row_shapes = []
        for name in sorted(feeds):
            array = feeds[name]
            shape = array.shape
            lengths.add(shape[0] if shape else None)
            size += array.size
            row_shapes.append((name, shape[1:], array.dtype))
        return cls(lengths.pop() if len(lengths) == 1 else None, size, tuple(row_shapes))


Feeds = Mapping[str, Array]


# Not frozen: creating a frozen object takes 0.5 µs more. Treat it as frozen: only `plan` is set later, once.
@dataclass(slots=True, eq=False)
class RequestForm:
    """A validated request without its numbers: requests that differ only in their numbers share one form.

    Every input of the model is present, with its dtype and a shape that it accepts. `rows` is the length of
    the batch axis, 1 for a model without one. `outputs` is never empty. `layout` is that of the feeds.
    `has_texts` is True if an input was sent as texts, so that its ids are not in the body.
    """

    rows: int
    outputs: tuple[RequestedOutput, ...]
    layout: FeedLayout
    id: str | None = None
    # microseconds that the client is willing to wait for the run to begin
    timeout_us: int | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    has_texts: bool = False
    # how the endpoint runs requests of this form, once it has run one
    plan: RunPlan | None = None

    def __post_init__(self) -> None:
        if not self.output_names:
            self.output_names = tuple([output.name for output in self.outputs])


class InputWarnings(Protocol):
    """Warnings about the values of a request."""

    def listed(self) -> Mapping[str, Any]:
        """The members of an answer that have them."""

    def counts(self) -> Mapping[str, int]:
        """Their number by kind."""


@dataclass(slots=True, eq=False)
class InferenceRequest:
    """A validated request: its form and its numbers.

    `others` are the columns of a table that the model does not read, by their names. `warnings` are about
    cells that the model's training did not have.
    """

    form: RequestForm
    feeds: Feeds
    others: Mapping[str, Sequence[str]] | None = None
    warnings: InputWarnings | None = None

    def with_binary_outputs(self, parameters: Mapping[str, Any] | None = None) -> InferenceRequest:
        """The same request with all outputs as bytes; `parameters` replace its own.

        Its form is a new one: the other has a plan for other answers.
        """
        outputs = tuple([replace(output, binary=True) for output in self.form.outputs])
        if parameters is None:
            parameters = self.form.parameters
        form = replace(self.form, outputs=outputs, parameters=parameters, plan=None)
        return InferenceRequest(form, self.feeds)


# compared by identity: most requests of a run have the same plan
@dataclass(frozen=True, slots=True, eq=False)
class RunPlan:
    """What requests of one form have in common for their runs.

    `row_shapes` tells which requests can share a run: those for which it is equal. None means that a request
    must run by itself. `size` is the number of values in the feeds, times the number of needed outputs; it
    stands for the cost of the run.
    """

    rows: int
    size: int
    row_shapes: RowShapes | None
    # the outputs that the caller gets as arrays, in this order
    output_names: tuple[str, ...]
    # those that the run must compute, each once: the outputs above, and those that the processor reads
    needed_names: tuple[str, ...]
    # called for all requests of a run with this plan
    processor: OutputProcessor | None = None


class OutputProcessor(Protocol):
    """Computes one result for each request of a run, such as its encoded answer, in a single call."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs that `process` needs."""

    def process(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
        """Return one result for each of `requests` requests, each of `rows` rows, stacked in order."""


@dataclass(slots=True)
class InferenceResult:
    """The arrays of one request, in the order in which it named the outputs, and the time they took.

    `batch_rows` is the number of rows in the run, those of other requests included; `processed` is what
    the request's OutputProcessor returned, and `processing_ns` the request's share of the time for it.
    """

    arrays: tuple[Array, ...]
    queue_ns: int = 0
    run_ns: int = 0
    batch_rows: int = 0
    processed: Any = None
    processing_ns: int = 0


# a tuple: creating a frozen object takes longer
class InferAnswer(NamedTuple):
    """The outputs that a request asked for: a value, which JSON, bytes and protobuf each encode once."""

    model_name: str
    model_version: int
    form: RequestForm
    # those of `form.outputs`, in their order
    arrays: Sequence[Array]
    # the model's class labels
    labels: Sequence[str] = ()


class Waiter(Protocol):
    """What a request awaits until its run has ended; every future of asyncio is one."""

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until it is done."""

    def done(self) -> bool:
        """Whether there is a result, or the caller has gone."""

    def set_result(self, result: None, /) -> None:
        """Wake the caller."""
