"""Requests and answers of the HTTP transport as bytes, without a server."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.http_stand_in import Received, Reply, replying
from tests.support.live_server import Server
from turnpike.client.client import Client
from turnpike.client.errors import (
    ClientError,
    DeadlineError,
    InputError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)

METADATA = {"name": "net", "versions": ["3"], "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]}


def binary(document: dict[str, Any], *arrays: np.ndarray[Any, Any], **headers: str) -> Reply:
    """An answer of JSON with the bytes of these arrays after it."""
    head = json.dumps(document).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), **headers}
    return Reply(200, head + b"".join(array.tobytes() for array in arrays), headers)


@contextlib.contextmanager
def client_of(
    answer: Reply | Callable[[Received], Reply], requests: list[Received], **options: Any
) -> Iterator[Client]:
    """A client whose requests for metadata are answered; other requests get the answer and go to the list."""

    def reply(request: Received) -> Reply:
        if request.method == "GET" and request.path.endswith("/models/net"):
            return Reply(200, METADATA)
        requests.append(request)
        return answer(request) if callable(answer) else answer

    with replying(reply) as url, Client(url, **options) as client:
        yield client


def test_an_infer_request_is_the_binary_form_of_the_protocol() -> None:
    """JSON with the size of each tensor, then the tensors' bytes; and the same back."""
    output = np.array([[1.5], [np.nan]], np.float32)
    tensor = {"name": "y", "datatype": "FP32", "shape": [2, 1], "parameters": {"binary_data_size": 8}}
    requests: list[Received] = []
    with client_of(binary({"outputs": [tensor]}, output), requests, api_key="key", timeout=7) as client:
        got = client.infer("net", np.array([[1, 2], [3, 4]]), ["y"])
    (request,) = requests
    assert (request.method, request.path) == ("POST", "/v2/models/net/infer")
    assert request.headers["authorization"] == "Bearer key"
    assert 6000 < int(request.headers["x-request-timeout-ms"]) <= 7000
    size = int(request.headers["inference-header-content-length"])
    head, tail = request.body[:size], request.body[size:]
    assert json.loads(head) == {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": 16}}
        ],
        "outputs": [{"name": "y"}],
        "parameters": {"binary_data_output": True},
    }
    assert tail == np.array([1, 2, 3, 4], "<f4").tobytes()
    assert got["y"].tobytes() == output.tobytes()
    # an array of the caller's own
    got["y"][0, 0] = 3


def test_all_tensors_of_an_answer_are_read_in_order() -> None:
    """Those of a lesion come last, and tensors may be empty or have no axis."""

    def entry(name: str, datatype: str, shape: list[int], size: int) -> dict[str, Any]:
        parameters = {"binary_data_size": size}
        return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}

    document = {
        "outputs": [entry("a", "INT8", [3], 3), entry("empty", "FP64", [0, 2], 0)],
        "lesion": {"rows": 1},
        "lesioned": {"outputs": [entry("a", "FP16", [], 2), entry("empty", "BOOL", [1], 1)]},
    }
    arrays = (np.array([1, 2, 3], "i1"), np.array(0.5, "f2"), np.array([True]))
    with client_of(binary(document, *arrays), []) as client:
        lesion = client.lesion("net", [[1, 2]], close=[1])
    assert lesion.before["a"].tolist() == [1, 2, 3]
    assert lesion.before["empty"].shape == (0, 2)
    assert lesion.after["a"] == np.float16(0.5)
    assert lesion.after["empty"].tolist() == [True]
    assert lesion.changed is None


@pytest.mark.parametrize(
    ("method", "arguments", "path"),
    [
        ("models", (), "/v2/models"),
        ("ready", (), "/v2/health/ready"),
        ("ready", ("net", 2), "/v2/models/net/versions/2/ready"),
        ("certificate", ("a b/c?",), "/v2/models/a%20b%2Fc%3F/certificate"),
        ("metadata", ("net", "3"), "/v2/models/net/versions/3"),
    ],
)
def test_paths(method: str, arguments: tuple[Any, ...], path: str) -> None:
    requests: list[Received] = []
    answer = Reply(200, {"models": [], "ready": True})
    with client_of(answer, requests) as client:
        getattr(client, method)(*arguments)
    assert requests[0].method == "GET"
    assert requests[0].path == path
    assert "authorization" not in requests[0].headers


def test_a_version_is_one_segment_of_the_path() -> None:
    requests: list[Received] = []
    with client_of(Reply(200, {}), requests) as client:
        client.metadata("net", "1/stats")
    assert requests[0].path == "/v2/models/net/versions/1%2Fstats"


def test_a_scheme_may_be_in_upper_case() -> None:
    Client("HTTP://host:1").close()


@pytest.mark.parametrize("key", ["clé", "key\n", " key", "a\nb", ""])
def test_a_key_fits_in_a_header(key: str) -> None:
    """The error does not show the key, which may be secret."""
    with pytest.raises(ValueError, match="^api_key: expected printable ASCII characters, without") as caught:
        Client("http://host:8000", api_key=key)
    assert not key or key not in str(caught.value)
    Client("http://host:8000", api_key="a key").close()


