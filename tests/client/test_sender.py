"""What both clients do with a call: options, one request for what many need, many rows, and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import multiprocessing
import pickle
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.client_server import Kind, call, http_answer, misbehaving
from tests.support.http_stand_in import Received, Reply, replying
from tests.support.live_server import Server, free_port, serving
from tests.support.tls_certificate import certificate
from turnpike.client.client import AsyncClient, Client
from turnpike.client.errors import (
    ClientError,
    InputError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.client.inputs import Array

KINDS: list[Kind] = ["blocking", "async"]
TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
METADATA = {"name": "net", "inputs": [TENSOR]}


class Service:
    """Answers for a model that returns its input, and counts the requests for each path."""

    def __init__(self, max_rows: int = 4096, max_bytes: int = 1 << 30) -> None:
        self.counts: Counter[str] = Counter()
        self.requests: list[Received] = []
        self.versions: list[str] = ["1"]
        self._max_rows, self._max_bytes = max_rows, max_bytes

    def __call__(self, request: Received) -> Reply:
        self.counts[request.path] += 1
        self.requests.append(request)
        if request.path == "/v2/models":
            return Reply(200, {"models": ["net"]})
        if request.method == "GET":
            # long enough for others to ask meanwhile
            time.sleep(0.1)
            return Reply(200, METADATA)
        if len(request.body) > self._max_bytes:
            return Reply(413, {"error": "body: too large (--max-body)"})
        version = self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]
        if "predict" in request.path:
            rows = json.loads(request.body)["instances"]
            if len(rows) > self._max_rows:
                return self._too_many(len(rows))
            cells = [{"row": 0, "column": "x", "value": rows[0][0], "what": "new"}]
            answer = {"version": version, "predictions": rows, "warnings": cells, "more_warnings": 1}
            return Reply(200, answer)
        size = int(request.headers["inference-header-content-length"])
        (tensor,) = json.loads(request.body[:size])["inputs"]
        if tensor["shape"][0] > self._max_rows:
            return self._too_many(tensor["shape"][0])
        content = request.body[size:]
        output = {**TENSOR, "name": "y", "shape": tensor["shape"]}
        head = json.dumps({"model_version": version, "outputs": [output]}).encode()
        return Reply(200, head + content, {"Inference-Header-Content-Length": str(len(head))})

    def _too_many(self, rows: int) -> Reply:
        reason = f"inputs[0].shape: expected at most {self._max_rows} rows (--max-rows), got {rows}"
        return Reply(400, {"error": reason})


@contextlib.contextmanager
def service(**limits: int) -> Iterator[tuple[str, Service]]:
    handler = Service(**limits)
    with replying(handler) as url:
        yield url, handler


def numbered(rows: int) -> Array:
    return np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)


# ---- options


@pytest.mark.parametrize("kind", KINDS)
def test_headers_of_the_client_and_of_a_call_are_sent(kind: Kind) -> None:
    """Those of the call win, and an id is one of them."""
    options = {"headers": {"X-Team": "a", "X-Both": "client"}, "api_key": "key"}
    with service() as (url, handler):
        more = {"headers": {"x-both": "call"}, "request_id": "id-7", "options": options}
        call(kind, url, "infer", "net", numbered(1), **more)
    for request in handler.requests:
        got = [request.headers.get(name) for name in ("x-team", "x-both", "x-request-id", "authorization")]
        assert got == ["a", "call", "id-7", "Bearer key"]


def test_a_call_has_a_timeout_of_its_own() -> None:
    with service() as (url, handler), Client(url, timeout=30) as client:
        client.models(timeout=5)
        client.models()
    first, second = (int(request.headers["x-request-timeout-ms"]) for request in handler.requests)
    assert first <= 5000 < second


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"headers": {"a b": "c"}}, ValueError, "headers: expected the name of a header of yours, got 'a b'"),
        ({"headers": {"Content-Length": "1"}}, ValueError, "headers: expected the name of a header of yours"),
        ({"headers": {"a": "b\r\nc: d"}}, ValueError, "headers: a: expected printable ASCII characters"),
        ({"request_id": "a\nb"}, ValueError, "request_id: expected printable ASCII characters"),
        ({"seconds": 3}, TypeError, "models: expected timeout, headers, request_id, got 'seconds'"),
    ],
)
def test_options_that_are_none_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with service() as (url, handler), Client(url) as client:
        with pytest.raises(error, match=f"^{message}"):
            client.models(**options)
        assert not handler.requests


def test_a_request_id_is_that_of_the_log(server: Server, digits: Array) -> None:
    for url in (server.url, f"grpc://{server.grpc_address}"):
        with pytest.raises(RequestRefusedError):
            call("blocking", url, "infer", "digits-10", digits, ["absent"], request_id="mine")


# ---- one request for what many need


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_start_at_once_ask_once_for_the_metadata(kind: Kind) -> None:
    with service() as (url, handler):
        if kind == "async":

            async def ask() -> None:
                async with AsyncClient(url) as client:
                    await asyncio.gather(*(client.infer("net", numbered(1)) for _ in range(30)))

            asyncio.run(ask())
        else:
            with Client(url) as client:
                threads = [
                    threading.Thread(target=client.infer, args=("net", numbered(1))) for _ in range(30)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    assert handler.counts == {"/v2/models/net": 1, "/v2/models/net/infer": 30}


def test_who_waits_for_the_metadata_does_not_get_the_error_of_another() -> None:
    """Which has less time, or other headers."""
    handler = Service()

    def reply(request: Received) -> Reply:
        if request.headers.get("x-team") == "a":
            time.sleep(0.1)
            return Reply(403, {"error": "not this team"})
        return handler(request)

    async def ask() -> list[Any]:
        async with AsyncClient(url) as client:
            teams = "aabb"
            calls = (client.infer("net", numbered(1), headers={"x-team": team}) for team in teams)
            return await asyncio.gather(*calls, return_exceptions=True)

    with replying(reply) as url:
        answers = asyncio.run(ask())
    assert [isinstance(answer, dict) for answer in answers] == [False, False, True, True]


def test_a_call_that_is_cancelled_leaves_its_question_to_the_next() -> None:
    async def ask(url: str) -> int:
        async with AsyncClient(url) as client:
            tasks = [asyncio.create_task(client.infer("net", numbered(1))) for _ in range(3)]
            await asyncio.sleep(0.02)
            tasks[0].cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            return sum(isinstance(answer, dict) for answer in answers)

    with service() as (url, _):
        assert asyncio.run(ask(url)) == 2


# ---- many rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["infer", "predict"])
@pytest.mark.parametrize("limits", [{"max_rows": 4}, {"max_bytes": 230}])
def test_many_rows_are_sent_in_parts(kind: Kind, method: str, limits: dict[str, int]) -> None:
    """As large as the service allows, which it says in its refusal; and joined in order."""
    rows = numbered(11)
    with service(**limits) as (url, _):
        if method == "infer":
            got = call(kind, url, "infer", "net", rows)["y"]
        else:
            with pytest.warns(UserWarning, match="cells are new") as caught:
                columns = call(kind, url, "predict", "net", rows)
            got = np.stack([columns["output_0"], columns["output_1"]], axis=1)
            warning: Any = caught[0].message
            for cell in warning.cells:
                assert cell["value"] == rows[cell["row"]][0]
    np.testing.assert_array_equal(got, rows)


def test_the_parts_are_of_one_version() -> None:
    """A version that comes between two parts answers neither."""
    with service(max_rows=4) as (url, handler), Client(url) as client:
        client.infer("net", numbered(4))
        handler.versions[:] = ["7"]
        handler.counts.clear()
        client.infer("net", numbered(10))
    assert [path for path in handler.counts if "versions/7" in path] == ["/v2/models/net/versions/7/infer"]


def test_the_size_of_parts_is_learned_once() -> None:
    with service(max_rows=4) as (url, handler), Client(url) as client:
        for _ in range(2):
            client.infer("net", numbered(8))
    # metadata, certificate, the whole and two parts of it, and two parts
    assert sum(handler.counts.values()) == 1 + 1 + 3 + 2


def test_a_version_that_goes_between_two_parts_is_no_error() -> None:
    """The rows are sent once more, to the version that is there now."""
    handler = Service(max_rows=4)
    gone: list[str] = []

    def reply(request: Received) -> Reply:
        if "versions/1/" in request.path:
            gone.append(request.path)
            handler.versions[:] = ["2"]
            return Reply(404, {"error": "version 1: expected a version that is served"})
        return handler(request)

    rows = numbered(10)
    with replying(reply) as url, Client(url) as client:
        np.testing.assert_array_equal(client.infer("net", rows)["y"], rows)
        with pytest.raises(RequestRefusedError):
            client.infer("net", rows, version=1)
    assert len(gone) == 2


def test_rows_that_depend_on_each_other_stay_together() -> None:
    handler = Service(max_rows=4)

    def reply(request: Received) -> Reply:
        if request.path.endswith("certificate"):
            return Reply(200, {"batch_coupled": True})
        return handler(request)

    with (
        replying(reply) as url,
        pytest.raises(RequestRefusedError, match="at most 4 rows"),
    ):
        call("blocking", url, "infer", "net", numbered(10))


def test_a_large_row_does_not_make_later_parts_small() -> None:
    with service(max_bytes=300) as (url, handler), Client(url) as client:
        for _ in range(2):
            handler.counts.clear()
            client.infer("net", numbered(40))
    # the whole again, and then a part
    assert handler.counts["/v2/models/net/infer"] >= 2


def test_a_row_that_is_too_large_alone_is_refused() -> None:
    with service(max_bytes=10) as (url, _), pytest.raises(RequestRefusedError, match="body: too large"):
        call("blocking", url, "infer", "net", numbered(3))


def test_the_real_service_takes_more_rows_than_a_request(server: Server) -> None:
    rows = np.random.default_rng(0).normal(size=(9000, 4)).astype(np.float32)
    with Client(server.url) as client:
        got = client.infer("net", rows)["logits"]
        parts = [client.infer("net", rows[start : start + 1000])["logits"] for start in range(0, 9000, 1000)]
        np.testing.assert_array_equal(got, np.concatenate(parts))
        assert len(client.predict("net", rows[:5000])["output_0"]) == 5000


# ---- inputs that are not sent


@pytest.mark.parametrize("method", ["infer", "predict", "gates"])
@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (
            "digits-10",
            np.zeros((2, 63)),
            r"the shape \[-1, 1, 8, 8\], or rows of 64 numbers, got \[2, 63\]",
        ),
        ("digits-10", np.zeros(64), "got .64.; put one row in a list"),
        ("net", np.zeros((1, 2, 4)), r"expected the shape \[-1, 4\], got \[1, 2, 4\]"),
        ("net", {"y": [[1, 2, 3, 4]]}, r"expected a dict with \['x'\], got \['y'\]"),
    ],
)
def test_another_shape_or_name_is_not_sent(
    server: Server, method: str, model: str, inputs: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        call("blocking", server.url, method, model, inputs)


def test_an_infinite_number_is_not_sent_as_json(server: Server) -> None:
    """Nor NaN to a model without blanks; bytes carry both."""
    rows = np.array([[0, 0, np.nan, 0], [0, np.inf, 0, 0]], np.float32)
    message = r"expected finite numbers, since predict sends JSON, got inf at \[1, 1\] .* infer sends bytes"
    with Client(server.url) as client:
        for model in ("net", "cells"):
            with pytest.raises(InputError, match=message):
                client.predict(model, rows)
        assert np.isnan(client.infer("net", rows)["logits"]).all(1).any()


def test_layers_classes_and_documents(server: Server, digits: Array) -> None:
    with Client(server.url) as client:
        outputs = client.infer("digits-10", digits)["output"]
        (best, _), *_ = client.classify("digits-10", digits, 2)
        assert (best.place, best.label) == (outputs[0].argmax(), str(outputs[0].argmax()))
        assert best.value == pytest.approx(outputs[0].max(), abs=1e-5)
        sample = client.samples("digits-10")[3]
        assert client.predict("digits-10", sample.inputs)["label"] == sample.label
        assert [layer["layer"] for layer in client.lesion_curve("digits-10", digits).layers] == [*range(10)]
        assert client.profile("digits-10")["gates"][0]["layer"] == 0
        assert client.statistics("digits-10")[0]["inference_count"] >= 5
        assert client.drift("digits-10")["layers"]
        with pytest.raises(RequestRefusedError, match="admin"):
            client.load("digits-10")


def test_models_are_loaded_and_unloaded(tmp_path: Path) -> None:
    key = tmp_path / "admin"
    key.write_text("secret\n")
    with serving("--admin-key-file", key, "--grpc-port", 0, "--no-access-log") as running:
        for url in (running.url, f"grpc://{running.grpc_address}"):
            with Client(url, api_key="secret") as client:
                client.unload("digits-10")
                assert client.ready("digits-10") is False
                client.load("digits-10")
                assert client.ready("digits-10") is True


# ---- retries


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_that_restarts_is_waited_for(kind: Kind) -> None:
    """One that never answered is given up after the retries: it is probably another address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    handler = Service()

    async def steps(client: Any, ask: Any) -> None:
        started = time.monotonic()
        with pytest.raises(UnavailableError):
            await ask(client.models)
        assert time.monotonic() - started < 5
        with replying(handler, port):
            assert await ask(client.models) == ["net"]
        restart = threading.Timer(1.5, lambda: restarted.enter_context(replying(handler, port)))
        restart.start()
        # connections of before may be open
        assert await ask(client.models) == ["net"]
        restart.join()

    async def with_async_client() -> None:
        async def ask(method: Any) -> Any:
            return await method()

        async with AsyncClient(url, retries=1) as client:
            await steps(client, ask)

    async def with_blocking_client() -> None:
        async def ask(method: Any) -> Any:
            return await asyncio.to_thread(method)

        with Client(url, retries=1) as client:
            await steps(client, ask)

    with contextlib.ExitStack() as restarted:
        asyncio.run(with_async_client() if kind == "async" else with_blocking_client())


