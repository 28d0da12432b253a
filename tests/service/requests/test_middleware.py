"""The middleware: every request gets an id, an access log line, counts, and errors as JSON."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any

import orjson
import pytest
from starlette.requests import ClientDisconnect

from tests.support.asgi import ask
from tests.support.recorded_access_log import RecordedAccessLog
from turnpike.service.api.app import not_found
from turnpike.service.errors import OverloadedError
from turnpike.service.http.asgi import AsgiRequest
from turnpike.service.http.compression import AnswerCompressor
from turnpike.service.http.cors import Cors
from turnpike.service.inference_types import InferenceResult
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.middleware import TOO_LARGE_ALONE, RequestMiddleware
from turnpike.service.requests.observer import RequestObserver
from turnpike.service.requests.request import ClientGoneError, Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Router
from turnpike.service.telemetry.access_log import AccessLog
from turnpike.service.telemetry.counters import RequestCounters

ROUTE = "/v2/models/{model}/infer"


async def endpoint(request: Request) -> Response:
    """Does what the model's name in the path says, such as raising an error."""
    match request.path_params["model"]:
        case "full":
            raise OverloadedError("queue: expected room, got none", 3)
        case "gone":
            raise ClientGoneError
        case "disconnected":
            raise ClientDisconnect
        case "vast":
            raise MemoryError
        case "bug":
            raise KeyError("/secret/path")
        case "late bug":
            await request.respond_slowly(Response(b""))
            raise KeyError("/secret/path")
        case "cut":
            raise asyncio.CancelledError
    result = InferenceResult((), queue_ns=1_500_000, run_ns=2_500_000, batch_rows=4)
    request.record_inference("digits", 3, result, 0)
    return Response(b"{}")


@pytest.fixture
def access_log() -> RecordedAccessLog:
    return RecordedAccessLog()


@pytest.fixture
def counters() -> RequestCounters:
    return RequestCounters()


async def model(request: Request) -> Response:
    return Response(orjson.dumps({"name": request.path_params["model"]}))


async def file(request: Request) -> Response:
    return Response(orjson.dumps({"file": request.path_params["file"]}))


async def ready(request: Request) -> Response:
    return Response(b"", status=503 if request.head.query else 200)