def test_the_address_may_have_a_path() -> None:
    paths = []

    def reply(request: Received) -> Reply:
        paths.append(request.path)
        return Reply(200, {"models": ["net"]})

    with replying(reply) as url:
        for address in (f"{url}/prefix", f"{url}/prefix/"):
            with Client(address) as client:
                assert client.models() == ["net"]
    assert paths == ["/prefix/v2/models"] * 2


def test_https_to_a_port_of_http_gets_a_hint(server: Server) -> None:
    with Client(server.url.replace("http:", "https:")) as client:
        with pytest.raises(UnavailableError, match=r"does the address begin with http://\?$") as caught:
            client.models()
        assert caught.value.retry_after is None


@pytest.mark.parametrize("url", ["grpcx://host:1", "host:8000", "ftp://host", ""])
def test_an_unknown_scheme_is_an_error(url: str) -> None:
    with pytest.raises(
        ValueError, match=f"^url: expected http, https, grpc, grpcs and ://HOST:PORT, got {url!r}$"
    ):
        Client(url)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RequestRefusedError),
        (401, RequestRefusedError),
        (404, RequestRefusedError),
        (413, RequestRefusedError),
        (422, RequestRefusedError),
        (500, ServerError),
        (502, ServerError),
        (302, ServerError),
        (503, UnavailableError),
        (504, DeadlineError),
    ],
)
def test_a_status_is_an_error_in_the_words_of_the_service(status: int, error: type[ClientError]) -> None:
    answer = Reply(status, {"error": "x: expected 1, got 2"})
    with client_of(answer, []) as client, pytest.raises(ClientError) as caught:
        client.certificate("net")
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.reason) == (status, "x: expected 1, got 2")
    expected = f"certificate of model 'net' at {client.url}: x: expected 1, got 2 (status {status})"
    assert str(caught.value) == expected


@pytest.mark.parametrize("body", [b"<html>no such page</html>", b"[1]", b'{"detail": 1}', b"\xff"])
def test_an_error_of_another_server_is_shown_as_it_is(body: bytes) -> None:
    with client_of(Reply(404, body), []) as client, pytest.raises(ClientError) as caught:
        client.models()
    assert str(caught.value) == f"models at {client.url}: {body.decode(errors='replace')} (status 404)"


@pytest.mark.parametrize("body", [b'{"ready": false}', b"<html>bad gateway</html>"])
def test_not_ready_is_no_error_whoever_says_so(body: bytes) -> None:
    """Such as a proxy whose service is gone."""
    with client_of(Reply(503, body), []) as client:
        assert client.ready() is False
        assert client.ready("net") is False


X = {"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, b"<html>"),
        Reply(200, b"\xff\xfe"),
        Reply(200, ["net"]),
        binary({"outputs": [X]}, np.zeros(1, "f4")),
        binary({"outputs": [{**X, "shape": 2}]}, np.zeros(2, "f4")),
        binary({"outputs": [{**X, "datatype": "BF16"}]}, np.zeros(2, "f4")),
        binary({"outputs": [{"name": "y"}]}, np.zeros(2, "f4")),
        binary({"outputs": [X]}, np.zeros(2, "f4"), **{"Inference-Header-Content-Length": "x"}),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error(answer: Reply) -> None:
    with client_of(answer, []) as client:
        message = f"^infer of model 'net' at {client.url}: expected an answer of the protocol, got another$"
        with pytest.raises(ServerError, match=message):
            client.infer("net", [[1, 2]])


def test_a_compressed_answer_is_decompressed() -> None:
    body = gzip.compress(b'{"models": ["net"]}')
    answer = Reply(200, body, {"Content-Encoding": "gzip"})
    with client_of(answer, []) as client:
        assert client.models() == ["net"]


def test_a_refused_request_is_sent_again_only_if_the_metadata_was_old() -> None:
    """The first request after the metadata is fresh, so its refusal is final. The second is not."""
    requests: list[Received] = []
    with client_of(Reply(400, {"error": "no"}), requests) as client:
        for count in (1, 3):
            with pytest.raises(RequestRefusedError):
                client.infer("net", [[1, 2]])
            assert len(requests) == count


@pytest.mark.parametrize("status", [401, 404, 413, 422])
def test_other_refusals_have_nothing_to_do_with_the_metadata(status: int) -> None:
    requests: list[Received] = []
    with client_of(Reply(status), requests) as client:
        for count in (1, 2):
            with pytest.raises(RequestRefusedError):
                client.infer("net", [[1, 2]])
            assert len(requests) == count


def test_inputs_that_do_not_fit_are_not_sent() -> None:
    requests: list[Received] = []
    with client_of(Reply(400), requests) as client:
        for _ in range(2):
            with pytest.raises(InputError, match="input .x. of model .net.: expected numbers"):
                client.infer("net", [[1, 1e300]])
    assert requests == []


def test_errors_can_be_sent_to_other_processes() -> None:
    import pickle

    error = UnavailableError("infer", "queue: full", 503, 2.0)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status, again.retry_after) == ("infer: queue: full (status 503)", 503, 2.0)
