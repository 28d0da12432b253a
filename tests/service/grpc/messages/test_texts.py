"""Texts in messages: BYTES tensors, raw and typed, become the ids that JSON gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from service.grpc.messages.infer_request import InferMessages, InferRequest
from tests.support.infer_messages import LIMITS, decode, error_of
from tests.support.text_models import TEXTS, encoder

WORDS = ["AB", "C é", ""]


def texts_message(
    texts: Sequence[bytes], shape: Sequence[int] | None = None, *, typed: bool = False, **entry: Any
) -> Any:
    """A message with one tensor of texts."""
    message = InferRequest(model_name="m")
    fields = {"name": "ids", "datatype": "BYTES", "shape": shape or [len(texts)], **entry}
    tensor = message.inputs.add(**fields)
    if typed:
        tensor.contents.bytes_contents.extend(texts)
    else:
        raw = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        message.raw_input_contents.append(raw)
    return message


@pytest.mark.parametrize("shape", [[3], [3, 1]])
@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
def test_texts_become_ids(typed: bool, shape: list[int]) -> None:
    """Those that the encoder of the model gives; their memory is counted, as they are not in the message."""
    request = decode(texts_message([word.encode() for word in WORDS], shape, typed=typed), TEXTS)
    assert request.feeds["ids"].tolist() == encoder().encode(WORDS).tolist()
    assert request.form.rows == 3
    assert request.form.has_texts


def test_other_texts_in_the_same_form_are_converted_anew() -> None:
    """The cache of forms keeps no form of texts: their raw bytes are no array."""
    messages = InferMessages(LIMITS, lambda request, signature: None)
    for word in ("AB", "BA", "CC"):
        data = texts_message([word.encode()]).SerializeToString()
        request = messages.decode(messages.open(data), TEXTS, 1)
        assert request.feeds["ids"].tolist() == encoder().encode([word]).tolist()


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (
            texts_message([b"A", b"\xff"]),
            "raw_input_contents of inputs[0][1]: expected UTF-8, got b'\\xff' at offset 0",
        ),
        (
            texts_message([b"A", b"\xff"], typed=True),
            "inputs[0].contents.bytes_contents[1]: expected UTF-8, got b'\\xff' at offset 0",
        ),
        (texts_message([b"A"], [2]), "raw_input_contents of inputs[0]: expected 2 strings, got 1"),
        (
            texts_message([b"A"], [2], typed=True),
            "inputs[0].contents.bytes_contents: expected 2 strings, got 1",
        ),
        (
            texts_message([b"A"], [1, 2]),
            "inputs[0].shape: expected [texts] or [texts, 1] for BYTES, got [1, 2]",
        ),
        (texts_message([b"A"], datatype="FP32"), "inputs[0].datatype: expected INT64 or BYTES, got 'FP32'"),
        (texts_message([b"A"] * 101), "inputs[0].shape: expected at most 50 rows (--max-rows), got 101"),
    ],
)
def test_wrong_texts_are_refused(message: Any, error: str) -> None:
    assert error_of(message, TEXTS) == error
