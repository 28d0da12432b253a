"""Checks answers under load against the reference answer, which the same request got before the load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnpike.loadtest.errors import TargetError
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.answer_decoding import LENGTH_HEADER, AnswerError, DecodedAnswer, decode
from turnpike.loadtest.workload.http_client import Reply
from turnpike.loadtest.workload.payloads import Payload
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import Array, TensorSpec

# beginning of the fault of an answer that arrived but is wrong
WRONG_PREFIX = "wrong: "


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """The reference answer to one payload."""

    data: bytes
    length: str | None  # header with the length of the JSON before binary data
    answer: DecodedAnswer


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What is wrong with an answer: a label that many answers share, for counting, and the full detail."""

    label: str
    detail: str


class AnswerChecker:
    """Holds the reference answers of all payloads; `first_wrong` describes the first wrong answer."""

    def __init__(self, target: Target, plan: LoadPlan) -> None:
        self._target, self._tolerance = target, plan.tolerance
        self._outputs = {spec.name: spec for spec in target.outputs}
        self._references: dict[Payload, ReferenceAnswer] = {}
        self.first_wrong: str | None = None

    def learn(self, payload: Payload, reply: Reply) -> None:
        """Take a reply as the reference answer of a payload; a TargetError if it is not valid."""
        kind = payload.kind
        if reply.status != 200:
            raise TargetError(f"{kind}: expected a reference answer, got {reply.reason}")
        try:
            answer = decode(payload.wire, reply.headers, reply.body)
        except AnswerError as error:
            raise TargetError(f"{kind}: expected a reference answer, got {error}") from error
        if payload.wire == "binary" and LENGTH_HEADER not in reply.headers:
            raise TargetError(f"{kind}: expected an answer with binary tensors, got one in JSON")
        missing = (
            [] if payload.wire == "v1" else [name for name in self._outputs if name not in answer.arrays]
        )
        if missing:
            raise TargetError(f"{kind}: expected output {missing[0]!r}, which the answer lacks")
        if mismatch := self._check_alone(payload, answer):
            raise TargetError(f"{kind}: {mismatch.detail}")
        self._references[payload] = ReferenceAnswer(reply.body, reply.headers.get(LENGTH_HEADER), answer)

    def check(self, payload: Payload, status: int, headers: Mapping[str, str], data: bytes) -> str | None:
        """Check an answer: returns None if it is good, else the fault as a short text to count by.

        Args:
            payload: The request.
            status: HTTP status of the answer.
            headers: Names in lower case.
            data: The body.
        """
        if status != 200:
            return str(status)
        reference = self._references[payload]
        # most answers are equal byte for byte
        if data == reference.data and headers.get(LENGTH_HEADER) == reference.length:
            return None
        try:
            mismatch = self._check_decoded(payload, decode(payload.wire, headers, data), reference.answer)
        except AnswerError as error:
            mismatch = Mismatch(str(error), f"expected an answer in the format of this wire, got {error}")
        if mismatch is None:
            return None
        if self.first_wrong is None:
            self.first_wrong = f"{payload.kind}: {mismatch.detail}"
        return f"{WRONG_PREFIX}{mismatch.label}"

    @property
    def kinds_with_equal_answers(self) -> tuple[str, ...]:
        """Kinds of requests that all have the same answer, so an answer to the wrong request looks right."""
        kinds: dict[str, list[DecodedAnswer]] = {}
        for payload, reference in self._references.items():
            kinds.setdefault(payload.kind, []).append(reference.answer)
        return tuple(
            kind
            for kind, (first, *others) in kinds.items()
            if others and not any(self._compare(other, first) for other in others)
        )

    def _check_decoded(
        self, payload: Payload, answer: DecodedAnswer, reference: DecodedAnswer
    ) -> Mismatch | None:
        # model, outputs and datatypes
        if answer.model != reference.model:
            return Mismatch(
                "model", f"expected an answer of {reference.model!r}, got one of {answer.model!r}"
            )
        if differing := answer.datatypes.keys() ^ reference.datatypes.keys():
            return _other_outputs(", ".join(map(repr, reference.datatypes)), min(differing))
        for name, datatype in reference.datatypes.items():
            if (got := answer.datatypes[name]) != datatype:
                return Mismatch(f"datatype of {name}", f"{name!r}: expected {datatype}, got {got}")
        # shapes and finite numbers
        if mismatch := self._check_alone(payload, answer):
            return mismatch
        # values; another version of the model may give other values
        return self._compare(answer, reference) if answer.version == reference.version else None

    def _check_alone(self, payload: Payload, answer: DecodedAnswer) -> Mismatch | None:
        """Check version, shapes and finiteness, which needs no reference."""
        version = self._target.version if self._target.pinned else answer.version
        if answer.version not in (None, version):
            return Mismatch(
                "version", f"expected an answer of version {version}, got one of {answer.version}"
            )
        for name, array in answer.arrays.items():
            spec = self._spec(payload, name)
            if spec and not spec.fits(array.shape, payload.rows):
                expected = [payload.rows, *spec.shape[1:]] if spec.by_row else list(spec.shape)
                return _shape_mismatch(name, expected, array)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return Mismatch(f"{name} is not finite", f"{name!r}: expected finite numbers, got NaN or Inf")
        return None

    def _spec(self, payload: Payload, name: str) -> TensorSpec | None:
        """What the metadata says about an array of an answer."""
        if payload.wire == "v1":
            return TensorSpec(name, "FP64", (-1, -1)) if name == "prediction" else None
        return self._outputs.get(name.removeprefix("lesioned "))

    def _compare(self, answer: DecodedAnswer, reference: DecodedAnswer) -> Mismatch | None:
        """The first difference between the values of two answers."""
        if differing := answer.arrays.keys() ^ reference.arrays.keys():
            return _other_outputs(", ".join(reference.arrays), min(differing))
        # numbers: equal within the tolerance
        all_equal = True
        for name, array in answer.arrays.items():
            expected = reference.arrays[name]
            if array.shape != expected.shape:
                return _shape_mismatch(name, list(expected.shape), array)
            if array.dtype.kind == "O":
                continue
            equal = array == expected
            all_equal = all_equal and bool(equal.all())
            if not (equal | self._within_tolerance(array, expected)).all():
                return self._value_mismatch(name, array, expected)
        # Texts: equal, if all numbers are. A label depends on numbers, and if two classes score almost the
        # same, rounding may choose the other.
        for name, array in answer.arrays.items():
            if array.dtype.kind == "O" and all_equal and (array != reference.arrays[name]).any():
                return self._value_mismatch(name, array, reference.arrays[name])
        return None

    def _within_tolerance(self, array: Array, expected: Array) -> Any:
        """Which numbers are within the tolerance; whole numbers must be equal, so none of them."""
        if array.dtype.kind != "f":
            return np.False_
        right = expected.astype(np.float64)
        with np.errstate(over="ignore"):
            return np.abs(array - right) <= self._tolerance * (1 + np.abs(right))

    def _value_mismatch(self, name: str, array: Array, expected: Array) -> Mismatch:
        wrong = (array != expected) & ~self._within_tolerance(array, expected)
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        is_float = array.dtype.kind == "f"
        expected_text, got = (
            f"{values[place]:.9g}" if is_float else str(values[place]) for values in (expected, array)
        )
        if is_float:
            expected_text += f" within {self._tolerance:g}"
        return Mismatch(
            f"{name} differs from the reference answer",
            f"{name!r} at {list(place)}: expected {expected_text}, got {got}",
        )


def _other_outputs(expected: str, differing: str) -> Mismatch:
    return Mismatch("outputs", f"expected the outputs {expected}, got others: {differing!r} differs")


def _shape_mismatch(name: str, expected: list[int], array: Array) -> Mismatch:
    return Mismatch(f"shape of {name}", f"{name!r}: expected shape {expected}, got {list(array.shape)}")
