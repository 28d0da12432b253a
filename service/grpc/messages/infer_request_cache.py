"""Decodes ModelInferRequest messages, and remembers the forms of earlier ones.

A message is split into its form (names, shapes, datatypes, outputs) and the raw bytes of its tensors. Clients
repeat the same form, whose template is kept; decoding takes 3 µs then. Every message that is new or wrong
goes to `decode_message`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.codec.request_templates import (
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATES,
    RequestCheck,
    TemplateCache,
)
from turnpike.service.grpc.messages.descriptors import parse
from turnpike.service.grpc.messages.infer_request import InferRequest, decode_message
from turnpike.service.inference_types import InferenceRequest

# first bytes of two fields of a ModelInferRequest: the number of the field times 8, plus 2 for bytes
ID, RAW_INPUTS = 3 * 8 + 2, 7 * 8 + 2


class SplitMessage(NamedTuple):
    """A message, split into its form and its tensors.

    `form` is the message without its id and its raw tensors, or None if it cannot be split. `starts` and
    `sizes` say where in `data` the raw tensors are.
    """

    data: bytes
    model_name: str
    model_version: str | None
    id: bytes
    form: bytes | None
    starts: Sequence[int] = ()
    sizes: Sequence[int] = ()


def _split(data: bytes) -> tuple[bytes, bytes, list[int], list[int]] | None:
    """Split a message into its form, its id, and the places and sizes of its raw tensors.

    None if the raw tensors are not its last fields, or it has a field that is unknown.
    """
    position, end = 0, len(data)
    form_end = 0
    id_start = id_end = 0
    request_id = b""
    starts: list[int] = []
    sizes: list[int] = []
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
            starts.append(position)
            sizes.append(size)
        elif starts:
            return None
        else:
            form_end = stop
            if tag == ID:
                # the last one counts, and those before stay in the form
                id_start, id_end, request_id = start, stop, data[position:stop]
        position = stop
    form = data[:form_end] if not id_end else data[:id_start] + data[id_end:form_end]
    return form, request_id, starts, sizes


class InferMessageDecoder:
    """Decodes the ModelInferRequest messages of all models."""

    def __init__(self, limits: RequestLimits, check: RequestCheck) -> None:
        self._limits = limits
        self._check = check
        # the name and version of the model, by the form
        self._models: BoundedCache[bytes, tuple[str, str | None]] = BoundedCache(MAX_TEMPLATES)
        # by the serial number of the loaded model, and the form
        self._templates: TemplateCache[tuple[int, bytes]] = TemplateCache()

    def split(self, data: bytes) -> SplitMessage:
        """Split a message, and read which model it names. Raises RequestError if it is no valid message."""
        parts = _split(data)
        if parts is None:
            message = parse(InferRequest, data)
            return SplitMessage(data, *_model_of(message), message.id.encode(), None)
        form, request_id, starts, sizes = parts
        if not request_id.isascii():
            # raises the error for text that is not UTF-8
            parse(InferRequest, data)
        model = self._models.get(form)
        if model is None:
            model = _model_of(parse(InferRequest, form))
            # the form of typed tensors has their numbers, so it is seldom repeated
            if starts and len(form) <= MAX_TEMPLATE_BYTES:
                self._models.add(form, model)
        return SplitMessage(data, *model, request_id, form, starts, sizes)

    def decode(self, message: SplitMessage, signature: Signature, serial: int) -> InferenceRequest:
        """Decode a message for the loaded model with this signature and serial number."""
        if message.form is None:
            return self._decode_uncached(message, signature)
        key = (serial, message.form)
        template = self._templates.get(key)
        if template is not None and template.sizes == message.sizes:
            return template.filled(message.data, message.starts)
        request = self._decode_uncached(message, signature)
        # without raw tensors, the numbers are in the form, which is then seldom repeated
        if message.starts and len(message.form) <= MAX_TEMPLATE_BYTES:
            self._templates.learn(key, request)
        return request

    def _decode_uncached(self, message: SplitMessage, signature: Signature) -> InferenceRequest:
        request = decode_message(parse(InferRequest, message.data), signature, self._limits)
        self._check(request, signature)
        return request


def _model_of(message: Any) -> tuple[str, str | None]:
    return message.model_name, message.model_version or None
