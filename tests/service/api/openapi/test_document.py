"""The OpenAPI document: true of every route, and its examples run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Route

import service.api.app
from service.api.app import Application, create_app
from service.api.openapi.document import openapi
from service.api.openapi.operations import OPERATIONS
from service.api.openapi.schemas import SCHEMAS
from service.config.settings import Settings
from service.http.auth import level_of
from service.process.supervisor import BUNDLED_REPOSITORY
from service.repository.deployment import Deployment
from service.repository.scan import scan
from tests.support.asgi import ask

# pages for people, and what they are made of
UNSEEN = {"/", "/dashboard/{file:path}", "/docs", "/docs/{part}", "/openapi.json", "/v2/"}


class Alone:
    """A worker that asks for counts and gets its own."""

    def __init__(self) -> None:
        self.app: Application | None = None

    async def ask(self, what: str, argument: Any = None) -> Any:
        assert self.app is not None
        return [await self.app.snapshot()] if what == "snapshots" else {"ok": True}


@pytest.fixture(scope="module")
def routed() -> tuple[Application, FastAPI]:
    """An application that serves the bundled model, and the framework's part of it."""
    made: list[FastAPI] = []
    whole = service.api.app.routed

    def watched(*arguments: Any) -> FastAPI:
        made.append(whole(*arguments))
        return made[-1]

    control = Alone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.api.app, "routed", watched)
        application = create_app(Settings(access_log=False, admin_key="root"), control)
    control.app = application
    plan = Deployment(serial=1, models=scan(BUNDLED_REPOSITORY).models).to_json()

    async def load() -> None:
        await application.shelf.prepare(plan)
        await application.shelf.commit(plan)

    asyncio.run(load())
    return application, made[0]


@pytest.fixture
def document(routed: tuple[Application, FastAPI]) -> dict[str, Any]:
    return openapi(routed[1])


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield verb, path, operation


def routes(app: FastAPI) -> list[Route]:
    found = [context.original_route for context in iter_route_contexts(app.routes)]
    return [route for route in found if isinstance(route, Route)]


def test_every_route_is_there(routed: tuple[Application, FastAPI], document: dict[str, Any]) -> None:
    """Raw endpoints as well as those that the framework knows, and none that there is not."""
    expected = {
        (method.lower(), route.path)
        for route in routes(routed[1])
        for method in (route.methods or set()) - {"HEAD"}
        if route.path not in UNSEEN
    }
    assert {(verb, path) for verb, path, _ in operations(document)} == expected
    known = {(verb, path.replace("/versions/{version}", "")) for verb, path in expected}
    assert known == set(OPERATIONS)


def test_every_route_declares_a_level(routed: tuple[Application, FastAPI], document: dict[str, Any]) -> None:
    """And the document says which keys it wants: none, one that may be off, or the admin's."""
    for route in routes(routed[1]):
        level = level_of(route)
        assert level is not None, route.path
        for operation in document["paths"].get(route.path, {}).values():
            security = operation.get("security")
            assert (security is None) == (level == "open")
            assert level != "api" or {} in security
            assert level != "admin" or {} not in security


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    """Each schema that is named is there, and each that is there is named."""
    text = json.dumps(document)
    named = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert named == set(SCHEMAS) == set(document["components"]["schemas"])


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    """Tools make functions of them; and each says in a few words what it does."""
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    assert all(operation["summary"] and operation["tags"] for _, _, operation in operations(document))


def test_parameters_of_a_path_are_told(document: dict[str, Any]) -> None:
    """Each name in braces once, required."""
    for _, path, operation in operations(document):
        told = [one["name"] for one in operation.get("parameters", []) if one["in"] == "path"]
        assert told == re.findall(r"{(\w+)}", path)


def test_every_error_has_the_one_form(document: dict[str, Any]) -> None:
    """Any answer but 200 is an error of ours, never the framework's; a probe's 503 tells its state."""
    assert "HTTPValidationError" not in json.dumps(document)
    for _, path, operation in operations(document):
        for status, response in operation["responses"].items():
            schema = response["content"].get("application/json", {}).get("schema")
            if status == "503" and path.endswith("/ready"):
                assert schema == operation["responses"]["200"]["content"]["application/json"]["schema"]
            elif status != "200":
                assert schema == {"$ref": "#/components/schemas/Error"}
        assert {"200", "400", "431", "500"} <= operation["responses"].keys()


def examples() -> list[Any]:
    return [
        pytest.param(verb, path, example["value"], id=f"{path} {name}")
        for (verb, path), operation in OPERATIONS.items()
        for name, example in operation.examples.items()
    ]


@pytest.mark.parametrize(("verb", "path", "body"), examples())
def test_examples_run_as_they_stand(
    routed: tuple[Application, FastAPI], verb: str, path: str, body: Any
) -> None:
    """Each is answered by the bundled model, with and without its version, in the form that is promised."""
    for place in (path, path.replace("{model}", "{model}/versions/{version}")):
        address = place.format(model="digits-10", version="1")
        reply = ask(routed[0], verb.upper(), address, body=json.dumps(body).encode())
        assert reply.status == 200, reply.body
        assert_fits(reply.json, SCHEMAS[OPERATIONS[verb, path].answers])


def test_the_example_is_read_right(routed: tuple[Application, FastAPI]) -> None:
    """The digit of the examples is a 2, and so says the bundled model."""
    body = json.dumps(OPERATIONS["post", "/v1/models/{model}:predict"].examples["digit"]["value"]).encode()
    reply = ask(routed[0], "POST", "/v1/models/digits-10:predict", body=body)
    assert reply.json["predictions"][0]["label"] == "2"


def test_what_only_tells_answers_as_promised(routed: tuple[Application, FastAPI]) -> None:
    """Every GET is answered for the bundled model, in the form that the document says."""
    for (verb, path), operation in OPERATIONS.items():
        if verb == "get":
            reply = ask(routed[0], "GET", path.format(model="digits-10"))
            assert reply.status == 200, (path, reply.body)
            if operation.media == "application/json":
                assert_fits(reply.json, SCHEMAS[operation.answers])
            else:
                assert reply.headers["content-type"].startswith(operation.media)


def assert_fits(value: Any, schema: dict[str, Any]) -> None:
    """The few words of JSON Schema that ours use."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        assert value in schema["enum"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    python = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }
    python["null"] = type(None)
    assert not kinds or any(isinstance(value, python[kind]) for kind in kinds), (value, schema)
    if isinstance(value, dict):
        assert set(schema.get("required", [])) <= value.keys()
        for name, one in value.items():
            assert_fits(one, schema.get("properties", {}).get(name, {}))
    if isinstance(value, list):
        for one in value:
            assert_fits(one, schema.get("items", {}))
