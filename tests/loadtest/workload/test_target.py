"""The target of a load test, found in the metadata of a server."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_servers
from tests.support.fake_servers import FakeAnswer
from tests.support.tls_certificate import certificate
from turnpike.loadtest.errors import TargetError, UsageError
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.http_client import HttpClient
from turnpike.loadtest.workload.target import Target, find_target
from turnpike.loadtest.workload.tensors import TensorSpec


def find(server: fake_servers.FakeServer, **options: Any) -> Target:
    plan = LoadPlan(server.url, **options)
    return find_target(plan, HttpClient(plan.url, plan.api_key, timeout=10))


def test_the_only_model_is_found_by_an_index() -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        target = find(server)
    assert (target.server, target.server_version, target.model, target.version) == (
        "triton",
        "2.50.0",
        "scale",
        "1",
    )
    assert target.inputs == (TensorSpec("x", "FP32", (-1, 4)),)
    assert target.outputs == (TensorSpec("logits", "FP32", (-1, 3)),)
    assert (target.binary, target.v1, target.gates) == (True, False, False)
    assert target.path == "/models/scale"


def test_the_only_model_is_found_in_a_list() -> None:
    with fake_servers.fake_server(fake_servers.kserve()) as server:
        target = find(server)
        assert not [request for request in server.requests if request.path == "/v2/repository/index"]
    assert (target.model, target.v1, target.binary) == ("scale", True, False)


def test_metadata_may_be_incomplete() -> None:
    with fake_servers.fake_server(fake_servers.mlserver()) as server:
        target = find(server)
    assert (target.version, target.inputs, target.outputs) == ("", (), ())


def test_models_that_are_not_ready_are_ignored() -> None:
    index = [{"name": "scale", "state": "READY"}, {"name": "broken", "state": "UNAVAILABLE"}]
    with fake_servers.fake_server(fake_servers.triton() | {"POST /v2/repository/index": index}) as server:
        assert find(server).model == "scale"


def test_several_models_are_listed() -> None:
    with (
        fake_servers.fake_server(
            fake_servers.kserve() | {"GET /v2/models": {"models": ["b", "a"]}}
        ) as server,
        pytest.raises(UsageError, match=r"--model: expected one of a, b, got none"),
    ):
        find(server)


def test_a_server_without_an_index_needs_a_name() -> None:
    routes = fake_servers.triton()
    del routes["POST /v2/repository/index"]
    with fake_servers.fake_server(routes) as server:
        with pytest.raises(UsageError, match="--model: expected a name"):
            find(server)
        assert find(server, model="scale").model == "scale"


def test_a_server_without_models_is_an_error() -> None:
    with (
        fake_servers.fake_server(fake_servers.kserve() | {"GET /v2/models": {"models": []}}) as server,
        pytest.raises(TargetError, match="expected at least one model, got none"),
    ):
        find(server)


def test_a_chosen_version_is_used() -> None:
    metadata = fake_servers.triton()["GET /v2/models/scale"]
    routes = fake_servers.triton() | {"GET /v2/models/a%2Fb/versions/2": metadata | {"versions": ["1", "2"]}}
    with fake_servers.fake_server(routes) as server:
        target = find(server, model="a/b", version="2")
        assert (target.version, target.pinned, target.path) == ("2", True, "/models/a%2Fb/versions/2")
        with pytest.raises(TargetError, match=r"expected a model 'a/b' of version 3, got 404: not here"):
            find(server, model="a/b", version="3")


def test_the_newest_version_is_the_highest_number() -> None:
    with fake_servers.fake_server(fake_servers.triton(versions=["9", "10", "2"])) as server:
        assert find(server).version == "10"


@pytest.mark.parametrize("entry", [{"name": "x"}, {"name": "x", "datatype": "FP32", "shape": None}, "x"])
def test_invalid_metadata_is_an_error(entry: Any) -> None:
    with (
        fake_servers.fake_server(fake_servers.triton(inputs=[fake_servers.INPUT, entry])) as server,
        pytest.raises(TargetError, match=r"metadata of 'scale': inputs\[1\]: expected name, datatype and"),
    ):
        find(server)


def test_closable_layers_are_read() -> None:
    lever = {"tensor": "b", "start": 0, "stop": 4, "sign": 1}
    gates = [
        {"name": name, "layer": layer, "levers": levers}
        for name, layer, levers in [
            ("a", 2, [lever]),
            ("b", 0, [lever]),
            ("c", 0, []),
            ("d", 1, [lever]),
            ("e", 3, []),
            ("f", 3, [lever]),
        ]
    ]
    profile = "GET /v2/models/scale/gates/profile"
    with fake_servers.fake_server(fake_servers.triton() | {profile: {"gates": gates}}) as server:
        target = find(server)
    assert (target.gates, target.lesion_layers) == (True, (1, 2))
    with (
        fake_servers.fake_server(fake_servers.triton() | {profile: {"gates": [{"layer": 1}]}}) as server,
        pytest.raises(TargetError, match="gates/profile: expected gates, each with its layer and levers"),
    ):
        find(server)


def test_the_key_is_sent_with_every_request() -> None:
    refused = FakeAnswer({"error": "expected a key"}, 401)
    with fake_servers.fake_server(fake_servers.triton()) as server:
        find(server, api_key="secret")
        assert {request.headers.get("authorization") for request in server.requests} == {"Bearer secret"}
    with (
        fake_servers.fake_server({"GET /v2": refused}) as server,
        pytest.raises(TargetError, match="got 401: expected a key; pass a key with --api-key-file"),
    ):
        find(server)


@pytest.mark.parametrize("key", ["", "two words", "line\n", "clé"])
def test_a_key_with_invalid_characters_is_rejected(key: str) -> None:
    with pytest.raises(UsageError, match="the API key: expected one word"):
        HttpClient("http://127.0.0.1:1", key)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://h:99999",
        "http://h:x",
        "http://u:p@h",
        "http://h/?a=1",
        "http://h/#a",
        "http://h/a b",
    ],
)
def test_invalid_urls_are_rejected(url: str) -> None:
    with pytest.raises(UsageError, match="URL: expected"):
        HttpClient(url)


def test_the_url_may_have_a_path_prefix() -> None:
    routes = {route.replace(" ", " /at", 1): answer for route, answer in fake_servers.triton().items()}
    with fake_servers.fake_server(routes) as server:
        plan = LoadPlan(f"{server.url}/at/")
        assert find_target(plan, HttpClient(plan.url)).model == "scale"


def test_unreachable_servers_are_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(TargetError, match=r"expected an answer within 0.05 s, got none"):
            HttpClient(f"http://127.0.0.1:{port}", timeout=0.05).get("/v2")
    with pytest.raises(TargetError, match=f"http://127.0.0.1:{port}: no server answers there"):
        HttpClient(f"http://127.0.0.1:{port}").get("/v2")
    with (
        fake_servers.fake_server({}) as server,
        pytest.raises(TargetError, match="expected a server of the Open Inference Protocol at /v2, got 404"),
    ):
        find(server)
    with (
        fake_servers.fake_server({"GET /v2": FakeAnswer(b"<html>hello</html>")}) as server,
        pytest.raises(TargetError, match="got 200: <html>hello</html>"),
    ):
        find(server)


def test_a_truncated_response_is_an_error() -> None:
    with (
        fake_servers.fake_server({"GET /v2": FakeAnswer(b"{", headers={"Content-Length": "10"})}) as server,
        pytest.raises(TargetError, match="the connection ended before the answer was complete"),
    ):
        find(server)


def test_mistaken_http_and_https_are_reported() -> None:
    with (
        fake_servers.fake_server({}) as server,
        pytest.raises(TargetError, match="the server may speak http:// instead"),
    ):
        HttpClient(server.url.replace("http:", "https:"), timeout=10).get("/v2")


def test_an_untrusted_certificate_is_an_error(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with fake_servers.fake_server(fake_servers.triton(), context) as server:
        with pytest.raises(TargetError, match=r"expected a trusted certificate.*--insecure"):
            HttpClient(server.url, timeout=10).get("/v2")
        assert HttpClient(server.url, insecure=True, timeout=10).get("/v2").document()["name"] == "triton"


def test_an_invalid_host_name_is_an_error() -> None:
    with pytest.raises(TargetError, match="there is no host with this name"):
        HttpClient("http://" + "a" * 70).get("/v2")


def test_a_server_of_another_protocol_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.test ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(TargetError, match="expected HTTP, got something else"):
            HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=10).get("/v2")
        thread.join(10)
