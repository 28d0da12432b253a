"""The inputs of a request, and the checks that are the same in JSON and in messages of gRPC."""

from __future__ import annotations

from collections.abc import Sequence

from turnpike.common.datatypes import BYTES, DATATYPES
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.codec.json_document import quoted
from turnpike.service.codec.tensors import expect_fit
from turnpike.service.codec.text_input import expect_text_shape, text_ids
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array


class RequestInputs:
    """The arrays of the inputs that were read so far.

    `feeds` are the arrays by name, `rows` the length of their batch axis. `has_texts` is True if one of them
    was sent as texts.
    """

    __slots__ = ("dim_sizes", "feeds", "has_texts", "limits", "rows", "signature")

    def __init__(self, signature: Signature, limits: RequestLimits) -> None:
        self.signature, self.limits = signature, limits
        # sizes of the named dimensions, as the inputs read so far have them
        self.dim_sizes: dict[str, int] = {}
        self.feeds: dict[str, Array] = {}
        self.has_texts = False
        self.rows = 1

    def find(self, name: str, where: str) -> Tensor:
        """The model's input of a name, which must not have come before."""
        tensor = self.signature.inputs.get(name)
        if tensor is None:
            known = ", ".join(map(repr, self.signature.inputs))
            raise RequestError(f"{where}.name: expected one of {known}, got {quoted(name)}")
        if name in self.feeds:
            raise RequestError(f"{where}.name: expected each input once, got {quoted(name)} twice")
        return tensor

    def text_encoder(self, datatype: str, tensor: Tensor, where: str) -> TextEncoder:
        """What converts the texts of an input whose datatype is not that of the tensor.

        Raises RequestError unless the datatype is BYTES and the input takes texts.
        """
        accepted = DATATYPES[tensor.dtype]
        encoder = self.signature.text
        takes_texts = encoder is not None and encoder.input == tensor.name
        if encoder is None or not takes_texts or datatype != BYTES:
            if takes_texts:
                accepted += f" or {BYTES}"
            raise RequestError(f"{where}.datatype: expected {accepted}, got {quoted(datatype)}")
        return encoder

    def expect_rows(self, shape: Sequence[int], where: str) -> None:
        """Check the length of the batch axis, if there is one."""
        if self.signature.batch is None:
            return
        rows = shape[0]
        if rows > self.limits.max_rows:
            raise RequestError(
                f"{where}: expected at most {self.limits.max_rows} rows (--max-rows), got {rows}"
            )
        if self.feeds and rows != self.rows:
            raise RequestError(f"{where}: expected {self.rows} rows as in the inputs before it, got {rows}")
        self.rows = rows

    def expect_texts(self, shape: Sequence[int], tensor: Tensor, encoder: TextEncoder, where: str) -> int:
        """Check the shape of a tensor of texts; returns their number."""
        count = expect_text_shape(shape, where)
        self.expect_rows((count,), where)
        expect_fit((count, *encoder.row_shape), tensor, self.dim_sizes, where)
        return count

    def add_texts(self, name: str, texts: Sequence[str], encoder: TextEncoder, where: str) -> None:
        """Add an input that was sent as texts."""
        self.feeds[name] = text_ids(texts, encoder, self.limits, where)
        self.has_texts = True

    def expect_complete(self) -> None:
        """Raise RequestError if an input of the model is missing."""
        if len(self.feeds) < len(self.signature.inputs):
            missing = next(name for name in self.signature.inputs if name not in self.feeds)
            raise RequestError(f"inputs: expected one named {quoted(missing)}, which is missing")
