"""What one request asks of a model, in one run or several, and the answer put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter_ns

from service.api.inference import answer
from service.http.request_context import Course
from service.inference_types import Answer, Array, Inference, Reader
from service.protocol.infer_response import encode
from service.registry.model import Model

# a body, and how many bytes of it are JSON where tensors follow that
Content = tuple[bytes, int | None]


@dataclass(slots=True)
class Inquiry:
    """A request that was decoded; `first` is what its first run gave, `ran` when its last ended."""

    model: Model
    inference: Inference
    until: float
    course: Course
    first: Answer | None = None
    ran: int = 0

    async def run(
        self,
        names: tuple[str, ...],
        moved: Mapping[str, Array] | None = None,
        *,
        alone: bool = False,
        reader: Reader | None = None,
    ) -> Answer:
        """The outputs named on the caller's rows, and what a reader makes of others.

        `moved` is fed beside the rows, and such a run is its own.
        """
        inference = self.inference
        if moved:
            inference = replace(inference, feeds={**inference.feeds, **moved})
        future = self.course.future()
        given = await answer(
            self.model, inference, names, self.until, alone=alone, future=future, reader=reader
        )
        self.ran = perf_counter_ns()
        if self.first is None:
            self.first = given
            self.course.ran(self.model, given)
        return given

    async def by_name(
        self, names: tuple[str, ...], moved: Mapping[str, Array] | None = None, *, alone: bool = False
    ) -> dict[str, Array]:
        """The same as a dict."""
        return dict(zip(names, (await self.run(names, moved, alone=alone)).arrays, strict=True))

    def as_infer(self, arrays: Mapping[str, Array]) -> Content:
        """What infer would answer with these arrays."""
        model, inference = self.model, self.inference
        answered = Answer(tuple(arrays[name] for name in inference.names))
        return encode(model.name, model.version, inference, answered, model.labels)


def joined(first: Content, second: Content) -> Content:
    """One answer of two: the JSON objects made one, and the tensors' bytes one after the other."""
    text, more = first[0][: first[1]], second[0][: second[1]]
    whole = text[:-1] + b"," + more[1:]
    if first[1] is second[1] is None:
        return whole, None
    return b"".join((whole, first[0][len(text) :], second[0][len(more) :])), len(whole)


def nested(name: str, content: Content) -> Content:
    """An answer as the one value of an object."""
    text = content[0][: content[1]]
    whole = b'{"%s":%s}' % (name.encode(), text)
    return whole + content[0][len(text) :], None if content[1] is None else len(whole)
