"""Infer requests decoded; what a client writes around its numbers is the same each time, and read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from simdjson import Parser

from service.artifact.limits import RequestLimits
from service.errors import RequestError
from service.inference_types import Array, InferenceRequest
from service.protocol.infer_request import decode_infer
from service.protocol.tensors import numbers, read_binary

if TYPE_CHECKING:
    from service.artifact.runtime import Signature

KEY = b'"data":'
# ways to write a request that are kept, more than are in use at any one time; and the longest such
MOST, LONGEST = 512, 2048
# whose numbers they are, and what was before and after them; None where they followed as bytes
TemplateKey = tuple[str, bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Where a tensor's numbers go."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    size: int

    @classmethod
    def of(cls, name: str, array: Array) -> TensorSlot:
        return cls(name, array.shape, array.dtype, array.size)


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """What a request says but for its numbers: all of it without the feeds, and where these go, in order."""

    rest: InferenceRequest
    places: tuple[TensorSlot, ...]

    @classmethod
    def of(cls, inference: InferenceRequest) -> RequestTemplate:
        places = tuple(TensorSlot.of(name, array) for name, array in inference.feeds.items())
        return cls(replace(inference, feeds={}), places)

    def with_feeds(self, feeds: dict[str, Array]) -> InferenceRequest:
        rest = self.rest
        return InferenceRequest(feeds, rest.rows, rest.outputs, rest.id, rest.timeout_us, rest.parameters)


class CachingDecoder:
    """Decodes requests whose body may have keys of its own in `extra`; `decode.py` says what they may be.

    Words that are known mean what they meant before. Numbers between them that are not as plain as they
    were then are left to `decode`, as is all that is wrong, so that it alone says what.
    """

    def __init__(self, limits: RequestLimits, extra: frozenset[str] = frozenset()) -> None:
        self._limits = limits
        self._extra = extra
        self._known: dict[TemplateKey, RequestTemplate] = {}

    def decode(self, body: bytes, header: int | None, signature: Signature, digest: str) -> InferenceRequest:
        """The request that the body holds: `header` bytes of JSON, all of them for None."""
        if header is None:
            start = body.find(b"[", body.find(KEY))
            if start > 0:
                return self._from_json(body, start, signature, digest)
        elif 0 < header <= LONGEST:
            return self._from_bytes(body, header, signature, digest)
        return self._unknown(body, header, signature)

    def _from_json(self, body: bytes, start: int, signature: Signature, digest: str) -> InferenceRequest:
        """The array that starts there may hold the numbers."""
        stop = body.find(b"]", start) + 1
        if start + len(body) - stop > LONGEST:
            # such as rows that are nested, of which only the first was looked at
            return self._unknown(body, None, signature)
        before, after = body[:start], body[stop:]
        around = (digest, before, after)
        words = self._known.get(around)
        if words is not None:
            (place,) = words.places
            values = _plain(body[start:stop], place) if len(body) <= self._limits.max_json_bytes else None
            if values is not None:
                return words.with_feeds({place.name: values})
        inference = self._unknown(body, None, signature)
        # one array of numbers, under a key that stands there once
        if (
            before.endswith((KEY, KEY + b" "))
            and before.count(KEY[:-1]) + after.count(KEY[:-1]) == 1
            and b"\\" not in before + after
            and [array.dtype.kind in "fiu" for array in inference.feeds.values()] == [True]
            and body.find(b"[", start + 1, stop) < 0
        ):
            self._keep(around, inference)
        return inference

    def _from_bytes(self, body: bytes, header: int, signature: Signature, digest: str) -> InferenceRequest:
        """Tensors stand behind the JSON, one after the other."""
        around = (digest, body[:header], None)
        words = self._known.get(around)
        if words is not None:
            feeds, start = {}, header
            for place in words.places:
                size = place.size * place.dtype.itemsize
                if start + size > len(body):
                    break
                where = "parameters.binary_data_size"
                feeds[place.name] = read_binary(body, start, size, place.shape, place.dtype, where)
                start += size
            else:
                if start == len(body):
                    return words.with_feeds(feeds)
        inference = self._unknown(body, header, signature)
        arrays = inference.feeds.values()
        # bytes of truths may be wrong, and are looked through
        if sum([array.nbytes for array in arrays if array.dtype.kind != "b"]) == len(body) - header:
            self._keep(around, inference)
        return inference

    def _unknown(self, body: bytes, header: int | None, signature: Signature) -> InferenceRequest:
        return decode_infer(body, header, signature, self._limits, self._extra)

    def _keep(self, around: TemplateKey, inference: InferenceRequest) -> None:
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[around] = RequestTemplate.of(inference)


def _plain(text: bytes, place: TensorSlot) -> Array | None:
    """The numbers of one array in JSON; None where it is not the plain array that was expected.

    Its first closing bracket is its last, so no other array lies in it.
    """
    try:
        values = numbers(Parser().parse(text), place.dtype, "data")  # type: ignore[arg-type]
    except (RequestError, ValueError, RuntimeError):
        return None
    return values.reshape(place.shape) if values.size == place.size else None