class Service:
    """The middleware before a few endpoints, as an ASGI application."""

    def __init__(
        self, counters: RequestCounters, access_log: AccessLog | None, cors: tuple[str, ...]
    ) -> None:
        router = Router(not_found)
        router.add("GET", "/v2/models/{model}", "api", model, "model", operation={})
        router.add("GET", "/v2/files/{file:path}", "open", file, "file", operation={})
        router.add("GET", "/v2/health/ready", "open", ready, "ready", operation={})
        router.add("POST", ROUTE, "api", endpoint, "infer", operation={})
        self.budget = MemoryBudget(1 << 20)
        self._middleware = RequestMiddleware(
            router,
            Authenticator(),
            self.budget,
            RequestObserver(counters, None, access_log),
            preflight=Cors(cors).apply if cors else None,
            compressor=AnswerCompressor(self.budget),
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._middleware.handle(AsgiRequest(scope, receive, send))


def service(
    counters: RequestCounters, access_log: AccessLog | None, *, cors: tuple[str, ...] = ()
) -> Service:
    return Service(counters, access_log, cors)


def response_counts(counters: RequestCounters) -> Any:
    return counters.snapshot()["answered"]


def test_a_response_is_sent_logged_and_counted(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """The log line has all fields, the counters the route's pattern, and the answer the id."""
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"X-Request-Id": "mine", "Traceparent": f"00-{trace}-{parent}-01"}
    reply = ask(service(counters, access_log), "POST", "/v2/models/digits/infer", headers=headers)
    assert (reply.status, reply.body) == (200, b"{}")
    assert reply.headers["x-request-id"] == "mine"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "connection" not in reply.headers
    (line,) = access_log.lines
    assert line.pop("ms") >= 0
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert (line.pop("level"), line.pop("logger"), line.pop("worker")) == ("info", "access", None)
    assert line.pop("span") not in (parent, "")
    assert line == {
        "id": "mine",
        "client": "127.0.0.1",
        "method": "POST",
        "path": "/v2/models/digits/infer",
        "route": ROUTE,
        "status": 200,
        "trace": trace,
        "model": "digits/3",
        "queue_ms": 1.5,
        "run_ms": 2.5,
        "batch": 4,
    }
    assert response_counts(counters) == {ROUTE: {"POST": {"200": 1}}}
    assert counters.snapshot()["refused"] == {}
    assert counters.in_flight == 0


def test_routes_are_counted(access_log: RecordedAccessLog, counters: RequestCounters) -> None:
    """The label is the pattern of the route."""
    reply = ask(service(counters, access_log), "GET", "/v2/models/digits")
    assert reply.json == {"name": "digits"}
    assert access_log.lines[0]["route"] == "/v2/models/{model}"
    assert response_counts(counters) == {"/v2/models/{model}": {"GET": {"200": 1}}}


def test_rare_methods_are_logged_and_share_a_label(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """A caller that makes up methods makes no new metrics."""
    ask(service(counters, access_log), "TRACE", "/v2/models/digits")
    assert access_log.lines[0]["method"] == "TRACE"
    assert response_counts(counters) == {"/v2/models/{model}": {"unknown": {"405": 1}}}


def test_path_labels_have_no_converter(access_log: RecordedAccessLog, counters: RequestCounters) -> None:
    reply = ask(service(counters, access_log), "GET", "/v2/files/a/b.js")
    assert reply.json == {"file": "a/b.js"}
    assert access_log.lines[0]["route"] == "/v2/files/{file}"


@pytest.mark.parametrize(
    ("method", "path", "query", "status", "reason", "route"),
    [
        ("POST", "/v2/models/full/infer", b"", 503, "overloaded", ROUTE),
        ("GET", "/nothing/here", b"", 404, "unknown", "unknown"),
        ("GET", "/v2/models/digits/", b"", 404, "unknown", "unknown"),
        ("POST", "/v2/models/digits/infer/", b"", 404, "unknown", "unknown"),
        ("GET", "/v2/models/digits/infer", b"", 405, "method", ROUTE),
        ("DELETE", "/v2/models/digits", b"", 405, "method", "/v2/models/{model}"),
    ],
)
def test_every_error_is_json_with_one_field(
    access_log: RecordedAccessLog,
    counters: RequestCounters,
    method: str,
    path: str,
    query: bytes,
    status: int,
    reason: str,
    route: str,
) -> None:
    """Errors of endpoints and of routing are JSON with one field, counted by reason and by route."""
    reply = ask(service(counters, access_log), method, path, query=query)
    assert reply.status == status
    assert reply.json.keys() == {"error"}
    assert reply.headers["content-type"] == "application/json"
    assert int(reply.headers["content-length"]) == len(reply.body)
    assert reply.headers["x-request-id"] == access_log.lines[0]["id"]
    assert access_log.lines[0]["error"] == reply.json["error"]
    assert counters.snapshot()["refused"] == {reason: 1}
    assert response_counts(counters) == {route: {method: {str(status): 1}}}


def test_successful_probes_are_logged_at_debug(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """A probe that succeeds is logged at DEBUG. One that fails is logged at INFO, as every other request."""
    ask(service(counters, access_log), "GET", "/v2/health/ready")
    ask(service(counters, access_log), "GET", "/v2/health/ready", query=b"full=1")
    ask(service(counters, access_log), "GET", "/v2/models/ready")
    assert [line["status"] for line in access_log.lines] == [200, 503, 200]
    assert [line["level"] for line in access_log.lines] == ["debug", "info", "info"]


def test_errors_may_have_headers(access_log: RecordedAccessLog, counters: RequestCounters) -> None:
    """Retry-After says when to try again, Allow which method to use."""
    assert ask(service(counters, access_log), "POST", "/v2/models/full/infer").headers["retry-after"] == "3"
    assert ask(service(counters, access_log), "GET", "/v2/models/digits/infer").headers["allow"] == "POST"


def test_a_request_that_lacks_memory_on_its_own_is_too_large(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """It would fail each time. Beside others it may try again, when they have ended."""
    app = service(counters, access_log)
    alone = ask(app, "POST", "/v2/models/vast/infer")
    assert (alone.status, alone.json) == (413, {"error": TOO_LARGE_ALONE})
    assert "retry-after" not in alone.headers
    with app.budget.hold(1):
        beside_others = ask(app, "POST", "/v2/models/vast/infer")
    assert (beside_others.status, beside_others.headers["retry-after"]) == (503, "1")


def test_a_request_that_lacks_memory_after_a_flood_may_try_again(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """The memory of requests that were refused a moment ago may not be free yet."""
    app = service(counters, access_log)
    with app.budget.hold(app.budget.capacity), pytest.raises(OverloadedError):
        app.budget.expect_room(1)
    after = ask(app, "POST", "/v2/models/vast/infer")
    assert (after.status, after.headers["retry-after"]) == (503, "1")


def test_a_bug_is_logged_but_not_sent(
    access_log: RecordedAccessLog, counters: RequestCounters, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets the id of the request. The log has that id and the traceback."""
    reply = ask(service(counters, access_log), "POST", "/v2/models/bug/infer")
    assert reply.status == 500
    request_id = access_log.lines[0]["id"]
    assert reply.json == {"error": f"internal error, request id {request_id}"}
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert request_id in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_a_bug_in_a_started_response_leaves_it_incomplete(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """The answer stays incomplete, so that the server closes the connection. The log has the reason."""
    reply = ask(service(counters, access_log), "POST", "/v2/models/late bug/infer")
    assert (reply.status, reply.body) == (200, b"")
    assert access_log.lines[0]["error"].startswith("internal error")


@pytest.mark.parametrize("name", ["gone", "disconnected"])
def test_nothing_is_sent_to_a_disconnected_client(
    access_log: RecordedAccessLog, counters: RequestCounters, name: str
) -> None:
    """The request is counted and logged as 499, and is not an error of the service."""
    reply = ask(service(counters, access_log), "POST", f"/v2/models/{name}/infer")
    assert reply.status is None
    assert access_log.lines[0]["status"] == 499
    assert response_counts(counters) == {ROUTE: {"POST": {"499": 1}}}
    assert counters.snapshot()["refused"] == {}


def test_a_cancelled_request_is_counted(access_log: RecordedAccessLog, counters: RequestCounters) -> None:
    """A cancelled request is logged as 499, and is no longer in flight."""
    with pytest.raises(asyncio.CancelledError):
        ask(service(counters, access_log), "POST", "/v2/models/cut/infer")
    assert counters.in_flight == 0
    assert access_log.lines[0]["status"] == 499


def test_unknown_methods_share_a_label(access_log: RecordedAccessLog, counters: RequestCounters) -> None:
    """Clients must not be able to create new labels."""
    for method in ("BREW", "WHEN"):
        assert ask(service(counters, access_log), method, "/v2/models/digits/infer").status == 405
    assert response_counts(counters) == {ROUTE: {"unknown": {"405": 2}}}


def test_long_paths_are_truncated_in_the_log(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """A log line stays short whatever a client sends."""
    reply = ask(service(counters, access_log), "GET", "/" + "x" * 10_000)
    assert reply.status == 404
    assert len(access_log.lines[0]["path"]) == 200
    assert len(reply.body) < 200


def test_the_access_log_can_be_disabled(access_log: RecordedAccessLog, counters: RequestCounters) -> None:
    """Requests are still counted."""
    ask(service(counters, None), "POST", "/v2/models/digits/infer")
    assert access_log.lines == []
    assert response_counts(counters) == {ROUTE: {"POST": {"200": 1}}}


def test_cors_allows_only_configured_origins(
    access_log: RecordedAccessLog, counters: RequestCounters
) -> None:
    """CORS is off unless an origin is set. It then covers answers, errors and preflights of that origin."""
    named = {"Origin": "https://one.example"}
    other = {"Origin": "https://two.example"}
    preflight = {
        **named,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-api-key",
    }
    closed, opened = (
        service(counters, access_log),
        service(counters, access_log, cors=("https://one.example",)),
    )
    allow = "access-control-allow-origin"
    assert allow not in ask(closed, "POST", "/v2/models/digits/infer", headers=named).headers
    assert ask(opened, "POST", "/v2/models/digits/infer", headers=named).headers[allow] == named["Origin"]
    assert ask(opened, "POST", "/v2/models/full/infer", headers=named).headers[allow] == named["Origin"]
    assert allow not in ask(opened, "POST", "/v2/models/digits/infer", headers=other).headers
    assert ask(opened, "OPTIONS", "/v2/models/digits/infer", headers=preflight).status == 200
    assert ask(closed, "OPTIONS", "/v2/models/digits/infer", headers=preflight).status == 405
    refused = ask(opened, "OPTIONS", "/v2/models/digits/infer", headers=preflight | other)
    assert refused.status == 400
    assert "'https://two.example': expected an origin" in refused.json["error"]
    assert allow not in refused.headers
