"""Bodies and parameters of the repository's routes. What the routes do is tested with whole servers."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.support.in_process_worker import NAME, InProcessWorker, request, run
from turnpike.service.api.admin import expect_parameters

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


@pytest.mark.parametrize("path", ROUTES)
def test_a_body_of_many_keys_is_not_read(path: str) -> None:
    """Whatever `--max-json` is, since reading 15 MB of keys would take half a second from other requests."""

    async def scene(worker: InProcessWorker) -> None:
        keys = b'{"k0":0' + b"".join(b',"k%d":0' % number for number in range(40_000)) + b"}"
        reply = await worker.connect().ask(request(path, keys, KEYS))
        assert reply.status == 413
        assert reply.json["error"] == "body: expected at most 262,144 bytes for the repository, got more"

    run(scene, admin_key="master")


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


CONFIG = (
    b'{"parameters":{"config":"{}"}}',
    "parameters: expected none, got 'config'; models come from the repository of this service only: "
    "put the files of the model there, and load it without parameters; "
    "model-analyzer needs --reload-model-disable",
)
FILE = (
    b'{"parameters":{"file:1/model.onnx":"AAAA"}}',
    CONFIG[1].replace("config", "file:1/model.onnx"),
)


def test_without_an_admin_key_a_load_is_refused_with_what_to_do() -> None:
    """model-analyzer shows this sentence for each configuration that it tries."""

    async def scene(worker: InProcessWorker) -> None:
        reply = await worker.connect().ask(request(f"/v2/repository/models/{NAME}/load", CONFIG[0]))
        assert reply.status == 403
        assert reply.json["error"].startswith("loading and unloading models is off here")
        assert "--reload-model-disable" in reply.json["error"]

    run(scene)


@pytest.mark.parametrize(
    ("change", "body", "message"),
    [
        ("load", *CONFIG),
        ("load", *FILE),
        ("load", b'{"parameters":{"a":1}}', CONFIG[1].replace("config", "a")),
        ("load", b'{"parameters":[]}', "parameters: expected an object, got an array"),
        ("unload", b'{"parameters":{"a":1}}', "parameters: expected only unload_dependents, got 'a'"),
        ("unload", b'{"parameters":null}', "parameters: expected an object, got null"),
    ],
)
def test_parameters_that_would_have_no_effect_are_refused(change: str, body: bytes, message: str) -> None:
    """Clients of Triton send a model in them, and would believe that it is served."""

    async def scene(worker: InProcessWorker) -> None:
        path = f"/v2/repository/models/{NAME}/{change}"
        reply = await worker.connect().ask(request(path, body, KEYS))
        assert (reply.status, reply.json) == (400, {"error": message})

    run(scene, admin_key="master")


@pytest.mark.parametrize(
    ("change", "names"), [("load", []), ("unload", []), ("unload", ["unload_dependents"])]
)
def test_what_the_clients_of_triton_always_send_is_accepted(
    change: Literal["load", "unload"], names: list[str]
) -> None:
    expect_parameters(change, names)
