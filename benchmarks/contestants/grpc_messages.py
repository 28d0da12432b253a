"""Messages of the Open Inference Protocol over gRPC: a ModelInferRequest from rows, logits from the answer.

The bytes are written and read here, without the .proto files, so that no server is checked with its own code.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from benchmarks.contestants.networks import OUTPUT_NAME

# before a message: whether it is compressed, and its length in bytes
MESSAGE_PREFIX = struct.Struct(">BI")
# wire types of protobuf that messages without numbers in fixed size have
VARINT, LENGTH_DELIMITED = 0, 2
# numbers of the fields, in the .proto file of the protocol
REQUEST_MODEL_NAME, REQUEST_INPUTS, REQUEST_RAW_CONTENTS = 1, 5, 7
RESPONSE_OUTPUTS, RESPONSE_RAW_CONTENTS = 5, 6
TENSOR_NAME, TENSOR_DATATYPE, TENSOR_SHAPE, TENSOR_CONTENTS = 1, 2, 3, 5
CONTENTS_FP32 = 6


def encode_infer_request(model: str, rows: Sequence[Sequence[float]]) -> bytes:
    """A message, with its prefix, that asks for the logits of the rows; the values are raw contents."""
    values = [value for row in rows for value in row]
    shape = encode_varint(len(rows)) + encode_varint(len(rows[0]))
    tensor = (
        encode_field(TENSOR_NAME, b"x")
        + encode_field(TENSOR_DATATYPE, b"FP32")
        + encode_field(TENSOR_SHAPE, shape)
    )
    message = (
        encode_field(REQUEST_MODEL_NAME, model.encode())
        + encode_field(REQUEST_INPUTS, tensor)
        + encode_field(REQUEST_RAW_CONTENTS, struct.pack(f"<{len(values)}f", *values))
    )
    return MESSAGE_PREFIX.pack(0, len(message)) + message


def decode_infer_response(body: bytes) -> list[float]:
    """The logits of a message with its prefix; ValueError if it has none.

    Servers send them as raw contents, one for each output, or as contents of the output.
    """
    prefix, message = body[: MESSAGE_PREFIX.size], body[MESSAGE_PREFIX.size :]
    if prefix != MESSAGE_PREFIX.pack(0, len(message)):
        raise ValueError("expected one uncompressed message")
    fields = list(decode_fields(message))
    raw_contents = [value for number, value in fields if number == RESPONSE_RAW_CONTENTS]
    tensors = [list(decode_fields(value)) for number, value in fields if number == RESPONSE_OUTPUTS]
    for index, tensor in enumerate(tensors):
        if (TENSOR_NAME, OUTPUT_NAME.encode()) in tensor:
            contents = [value for number, value in tensor if number == TENSOR_CONTENTS]
            data = (
                raw_contents[index]
                if raw_contents
                else b"".join(
                    value for number, value in decode_fields(contents[0]) if number == CONTENTS_FP32
                )
            )
            return list(struct.unpack(f"<{len(data) // 4}f", data))
    raise ValueError(f"expected an output {OUTPUT_NAME}")


def encode_varint(number: int) -> bytes:
    """Seven bits in each byte, the lowest first; all bytes but the last have their highest bit set."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def encode_field(number: int, value: bytes) -> bytes:
    """A field of bytes, text, a message, or packed numbers."""
    return encode_varint(number << 3 | LENGTH_DELIMITED) + encode_varint(len(value)) + value


def decode_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and value of each field that has a length; numbers such as those of a shape are passed over."""
    position = 0

    def decode_varint() -> int:
        nonlocal position
        number = shift = 0
        while True:
            byte = message[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    while position < len(message):
        number, wire_type = divmod(decode_varint(), 8)
        size = decode_varint()
        if wire_type == LENGTH_DELIMITED:
            yield number, message[position : position + size]
            position += size
        elif wire_type != VARINT:
            raise ValueError(f"expected a field of wire type {VARINT} or {LENGTH_DELIMITED}, got {wire_type}")
