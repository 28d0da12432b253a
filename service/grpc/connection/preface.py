"""The first bytes of a connection: the preface of HTTP/2, or a request of HTTP/1.1, which is refused."""

from __future__ import annotations

from turnpike.service.grpc.connection.frames import FRAME_HEADER_BYTES, SETTINGS, ErrorCode, Http2Error

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# where the type of the first frame is
FIRST_TYPE = len(PREFACE) + 3

HTTP1_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PATCH ")
HTTP1_TEXT = b'{"error":"this port speaks gRPC (HTTP/2); HTTP is on the port of --port"}'
HTTP1_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d"
    b"\r\n\r\n%b" % (len(HTTP1_TEXT), HTTP1_TEXT)
)


class Http1Error(Exception):
    """The client speaks HTTP/1.1."""


def preface_bytes(data: bytes) -> int:
    """The size of the preface at the start of the data, 0 if more data is needed to know.

    Raises Http2Error or Http1Error as soon as the data cannot become a preface.
    """
    if PREFACE.startswith(data[: len(PREFACE)]):
        if len(data) < len(PREFACE) + FRAME_HEADER_BYTES:
            return 0
        if data[FIRST_TYPE] != SETTINGS:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected SETTINGS as the first frame")
        return len(PREFACE)
    if data.startswith(HTTP1_METHODS):
        raise Http1Error
    if any(method.startswith(data) for method in HTTP1_METHODS):
        return 0
    raise Http2Error(ErrorCode.PROTOCOL_ERROR, "expected the preface of HTTP/2")
