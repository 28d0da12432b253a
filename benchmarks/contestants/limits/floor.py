"""The floor of HTTP: a raw ASGI application that reads each request and answers with a constant."""

from __future__ import annotations

from typing import Any

BODY = b'{"logits":[[' + b",".join([b"0.1234567"] * 10) + b"]]}"
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
