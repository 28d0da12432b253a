"""Responses, log lines and counts do not depend on the segments in which a request arrives."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.asgi import Reply
from tests.support.in_process_worker import (
    GATES,
    INFER,
    LARGE_BINARY,
    LARGE_RESPONSE_BYTES,
    LESION,
    NAME,
    PREDICT,
    InProcessWorker,
    access_log_lines,
    binary_infer,
    infer,
    load_worker,
    request,
    rows,
    run_scene,
    until,
)

__all__ = ["access_log_lines"]


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

INFER_BODY = infer(rows(1))


# log fields that differ in each request, or are measured
VARYING_FIELDS = ("time", "id", "ms", "span", "queue_ms", "run_ms")


@dataclass(frozen=True)
class Case:
    """A request, and what to expect of its result."""

    path: str
    body: bytes
    status: int = 200
    headers: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    # whether the result depends on the size of the body before decoding
    measured: bool = False
    # whether the answer has at least LARGE_RESPONSE_BYTES
    large: bool = False


def binary_case(path: str, payload: tuple[bytes, dict[str, object]], status: int = 200, **more: Any) -> Case:
    body, headers = payload
    return Case(path, body, status, headers, **more)


KEYS = {"api_keys": ("open-sesame",), "admin_key": "master"}
MORE = {
    "X-Request-Id": "my-own-1",
    "Traceparent": f"00-{TRACE}-{PARENT}-01",
    "X-Request-Timeout-Ms": 20_000,
    "Origin": "https://one.example",
}
LONG = f"/v2/models/{'m' * 500}/infer"
CASES = {
    "infer": Case(INFER, INFER_BODY),
    "infer of a version": Case(f"/v2/models/{NAME}/versions/1/infer", INFER_BODY),
    "infer of rows": Case(INFER, infer(rows(*range(9)), id="nine")),
    "infer nested": Case(
        INFER,
        json.dumps(
            {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": rows(3).tolist()}]}
        ).encode(),
    ),
    "infer of no rows": Case(INFER, infer(rows())),
    "infer of too many rows for a run": Case(INFER, infer(rows(*range(20))), settings={"max_batch": 8}),
    "headers": Case(INFER, INFER_BODY, headers=MORE),
    "binary": binary_case(INFER, binary_infer(rows(0, 1))),
    "binary both ways": binary_case(INFER, binary_infer(rows(0, 1, 2), binary_data_output=True)),
    "much binary": binary_case(INFER, LARGE_BINARY, large=True),
    "predict": Case(PREDICT, json.dumps({"instances": rows(4, 5).tolist()}).encode()),
    "gates": Case(GATES, INFER_BODY),
    "gates of rows": Case(GATES, infer(rows(1, 2), parameters={"detail": "units", "blocks": True})),
    "gates of many rows": Case(GATES, infer(rows(*range(40)), parameters={"detail": "rows"}), large=True),
    "lesion": Case(LESION, infer(rows(1, 2), close=["layer03.transform_gate"])),
    "curve": Case(LESION, infer(rows(6), curve=True)),
    "a lesion of no gate": Case(LESION, infer(rows(6), close=["nowhere"]), 400),
    "no JSON": Case(INFER, INFER_BODY[:-1], 400),
    "no body": Case(INFER, b"", 400),
    "an odd id": Case(INFER, INFER_BODY, headers={"X-Request-Id": "two words", "Traceparent": "none"}),
    "an odd timeout": Case(INFER, INFER_BODY, 400, headers={"X-Request-Timeout-Ms": "soon"}),
    "an odd length of JSON": Case(INFER, INFER_BODY, 400, headers={"Inference-Header-Content-Length": "-1"}),
    "no key": Case(INFER, INFER_BODY, 401, settings=KEYS),
    "a wrong key": Case(INFER, INFER_BODY, 401, headers={"X-Api-Key": "sesame"}, settings=KEYS),
    "a key": Case(INFER, INFER_BODY, headers={"Authorization": "Bearer open-sesame"}, settings=KEYS),
    "the key of all doors": Case(INFER, INFER_BODY, headers={"X-Api-Key": "master"}, settings=KEYS),
    "no such model": Case("/v2/models/nothing/infer", INFER_BODY, 404),
    "no such version": Case(f"/v2/models/{NAME}/versions/7/infer", INFER_BODY, 404),
    "a long name": Case(LONG, INFER_BODY, 404),
    "too large a body": Case(INFER, INFER_BODY, 413, settings={"max_body": 100}, measured=True),
    "too much JSON": Case(INFER, INFER_BODY, 413, settings={"max_json": 100}),
    "not finite": binary_case(INFER, binary_infer(np.full((1, 1, 8, 8), np.inf, np.float32)), 422),
}


def comparable(reply: Reply) -> tuple[Any, ...]:
    """The parts of a reply that must be the same, however the request arrives."""
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "x-request-id")}
    return reply.status, headers, reply.body


def stable_fields(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in VARYING_FIELDS}


def difference(after: Any, before: Any) -> Any:
    """How much each count has grown."""
    if isinstance(after, dict):
        changed = {key: difference(value, (before or {}).get(key)) for key, value in after.items()}
        return {key: value for key, value in changed.items() if value}
    if isinstance(after, tuple):
        return tuple(np.subtract(after, before or [0] * len(after)).tolist())
    return after - (before or 0)


@pytest.mark.parametrize("name", CASES)
def test_segments_do_not_change_the_outcome(name: str, access_log_lines: list[dict[str, Any]]) -> None:
    """Status, headers, body, the log line and all counts are the same."""
    case = CASES[name]
    whole = request(case.path, case.body, case.headers)
    head = len(whole) - len(case.body)
    parts = (case.body[:50], case.body[50:], b"")
    chunks = b"".join([b"%x\r\n%b\r\n" % (len(part), part) for part in parts])
    encoded = case.path.replace("models", "mod%65ls")
    zipped = gzip.compress(case.body)
    ways: list[tuple[str, tuple[bytes, ...]]] = [
        ("whole", (whole,)),
        ("known", (whole,)),
        ("with a header twice", (request(case.path, case.body, {**case.headers, "A": 1, "a": 2}),)),
        ("after a part of its head", (whole[:20], whole[20:])),
        ("behind a line of nothing", (b"\r\n" + whole,)),
        ("with a query", (request(case.path + "?", case.body, case.headers),)),
        ("encoded", (request(encoded, case.body, case.headers),)),
        ("known still", (whole,)),
    ]
    if case.body:
        ways.append(("head and body", (whole[:head], whole[head:])))
        ways.append(("body in parts", (whole[: head + 1], whole[head + 1 : -1], whole[-1:])))
    if case.body and not case.measured:
        coded = request(case.path, zipped, {**case.headers, "Content-Encoding": "gzip"})
        ways.append(("compressed", (coded,)))
        chunked = whole[:head].replace(b"Content-Length: %d" % len(case.body), b"Transfer-Encoding: chunked")
        ways.append(("chunked", (chunked + chunks,)))

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        expected: tuple[Any, ...] | None = None
        for way, pieces in ways:
            access_log_lines.clear()
            before = worker.counts()
            reply = await client.ask(*pieces)
            await until(lambda: len(access_log_lines) == 1)
            line = stable_fields(access_log_lines[0])
            if way == "encoded":
                assert line["path"] == encoded[:200]
                line["path"] = case.path[:200]
            assert reply.status == case.status, (way, reply)
            assert (len(reply.body) >= LARGE_RESPONSE_BYTES) is case.large
            assert access_log_lines[0]["id"] == reply.headers["x-request-id"]
            actual = comparable(reply), line, difference(worker.counts(), before)
            expected = expected or actual
            assert actual == expected, way
        assert client.next_reply() is None

    run_scene(application(tuple(case.settings.items())), scene)


@functools.cache
def application(settings: tuple[tuple[str, Any], ...]) -> InProcessWorker:
    """One application for all cases with the same settings."""
    return load_worker(**dict(settings))
