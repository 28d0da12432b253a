"""Limits on the bodies of the repository's routes. What the routes do is tested with whole servers."""

from __future__ import annotations

import pytest

from tests.support.in_process_worker import NAME, InProcessWorker, request, run

ROUTES = (
    "/v2/repository/index",
    f"/v2/repository/models/{NAME}/load",
    f"/v2/repository/models/{NAME}/unload",
)
KEYS = {"X-Api-Key": "master"}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (
            b'{"a":"' + b"x" * 1000 + b'"}',
            413,
            "body: expected at most 1000 bytes of JSON (--max-json), got 1008",
        ),
        (b" " * 1001, 413, "body: expected at most 1000 bytes of JSON (--max-json), got 1001"),
        (
            b'{"a":' + b"[" * 10 + b"]" * 10 + b"}",
            400,
            "body: expected JSON nested at most 10 deep (--max-depth), got 11",
        ),
        (b'{"a":', 400, "body: expected valid JSON, got only a part, which ends at line 1, column 6"),
        (b"[]", 400, "body: expected a JSON object or nothing, got an array"),
    ],
)
def test_bodies_have_the_limits_of_other_routes(path: str, body: bytes, status: int, message: str) -> None:
    async def scene(worker: InProcessWorker) -> None:
        reply = await worker.connect().ask(request(path, body, KEYS))
        assert reply.status == status
        assert reply.json["error"].startswith(message)

    run(scene, admin_key="master", max_json=1000, max_depth=10)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"ready":true}', b'{"a":' + b"[" * 9 + b"]" * 9 + b"}", b'{"a":"%b"}' % (b"x" * 992)],
)
def test_bodies_within_the_limits_are_accepted(body: bytes) -> None:
    async def scene(worker: InProcessWorker) -> None:
        reply = await worker.connect().ask(request(ROUTES[0], body, KEYS))
        assert reply.status == 200
        assert reply.json[0]["name"] == NAME

    run(scene, admin_key="master", max_json=1000, max_depth=10)