def test_a_service_that_drops_a_request_gets_it_no_more_often_than_it_may() -> None:
    """It may be this request that ends it."""
    with (
        misbehaving(http_answer(200, b'{"models": []}'), "close") as (url, received),
        Client(url, retries=2, timeout=20) as client,
    ):
        assert client.models() == []
        with pytest.raises(UnavailableError):
            client.models()
        # aiohttp itself sends a GET once more
        assert len(received) <= 1 + 2 * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_a_bad_certificate_is_not_tried_again(kind: Kind, scheme: str, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    options = ("--tls-cert", cert, "--tls-key", key, "--no-access-log")
    with serving(*options, "--grpc-port", 0) as server:
        port = server.grpc_address.split(":")[1] if scheme == "grpcs" else server.url.rsplit(":", 1)[1]
        url = f"{scheme}://127.0.0.1:{port}"
        with pytest.raises(UnavailableError, match="(?i)certificate") as caught:
            call(kind, url, "models", options={"retries": 9, "timeout": 20})
        assert caught.value.retry_after is None
        if scheme == "https":
            context = ssl.create_default_context(cafile=str(cert))
            assert call(kind, url, "models", options={"tls": context}) == ["digits-10"]


# ---- servers that mean harm


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_bounded(kind: Kind) -> None:
    """Also one that is small until it is decompressed."""
    packed = Reply(200, gzip.compress(b" " * (10 << 20)), {"Content-Encoding": "gzip"})
    for reply in (Reply(200, b" " * 100_001), packed):
        with replying(partial(answer_with, reply)) as url:
            message = "expected an answer of 100,000 bytes or fewer, got more"
            with pytest.raises(ServerError, match=message):
                call(kind, url, "models", options={"max_answer": 100_000})


def answer_with(reply: Reply, _: Received) -> Reply:
    return reply


HOSTILE = {
    "deep": b"[" * 200_000,
    "deep object": b'{"a":' * 100_000,
    "digits": b'{"models": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("body", HOSTILE)
def test_json_that_no_service_sends_is_an_error(body: str) -> None:
    for status in (200, 400):
        with (
            replying(partial(answer_with, Reply(status, HOSTILE[body]))) as url,
            pytest.raises((ServerError, RequestRefusedError)),
        ):
            call("blocking", url, "models")


@pytest.mark.parametrize(
    "shape", [[-1], [2, -2], [2**62], [2**62, 0], [1e9], ["2"], None, [2**40, 2**40], [True, 2]]
)
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_a_shape_that_is_none_is_an_error(shape: Any, datatype: str) -> None:
    head = json.dumps({"outputs": [{"name": "y", "datatype": datatype, "shape": shape}]}).encode()

    def reply(request: Received) -> Reply:
        if request.method == "GET":
            return Reply(200, METADATA)
        return Reply(200, head + b"\0" * 4, {"Inference-Header-Content-Length": str(len(head))})

    with replying(reply) as url, pytest.raises(ServerError, match="expected an answer of the protocol"):
        call("blocking", url, "infer", "net", numbered(1))


def test_control_characters_are_escaped() -> None:
    """An error is printed in a terminal."""
    with (
        replying(lambda _: Reply(400, {"error": "\x1b[2Jgone\r\n\u202eabc"})) as url,
        pytest.raises(RequestRefusedError) as caught,
    ):
        call("blocking", url, "models")
    assert caught.value.reason == "\\x1b[2Jgone\\r\\n\\u202eabc"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("line", [b"nonsense\r\n\r\n", b"HTTP/1.1 200\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_http_is_an_error(kind: Kind, line: bytes) -> None:
    with misbehaving(line) as (url, _), pytest.raises(ClientError):
        call(kind, url, "models", options={"retries": 0})


def test_a_redirect_is_not_followed() -> None:
    """It would take the key to another address."""
    with (
        service() as (other, handler),
        replying(lambda _: Reply(307, b"", {"Location": other})) as url,
        pytest.raises(ServerError, match="status 307"),
    ):
        call("blocking", url, "models", options={"api_key": "secret"})
    assert not handler.requests


# ---- the client as an object


def ask_in_child(client: Client, answers: Any) -> None:
    answers.put(client.models())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_client_may_go_to_another_process(method: str) -> None:
    """By pickle, or by a fork while its thread runs."""
    context: Any = multiprocessing.get_context(method)
    with service() as (url, _), Client(url, timeout=20) as client:
        assert client.models() == ["net"]
        answers = context.Queue()
        process = context.Process(target=ask_in_child, args=(client, answers))
        process.start()
        assert answers.get(timeout=30) == ["net"]
        process.join()
        assert client.models() == ["net"]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_says_its_address(kind: Any) -> None:
    """And no key."""
    client = pickle.loads(pickle.dumps(kind("http://127.0.0.1:1", api_key="secret", timeout=7)))
    assert (repr(client), client.timeout) == (f"{kind.__name__}('http://127.0.0.1:1')", 7)


def test_a_closed_client_is_an_error() -> None:
    with service() as (url, _):
        with Client(url) as client:
            client.models()
        with pytest.raises(RuntimeError, match="expected an open client"):
            client.models()


def test_a_call_ends_when_its_client_is_closed() -> None:
    with misbehaving("stall") as (url, _):
        client = Client(url)
        threading.Timer(0.3, client.close).start()
        with pytest.raises(RuntimeError, match="the client was closed"):
            client.models()


def test_calls_and_the_end_of_a_client_may_come_together() -> None:
    """Each call has an answer, or an error that says that the client was closed."""

    def ask(client: Client, errors: list[str]) -> None:
        try:
            while True:
                client.models()
        except RuntimeError as error:
            errors.append(str(error))

    with service() as (url, _):
        for _ in range(40):
            errors: list[str] = []
            client = Client(url)
            threads = [threading.Thread(target=ask, args=(client, errors)) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.01)
            client.close()
            for thread in threads:
                thread.join(20)
            assert len(errors) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": None}, "url: expected a text such as"),
        ({"url": "http://"}, "url: expected http://HOST:PORT, got 'http://'"),
        ({"url": "http://host:99999"}, "url: expected http://HOST:PORT, got 'http://host:99999'"),
        ({"url": "grpc://host:abc"}, "url: expected grpc://HOST:PORT, got 'grpc://host:abc'"),
        ({"timeout": "2"}, "timeout: expected a number of seconds from 0, got '2'"),
        ({"timeout": -1}, "timeout: expected a number of seconds from 0, got -1"),
        ({"retries": "3"}, "retries: expected a whole number from 0, got '3'"),
        ({"headers": ["x"]}, "headers: expected a dict of texts, got list"),
        ({"headers": {"x": 7}}, "headers: x: expected a text, got int"),
    ],
)
def test_arguments_that_make_no_client(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Client(**{"url": "http://127.0.0.1:1", **options})


def test_a_proxy_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one without a scheme, as other programs read it."""
    monkeypatch.setenv("NO_PROXY", "other")
    paths = []

    def reply(request: Received) -> Reply:
        paths.append(request.path)
        return Reply(200, {"models": ["net"]})

    with replying(reply) as url:
        for proxy in (url, url.removeprefix("http://")):
            monkeypatch.setenv("http_proxy", proxy)
            assert call("blocking", "http://host.example:7", "models") == ["net"]
            with pytest.raises(UnavailableError):
                call("blocking", f"http://other:{free_port()}", "models", options={"retries": 0})
    assert paths == ["http://host.example:7/v2/models"] * 2


def test_a_client_that_is_forgotten_ends_its_thread() -> None:
    with service() as (url, _):
        client = Client(url)
        client.models()
        threads = [thread for thread in threading.enumerate() if thread.name == "turnpike client"]
        del client
        for thread in threads:
            thread.join(5)
        assert threads
        assert not any(thread.is_alive() for thread in threads)


def test_an_async_client_belongs_to_one_event_loop() -> None:
    with service() as (url, _):
        client = AsyncClient(url)

        async def ask() -> None:
            await client.models()

        with asyncio.Runner() as runner:
            runner.run(ask())
            with pytest.raises(RuntimeError, match="expected the event loop of the first call"):
                asyncio.run(ask())
            runner.run(client.close())


def test_the_certificate_of_a_table_is_asked_for_once() -> None:
    """However many tables follow."""
    import pandas as pd

    frame = pd.DataFrame(numbered(3), columns=["a", "b"])
    record = {"model_version": "1", "features": [{"name": "a"}, {"name": "b"}]}
    handler = Service()

    def reply(request: Received) -> Reply:
        answer = handler(request)
        return Reply(200, record) if request.path.endswith("certificate") else answer

    with replying(reply) as url, Client(url) as client:
        for _ in range(3):
            client.infer("net", frame)
    assert handler.counts == {
        "/v2/models/net/certificate": 1,
        "/v2/models/net": 1,
        "/v2/models/net/infer": 3,
    }
