"""The OpenAPI document: it describes every route, and its examples and responses fit its schemas."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.asgi import ask
from tests.support.route_table import route_table
from turnpike.service.api.app import Application
from turnpike.service.api.openapi.document import build_document
from turnpike.service.api.openapi.operation import DIGIT
from turnpike.service.api.openapi.schemas import SCHEMAS
from turnpike.service.config.settings import Settings
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.location import BUNDLED_REPOSITORY
from turnpike.service.repository.scan import scan
from turnpike.service.telemetry.counters import merge_snapshots
from turnpike.service.telemetry.traffic_history import TrafficHistory

# routes that are left out: pages and their files
NOT_IN_DOCUMENT = {"/", "/dashboard/{file:path}", "/docs", "/docs/{file}", "/openapi.json", "/v2/"}


class SingleWorker:
    """A client of the supervisor for an application without one: what it counts is that of this worker."""

    def __init__(self) -> None:
        self.app: Application | None = None

    async def ask(self, what: str, argument: Any = None) -> Any:
        assert self.app is not None
        snapshot = await self.app.snapshot()
        if what == "traffic":
            history = TrafficHistory()
            history.record(0, merge_snapshots([]))
            history.record(3, snapshot["counters"])
            return history.to_json(argument)
        return [snapshot] if what == "snapshots" else {"ok": True}


@pytest.fixture(scope="module")
def application() -> Application:
    """An application that serves the bundled model."""
    supervisor = SingleWorker()
    application = Application(Settings(access_log=False, admin_key="root"), supervisor)
    supervisor.app = application
    deployment = Deployment(serial=1, models=scan(BUNDLED_REPOSITORY).models).to_json()

    async def load() -> None:
        await application.registry.prepare(deployment)
        await application.registry.commit(deployment)

    asyncio.run(load())
    return application


@pytest.fixture
def document(application: Application) -> dict[str, Any]:
    return build_document(application.router.routes)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield verb, path, operation


def test_the_document_has_exactly_the_routes(application: Application, document: dict[str, Any]) -> None:
    expected = {
        (entry.method.lower(), entry.path)
        for entry in route_table(application)
        if entry.path not in NOT_IN_DOCUMENT
    }
    assert {(verb, path) for verb, path, _ in operations(document)} == expected


def test_every_route_declares_a_level(application: Application, document: dict[str, Any]) -> None:
    """The document says which key it needs: none, an API key if those are enabled, or the admin key."""
    for _, path, level in route_table(application):
        for operation in document["paths"].get(path, {}).values():
            security = operation.get("security")
            assert (security is None) == (level == "open")
            assert level != "api" or {} in security
            assert level != "admin" or {} not in security


def test_references_and_schemas_match(document: dict[str, Any]) -> None:
    """Every reference has a schema, and every schema is used."""
    text = json.dumps(document)
    references = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert references == set(SCHEMAS) == set(document["components"]["schemas"])


def test_operations_have_unique_names_and_summaries(document: dict[str, Any]) -> None:
    """Code generators make functions from the names."""
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    assert all(operation["summary"] and operation["tags"] for _, _, operation in operations(document))


def test_path_parameters_are_described(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        parameters = operation.get("parameters", [])
        names = [parameter["name"] for parameter in parameters if parameter["in"] == "path"]
        assert names == re.findall(r"{(\w+)}", path)


def test_every_error_has_the_same_schema(document: dict[str, Any]) -> None:
    """Ready routes return their state with 503."""
    for _, path, operation in operations(document):
        for status, response in operation["responses"].items():
            schema = response["content"].get("application/json", {}).get("schema")
            if status == "503" and path.endswith("/ready"):
                assert schema == operation["responses"]["200"]["content"]["application/json"]["schema"]
            elif status != "200":
                assert schema == {"$ref": "#/components/schemas/Error"}
        assert {"200", "400", "431", "500"} <= operation["responses"].keys()


def test_examples_of_the_document_are_accepted(application: Application, document: dict[str, Any]) -> None:
    """Every route that runs a model has examples. The bundled model accepts them, and the responses fit."""
    tried = set()
    for verb, path, operation in operations(document):
        if "504" in operation["responses"]:
            tried.add(path)
            examples = operation["requestBody"]["content"]["application/json"]["examples"]
            assert examples, path
            for name, example in examples.items():
                reply = ask(application, verb.upper(), url(path), body=json.dumps(example["value"]).encode())
                assert reply.status == 200, (path, name, reply.body)
                assert_fits(reply.json, response_schema(operation))
    assert {path.rpartition("/")[2] for path in tried} >= {"infer", "gates", "lesion", "{model}:predict"}


def test_the_example_is_classified_correctly(application: Application) -> None:
    """The digit of the examples is a 2."""
    body = json.dumps({"instances": [DIGIT]}).encode()
    reply = ask(application, "POST", "/v1/models/digits-10:predict", body=body)
    assert reply.json["predictions"][0]["label"] == "2"


def test_every_get_response_matches_its_schema(application: Application, document: dict[str, Any]) -> None:
    for verb, path, operation in operations(document):
        if verb == "get":
            reply = ask(application, "GET", url(path))
            assert reply.status == 200, (path, reply.body)
            (media_type,) = operation["responses"]["200"]["content"]
            assert reply.headers["content-type"].startswith(media_type)
            if media_type == "application/json":
                assert_fits(reply.json, response_schema(operation))


def url(path: str) -> str:
    return path.format(model="digits-10", version="1")


def response_schema(operation: dict[str, Any]) -> dict[str, Any]:
    return operation["responses"]["200"]["content"]["application/json"]["schema"]


def assert_fits(value: Any, schema: dict[str, Any]) -> None:
    """Check a value against the subset of JSON Schema that our schemas use."""
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
        for name, item in value.items():
            assert_fits(item, schema.get("properties", {}).get(name, {}))
    if isinstance(value, list):
        for item in value:
            assert_fits(item, schema.get("items", {}))
