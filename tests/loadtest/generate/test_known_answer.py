"""Which bytes are a known answer, and which have to be parsed and checked."""

from __future__ import annotations

import pytest

from turnpike.loadtest.generate.known_answer import KnownAnswer

BODY = b'{"outputs":[1,2]}'
HEAD = "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 17\r\nX-Request-Id: 7\r\n"
JSON_LENGTH = "Inference-Header-Content-Length: 5\r\n"


def answer(head: str = HEAD, body: bytes = BODY) -> bytes:
    return f"{head}\r\n".encode() + body


@pytest.mark.parametrize(
    "head", [HEAD, HEAD.lower().replace("http", "HTTP"), HEAD.replace("7", "8", 1).replace("18", "17")]
)
def test_the_same_answer_is_known(head: str) -> None:
    """Other headers may differ, and names of headers may be in any case."""
    assert KnownAnswer(BODY, None).is_answer(answer(head))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        answer(HEAD.replace("200", "503")),
        answer(HEAD.replace("HTTP/1.1", "HTTP/1.0")),
        # another body, also one of the same length
        answer(body=BODY.replace(b"1", b"3")),
        answer(body=b" " + BODY),
        # the beginning or the end of a longer answer
        answer(HEAD.replace("17", "18")),
        answer()[:-1],
        answer(HEAD.replace("17", "170")),
        # no length, or one that is not the body's
        answer(HEAD.replace("Content-Length: 17\r\n", "")),
        answer(HEAD.replace("Content-Length: 17", "Inference-Header-Content-Length: 17")),
        answer(HEAD.replace("Content-Length: 17", "X-Thing: Content-Length: 17")),
        # other framings, and the end of the connection
        answer(HEAD + "Transfer-Encoding: chunked\r\n"),
        answer(HEAD + "Connection: close\r\n"),
        answer(HEAD + "Content-Encoding: gzip\r\n"),
        # another split between JSON and binary data
        answer(HEAD + JSON_LENGTH),
        # two answers
        answer() + answer(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + answer(),
    ],
)
def test_every_other_answer_has_to_be_checked(data: bytes) -> None:
    assert not KnownAnswer(BODY, None).is_answer(data)


def test_the_length_of_the_json_counts() -> None:
    known = KnownAnswer(BODY, "5")
    assert known.is_answer(answer(HEAD + JSON_LENGTH))
    assert not known.is_answer(answer(HEAD + JSON_LENGTH.replace("5", "6")))
    assert not known.is_answer(answer(HEAD + JSON_LENGTH.replace("5", "50")))
    assert not known.is_answer(answer())
