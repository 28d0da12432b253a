"""Whether answers are right: each is held against the one that its request got while nothing else ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadtest.errors import TargetError
from loadtest.plan import Plan
from loadtest.workload.answer_decoding import LENGTH, Answer, AnswerError, decode
from loadtest.workload.http_client import Reply
from loadtest.workload.payloads import Body
from loadtest.workload.target import Target
from loadtest.workload.tensors import Array, Tensor


@dataclass(frozen=True, slots=True)
class Reference:
    """The right answer to one request."""

    data: bytes
    length: str | None  # of the JSON before binary data, as its header says
    answer: Answer


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with an answer: in few words that many answers share, and in full."""

    words: str
    detail: str


class Judge:
    """Knows the right answers of a load's requests; `first_wrong` tells of the first that was none."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self._target, self._tolerance = target, plan.tolerance
        self._outputs = {tensor.name: tensor for tensor in target.outputs}
        self._references: dict[Body, Reference] = {}
        self.first_wrong: str | None = None

    def learn(self, body: Body, reply: Reply) -> None:
        """Take this as the right answer; a TargetError where it can be none."""
        if reply.status != 200:
            raise TargetError(f"{body.kind}: expected an answer to hold others against, got {reply.reason}")
        try:
            answer = decode(body.wire, reply.headers, reply.body)
        except AnswerError as error:
            raise TargetError(
                f"{body.kind}: expected an answer to hold others against, got {error}"
            ) from error
        if body.wire == "binary" and LENGTH not in reply.headers:
            raise TargetError(f"{body.kind}: expected an answer in the binary form, got one in JSON")
        absent = [] if body.wire == "v1" else [name for name in self._outputs if name not in answer.arrays]
        if absent:
            raise TargetError(f"{body.kind}: expected output {absent[0]!r}, which the answer lacks")
        if flaw := self._flaw_alone(body, answer):
            raise TargetError(f"{body.kind}: {flaw.detail}")
        self._references[body] = Reference(reply.body, reply.headers.get(LENGTH), answer)

    def fault(self, body: Body, status: int, headers: Mapping[str, str], data: bytes) -> str | None:
        """Why an answer is not good, in words that are few enough to count by; None where it is."""
        if status != 200:
            return str(status)
        reference = self._references[body]
        if data == reference.data and headers.get(LENGTH) == reference.length:
            return None
        try:
            flaw = self._flaw(body, decode(body.wire, headers, data), reference.answer)
        except AnswerError as error:
            flaw = Flaw(str(error), f"expected an answer of this wire, got {error}")
        if flaw is None:
            return None
        if self.first_wrong is None:
            self.first_wrong = f"{body.kind}: {flaw.detail}"
        return f"wrong: {flaw.words}"

    @property
    def alike(self) -> tuple[str, ...]:
        """Kinds of which all requests have the same answer, so that one mistaken for another is not seen."""
        kinds: dict[str, list[Answer]] = {}
        for body, reference in self._references.items():
            kinds.setdefault(body.kind, []).append(reference.answer)
        return tuple(
            kind
            for kind, (first, *others) in kinds.items()
            if others and not any(self._flaw_beside(other, first) for other in others)
        )

    def _flaw(self, body: Body, answer: Answer, reference: Answer) -> Flaw | None:
        if answer.model != reference.model:
            return Flaw("model", f"expected an answer of {reference.model!r}, got one of {answer.model!r}")
        if odd := answer.datatypes.keys() ^ reference.datatypes.keys():
            wanted = ", ".join(map(repr, reference.datatypes))
            return Flaw("outputs", f"expected {wanted}, and {min(odd)!r} is what differs")
        for name, datatype in reference.datatypes.items():
            if (got := answer.datatypes[name]) != datatype:
                return Flaw(f"datatype of {name}", f"{name!r}: expected {datatype}, got {got}")
        if flaw := self._flaw_alone(body, answer):
            return flaw
        # another version may well answer otherwise
        return self._flaw_beside(answer, reference) if answer.version == reference.version else None

    def _flaw_alone(self, body: Body, answer: Answer) -> Flaw | None:
        """What can be said of an answer without another."""
        pinned = self._target.version if self._target.pinned else answer.version
        if answer.version not in (None, pinned):
            return Flaw("version", f"expected an answer of version {pinned}, got one of {answer.version}")
        for name, array in answer.arrays.items():
            expected = self._expected(body, name)
            if expected and not expected.fits(array.shape, body.rows):
                told = [body.rows, *expected.shape[1:]] if expected.by_row else list(expected.shape)
                return _shape(name, told, array)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return Flaw(f"{name} is not finite", f"{name!r}: expected finite numbers, got NaN or Inf")
        return None

    def _expected(self, body: Body, name: str) -> Tensor | None:
        """What the metadata says of an array of an answer."""
        if body.wire == "v1":
            return Tensor(name, "FP64", (-1, -1)) if name == "prediction" else None
        return self._outputs.get(name.removeprefix("lesioned "))

    def _flaw_beside(self, answer: Answer, reference: Answer) -> Flaw | None:
        """What sets an answer apart from the one that it should be."""
        if odd := answer.arrays.keys() ^ reference.arrays.keys():
            return Flaw(
                "outputs", f"expected {', '.join(reference.arrays)}, and {min(odd)!r} is what differs"
            )
        moved = False
        for name, array in answer.arrays.items():
            wanted = reference.arrays[name]
            if array.shape != wanted.shape:
                return _shape(name, list(wanted.shape), array)
            if array.dtype.kind == "O":
                continue
            same = array == wanted
            moved = moved or not same.all()
            if not (same | self._near(array, wanted)).all():
                return self._differs(name, array, wanted)
        for name, array in answer.arrays.items():
            # a text follows from numbers: of two classes that are as good, rounding may choose the other
            if array.dtype.kind == "O" and not moved and (array != reference.arrays[name]).any():
                return self._differs(name, array, reference.arrays[name])
        return None

    def _near(self, array: Array, wanted: Array) -> Any:
        """Where numbers lie within the tolerance; whole ones never do."""
        if array.dtype.kind != "f":
            return np.False_
        right = wanted.astype(np.float64)
        with np.errstate(over="ignore"):
            return np.abs(array - right) <= self._tolerance * (1 + np.abs(right))

    def _differs(self, name: str, array: Array, wanted: Array) -> Flaw:
        apart = (array != wanted) & ~self._near(array, wanted)
        place = tuple(int(index) for index in np.argwhere(apart)[0])
        number = array.dtype.kind == "f"
        expected, got = (f"{each[place]:.9g}" if number else str(each[place]) for each in (wanted, array))
        if number:
            expected += f" within {self._tolerance:g}"
        return Flaw(
            f"{name} differs from the reference answer",
            f"{name!r} at {list(place)}: expected {expected}, got {got}",
        )


def _shape(name: str, expected: list[int], array: Array) -> Flaw:
    return Flaw(f"shape of {name}", f"{name!r}: expected shape {expected}, got {list(array.shape)}")
