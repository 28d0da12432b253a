"""Decodes ModelInferRequest messages, and remembers the forms of earlier ones.

A message is split into its form (names, shapes, datatypes, outputs) and the raw bytes of its tensors. Clients
repeat the same form, which is decoded once and kept, as `service.codec.infer_request_cache` does for HTTP.
Decoding takes 3 µs then. Every message that is new or wrong goes to `decode_message`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.grpc.messages.descriptors import parse
from turnpike.service.grpc.messages.infer_request import InferRequest, decode_message
from turnpike.service.inference_types import Array, InferenceRequest, RequestForm

# more than the forms of requests that are in use at any one time
MAX_TEMPLATES = 512
# bytes of a form; with MAX_TEMPLATES, this bounds the keys of the cache to a megabyte
MAX_TEMPLATE_BYTES = 2048
# first bytes of two fields of a ModelInferRequest: the number of the field times 8, plus 2 for bytes
ID, RAW_INPUTS = 3 * 8 + 2, 7 * 8 + 2


class SplitMessage(NamedTuple):
    """A message, split into its form and its tensors.

    `form` is the message without its id and its raw tensors, and `raw` has these, as views of the message. If
    it cannot be split, `form` is None.
    """

    data: bytes
    model_name: str
    model_version: str | None
    id: bytes
    form: bytes | None
    raw: tuple[memoryview, ...] = ()


def _split(data: bytes) -> tuple[bytes, bytes, tuple[memoryview, ...]] | None:
    """Split a message into its form, its id and its raw tensors.

    None if the raw tensors are not its last fields, or it has a field that is unknown.
    """
    position, end = 0, len(data)
    form_end = 0
    id_start = id_end = 0
    request_id = b""
    raw: list[memoryview] = []
    view = memoryview(data)
    while position < end:
        tag = data[position]
        start = position
        position += 1
        if tag & 7 != 2 or tag > RAW_INPUTS:
            return None
        # the length, an integer of 7 bits in each byte
        size = shift = 0
        while True:
            if position >= end or shift > 28:
                return None
            byte = data[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        stop = position + size
        if stop > end:
            return None
        if tag == RAW_INPUTS:
            raw.append(view[position:stop])
        elif raw:
            return None
        else:
            form_end = stop
            if tag == ID:
                # the last one counts, and those before stay in the form
                id_start, id_end, request_id = start, stop, data[position:stop]
        position = stop
    form = data[:form_end] if not id_end else data[:id_start] + data[id_end:form_end]
    return form, request_id, tuple(raw)


class TensorSlot(NamedTuple):
    """Name, shape and dtype of a tensor whose bytes change from request to request."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    size: int


class Template(NamedTuple):
    """The form of a request, and the slots for its tensors in the order of the message."""

    form: RequestForm
    slots: tuple[TensorSlot, ...]


class InferMessageDecoder:
    """Decodes the ModelInferRequest messages of all models.

    `check` raises a RequestError for a decoded request that is refused. It may depend only on names and
    shapes, since it is not called again for requests that differ only in their numbers.
    """

    def __init__(self, limits: RequestLimits, check: Callable[[InferenceRequest, Signature], None]) -> None:
        self._limits = limits
        self._check = check
        # the name and version of the model, by the form
        self._models: BoundedCache[bytes, tuple[str, str | None]] = BoundedCache(MAX_TEMPLATES)
        # by the serial number of the loaded model, and the form
        self._templates: BoundedCache[tuple[int, bytes], Template] = BoundedCache(MAX_TEMPLATES)

    def split(self, data: bytes) -> SplitMessage:
        """Split a message, and read which model it names. Raises RequestError if it is no valid message."""
        parts = _split(data)
        if parts is None:
            message = parse(InferRequest, data)
            return SplitMessage(data, *_model_of(message), message.id.encode(), None)
        form, request_id, raw = parts
        if not request_id.isascii():
            # raises the error for text that is not UTF-8
            parse(InferRequest, data)
        model = self._models.get(form)
        if model is None:
            model = _model_of(parse(InferRequest, form))
            # the form of typed tensors has their numbers, so it is seldom repeated
            if raw and len(form) <= MAX_TEMPLATE_BYTES:
                self._models.add(form, model)
        return SplitMessage(data, *model, request_id, form, raw)

    def decode(self, message: SplitMessage, signature: Signature, serial: int) -> InferenceRequest:
        """Decode a message for the loaded model with this signature and serial number."""
        if message.form is None:
            return self._decode_uncached(message, signature)
        template = self._templates.get((serial, message.form))
        if template is not None and len(template.slots) == len(message.raw):
            feeds: dict[str, Array] = {}
            for slot, raw in zip(template.slots, message.raw, strict=True):
                if len(raw) != slot.size:
                    break
                array: Array = np.frombuffer(raw, slot.dtype).reshape(slot.shape)
                # kernels may rely on aligned memory, and the tensor can begin at any byte of the message
                feeds[slot.name] = array if array.flags.aligned else array.copy()
            else:
                return InferenceRequest(template.form, feeds)

        # Remember the form if all tensors are raw numbers. The bytes of booleans need checking, and ids of
        # texts are not in the message.
        request = self._decode_uncached(message, signature)
        arrays = request.feeds
        if (
            message.raw
            and not request.form.has_texts
            and len(message.form) <= MAX_TEMPLATE_BYTES
            and all(array.dtype.kind in "fiu" and array.size for array in arrays.values())
        ):
            slots = [
                TensorSlot(name, array.shape, array.dtype, array.nbytes) for name, array in arrays.items()
            ]
            self._templates.add((serial, message.form), Template(request.form, tuple(slots)))
        return request

    def _decode_uncached(self, message: SplitMessage, signature: Signature) -> InferenceRequest:
        request = decode_message(parse(InferRequest, message.data), signature, self._limits)
        self._check(request, signature)
        return request


def _model_of(message: Any) -> tuple[str, str | None]:
    return message.model_name, message.model_version or None
